// Webapp is a small site with accounts. docs/web.md explains it. Visitors sign up by mail, and sign
// in with an address, a name, a customer number, a passkey or an account at an OpenID provider.
// They can add a second factor, see their devices, edit their account, reset a forgotten password,
// and change addresses. Administrators can list accounts, and disable and enable them.
package main

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"flag"
	"fmt"
	"html/template"
	"log"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/passkey"
	"github.com/coffeenode/userdb/passkey/pages"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
	"github.com/coffeenode/userdb/web/oidc"
	"github.com/coffeenode/userdb/web/qr"
)

//go:embed pages
var files embed.FS

// templates are the default pages, and those of this site.
var templates = template.Must(web.Templates().Funcs(template.FuncMap{"picture": qr.SVG}).ParseFS(files, "pages/*.html"))

// A site is the application.
type site struct {
	flows       web.Flows
	mail, admin string   // the directory to write mails to, the administrator's address
	keys        [][]byte // of second factors
	url         string   // of the site, as browsers see it
	atOnce      bool     // accounts are created without a mail
	provider    oidc.Provider
}

func main() {
	s, listen, store := &site{}, flag.String("listen", "127.0.0.1:8080", "the `ADDRESS` to listen on"), flag.String("store", "memory:", "the `URL` of the accounts")
	flag.StringVar(&s.mail, "mail", "", "the `DIR` to write mails to")
	flag.StringVar(&s.admin, "admin", "", "give the tag admin to the account of this `ADDRESS` when it is created")
	flag.Func("key", "the `FILE` with the keys of second factors, each 32 bytes in base64; accounts in memory need none", func(name string) (err error) {
		s.keys, err = userdb.ReadKeys(name)
		return err
	})
	flag.StringVar(&s.url, "url", "", "the `URL` of the site in browsers, which decides where passkeys work; if empty, http://localhost and the port")
	flag.BoolVar(&s.atOnce, "at-once", false, "create accounts at once, and verify addresses afterwards")
	flag.StringVar(&s.provider.Issuer, "issuer", "", "the `URL` of an OpenID provider with which visitors can sign in")
	flag.StringVar(&s.provider.ClientID, "client", "", "the `ID` of this site at the provider")
	flag.StringVar(&s.provider.Label, "provider", "OpenID", "the `NAME` of the provider for visitors")
	flag.Func("secret", "the `FILE` with the secret of this site at the provider", func(name string) error {
		text, err := os.ReadFile(name)
		s.provider.ClientSecret = strings.TrimSpace(string(text))
		return err
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.run(ctx, *listen, *store); err != nil {
		log.Fatal("webapp: ", err)
	}
}

// run serves until ctx ends, and then sends the waiting mails.
func (s *site) run(ctx context.Context, listen, store string) error {
	if info, err := os.Stat(s.mail); err != nil || !info.IsDir() || flag.NArg() > 0 || s.keys == nil && store != "memory:" {
		return errors.Join(errors.New("want --mail DIR, an existing directory, --key FILE if there is --store ('head -c 32 /dev/urandom | base64' makes a key), and no arguments besides flags"), err)
	}
	text, _ := files.Open("pages/schema.json") // embedded
	accounts, err := schema.Load(text)
	if err != nil {
		return err
	}
	if s.keys == nil {
		s.keys = [][]byte{make([]byte, 32)}
		rand.Read(s.keys[0]) // never returns an error
	}
	db, err := userdb.Open(ctx, store, userdb.Options{Schema: accounts, Keys: s.keys})
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
	if s.url == "" {
		s.url = fmt.Sprint("http://localhost:", listener.Addr().(*net.TCPAddr).Port)
	}
	handler, err := s.handler(db, users, strings.TrimSuffix(s.url, "/"))
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	fmt.Println("listening on", s.url)
	return web.Serve(ctx, listen, handler, web.Ops{Listener: listener, Close: s.flows.Mail.Close})
}

// send writes a mail to a file, which appears only when it is complete. The link is on a line of
// its own.
func (s *site) send(_ context.Context, m web.Mail) error {
	f, err := os.CreateTemp(s.mail, ".mail-*")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "To: %s\nSubject: %s\n\n%s\n\n%s\n", m.To, m.Subject(), m.Text(), m.Link)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), strings.Replace(f.Name(), ".mail-", "mail-", 1)+".txt")
	}
	return err
}

