// Languages serves the default pages of package web in all their languages, for test/browser. It
// writes mails to a directory, as examples/webapp does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/coffeenode/userdb/passkey"
	"github.com/coffeenode/userdb/passkey/pages"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

const accounts = `{"types": {"user": {"primary": "uid", "fold": "casefold", "factors": true, "fields": {
	"email": {"role": "secondary", "kind": "email", "many": 3}, "name": {"role": "secondary", "kind": "nickname"},
	"passkeys": {"role": "secondary", "typed": false, "many": 8}, "links": {"role": "secondary", "typed": false, "many": 5}}}}}`

func main() {
	listen, dir := flag.String("listen", "127.0.0.1:0", "the `ADDRESS` to listen on"), flag.String("mail", "", "the `DIR` to write mails to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := serve(ctx, *listen, *dir); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, listen, dir string) error {
	types, err := schema.Load(strings.NewReader(accounts))
	if err != nil {
		return err
	}
	db, err := userdb.Open(ctx, "memory:", userdb.Options{Schema: types, Keys: [][]byte{make([]byte, 32)}})
	if err != nil {
		return err
	}
	defer db.Close()
	users, err := db.Type("user")
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	url := fmt.Sprint("http://localhost:", listener.Addr().(*net.TCPAddr).Port)
	n := 0
	send := func(_ context.Context, m web.Mail) error {
		n++
		text, name := fmt.Sprintf("To: %s\nSubject: %s\n\n%s\n\n%s\n", m.To, m.Subject(), m.Text(), m.Link), fmt.Sprintf("mail-%d.txt", n)
		hidden := filepath.Join(dir, "."+name)
		return errors.Join(os.WriteFile(hidden, []byte(text), 0o600), os.Rename(hidden, filepath.Join(dir, name)))
	}
	flows := web.Flows{
		Auth: web.Auth{Users: users}, Mail: &web.MailQueue{Send: send, Workers: 1}, Base: url, Languages: []string{"en", "de", "es", "fr"},
		SignUp: web.SignUpByMail, Fields: []web.Field{{Name: "name", Label: "Name", Autocomplete: "username"}},
		Providers: []web.Provider{{Name: "work", Label: "Donaudampfschifffahrtsgesellschaft", Path: "/signin/with/work"}},
	}
	mux := http.NewServeMux()
	flows.Register(mux)
	mux.Handle("GET /account", flows.Require(flows.Page("gone", nil, nil)))
	keys, err := passkey.New(db, "user", passkey.Config{RPID: "localhost", Name: "Accounts", Origins: []string{url}})
	if err != nil {
		return err
	}
	if err := pages.Register(mux, &flows, keys); err != nil {
		return err
	}
	fmt.Println("listening on", url)
	return web.Serve(ctx, listen, web.Protect(mux), web.Ops{Listener: listener, Close: flows.Mail.Close})
}