func (s *site) handler(db *userdb.DB, users *userdb.Type, base string) (http.Handler, error) {
	s.flows = web.Flows{
		Auth: web.Auth{Users: users}, Mail: &web.MailQueue{Send: s.send}, Base: base, Site: "Webapp", Render: web.RenderTemplates(templates),
		SignUp: web.SignUpByMail, Fields: []web.Field{{Name: "name", Label: "Name", Autocomplete: "username"}}, New: s.complete,
		Identifier: "E-mail address, name or customer number", Brief: userdb.SessionOptions{Lifetime: 12 * time.Hour},
	}
	if s.atOnce {
		s.flows.SignUp = web.SignUpAtOnce
	}
	mux, f := http.NewServeMux(), &s.flows
	f.Register(mux)
	mux.Handle("GET /{$}", f.Visitor(f.Page("home", nil, nil)))
	mux.Handle("GET /account", f.Require(f.Page("account", s.tags, nil)))
	mux.Handle("/account/edit", f.Require(f.Page("edit", nil, s.edit)))
	mux.Handle("/admin", f.RequireTag("admin", f.Page("admin", s.list, s.setDisabled)))
	return web.Protect(mux), errors.Join(s.addPasskeys(mux, db), s.addProvider(mux))
}

// addPasskeys lets visitors use passkeys, unless the URL of the site has an IP address in place of
// a domain.
func (s *site) addPasskeys(mux *http.ServeMux, db *userdb.DB) error {
	u, err := url.Parse(s.flows.Base)
	if err != nil || net.ParseIP(u.Hostname()) != nil {
		return err
	}
	keys, err := passkey.New(db, "user", passkey.Config{RPID: u.Hostname(), Name: s.flows.Site, Origins: []string{s.flows.Base}})
	if err != nil {
		return err
	}
	return pages.Register(mux, &s.flows, keys)
}

// addProvider lets visitors sign in through the OpenID provider, if the flags name one.
func (s *site) addProvider(mux *http.ServeMux) error {
	if s.provider.Issuer == "" {
		return nil
	}
	s.provider.Name = "provider"
	return (&oidc.SignIn{Flows: &s.flows, Keys: s.keys, Providers: []oidc.Provider{s.provider}}).Register(mux)
}

// complete gives a new account a customer number, and the administrator's account a tag.
func (s *site) complete(_ *http.Request, i userdb.Invitation, n *userdb.NewEntry) error {
	n.Facets["number"] = schema.Text(fmt.Sprintf("%08d", mathrand.N(100_000_000)))
	if strings.EqualFold(i.Address, s.admin) {
		n.Tags = []string{"admin"}
	}
	return nil
}

func (s *site) tags(r *http.Request) (any, error) {
	return s.flows.Users.Tags(hints.UID(web.Entry(r.Context()).UID())).Members(r.Context())
}

func (s *site) edit(_ http.ResponseWriter, r *http.Request) (string, error) {
	_, err := s.flows.SaveForm(r, "name", "job")
	return "/account?done=edit", err
}

// list returns a page of accounts whose names begin with the text searched for, preceded by the
// account that has this text as an identifier.
func (s *site) list(r *http.Request) (any, error) {
	q := strings.TrimSpace(r.FormValue("q"))
	p, err := s.flows.Users.Page(r.Context(), userdb.Query{Order: "name", Prefix: strings.ToLower(q), Limit: 20, After: r.FormValue("after"), Before: r.FormValue("before")})
	if errors.Is(err, userdb.ErrCursor) {
		err = nil // an invalid position: show an empty page
	}
	if e, findErr := s.flows.Users.Find(r.Context(), hints.Any(q)); err == nil && findErr == nil {
		p.Entries = slices.DeleteFunc(p.Entries, func(o userdb.Entry) bool { return o.UID() == e.UID() })
		p.Entries = slices.Insert(p.Entries, 0, e)
	}
	return map[string]any{"Q": q, "After": r.FormValue("after"), "Page": p}, err
}

func (s *site) setDisabled(_ http.ResponseWriter, r *http.Request) (string, error) {
	set := s.flows.Users.Disable
	if r.PostFormValue("do") == "enable" {
		set = s.flows.Users.Enable
	}
	return "/admin?" + r.URL.RawQuery + "&done=" + url.QueryEscape(r.PostFormValue("do")), set(r.Context(), hints.UID(r.PostFormValue("uid")))
}
