// Command pocketbase runs PocketBase as the peer that bench/peers measures.
//
//	pocketbase load DIR FILE DAYS
//		creates the users collection in DIR with the accounts of FILE,
//		and prints a superuser's token
//	pocketbase serve DIR
//		serves DIR on a free port of 127.0.0.1, and prints its address
//
// DAYS is how long PocketBase keeps its log of requests: 5 is its default, and 0 turns the log off.
// All other settings have their defaults. The collection is the one that PocketBase creates itself,
// without avatars and dates, with fields city and note, and with the indexes that its queries need:
// see setUp.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/pocketbase/dbx"
	"github.com/pocketbase/pocketbase/apis"
	"github.com/pocketbase/pocketbase/core"
	_ "github.com/pocketbase/pocketbase/migrations"
	"github.com/pocketbase/pocketbase/tools/security"
)

const cost = 10 // of bcrypt

func main() {
	log.SetFlags(0)
	log.SetPrefix("pocketbase: ")
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 4 && args[0] == "load":
		var days int
		if days, err = strconv.Atoi(args[3]); err == nil {
			err = load(args[1], args[2], days, os.Stdout)
		}
	case len(args) == 2 && args[0] == "serve":
		err = serve(args[1])
	default:
		err = errors.New("usage: pocketbase load DIR FILE DAYS, or pocketbase serve DIR")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// open opens the application with its data in dir and creates PocketBase's own tables.
func open(dir string) (core.App, error) {
	app := core.NewBaseApp(core.BaseAppConfig{DataDir: dir})
	if err := app.Bootstrap(); err != nil {
		return nil, err
	}
	return app, app.RunAllMigrations()
}

// load prepares dir: the collection, the accounts of the file, and a superuser, whose token it
// writes to out.
func load(dir, file string, days int, out io.Writer) error {
	app, err := open(dir)
	if err != nil {
		return err
	}
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := setUp(app); err != nil {
		return fmt.Errorf("changing the collection: %w", err)
	}
	app.Settings().Logs.MaxDays = days
	if err := app.Save(app.Settings()); err != nil {
		return fmt.Errorf("changing the settings: %w", err)
	}
	if err := app.RunInTransaction(func(tx core.App) error { return insert(tx.DB(), in) }); err != nil {
		return fmt.Errorf("loading %s: %w", file, err)
	}
	token, err := superuser(app)
	if err != nil {
		return fmt.Errorf("creating a superuser: %w", err)
	}
	fmt.Fprintln(out, token)
	return app.ResetBootstrapState()
}

// setUp changes the users collection to what is measured. PocketBase's own index on the address
// leaves out empty addresses, so SQLite does not use it for the query of a sign-in, which would
// read all accounts.
func setUp(app core.App) error {
	users, err := app.FindCollectionByNameOrId("users")
	if err != nil {
		return err
	}
	password, is := users.Fields.GetByName(core.FieldNamePassword).(*core.PasswordField)
	if !is {
		return errors.New("the users collection has no password field")
	}
	password.Cost = cost
	for _, name := range []string{"avatar", "created", "updated"} {
		users.Fields.RemoveByName(name)
	}
	users.Fields.Add(&core.TextField{Name: "city", Max: 255}, &core.TextField{Name: "note", Max: 255})
	users.RemoveIndex("idx_email_" + users.Id)
	users.AddIndex("idx_users_address", true, "email", "")
	users.AddIndex("idx_users_city", false, "city", "")
	return app.Save(users)
}

// An account is a line of the file, in the format that userdb imports.
type account struct {
	Facets   map[string]string `json:"facets"`
	Password string            `json:"password"` // its hash
}

// insert writes the accounts into the table of users.
func insert(db dbx.Builder, in io.Reader) error {
	q := db.NewQuery(`INSERT INTO users (id, email, name, city, password, tokenKey, emailVisibility, verified)
		VALUES ({:id}, {:email}, {:name}, {:city}, {:password}, {:key}, FALSE, FALSE)`).Prepare()
	defer q.Close()
	for lines := bufio.NewScanner(in); ; {
		if !lines.Scan() {
			return lines.Err()
		}
		var a account
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return err
		}
		_, err := q.Bind(dbx.Params{
			"id": a.Facets["uid"], "email": a.Facets["email"], "name": a.Facets["name"], "city": a.Facets["city"],
			"password": a.Password, "key": security.RandomString(50),
		}).Execute()
		if err != nil {
			return err
		}
	}
}

// superuser creates a superuser and returns a token that authenticates it.
func superuser(app core.App) (token string, err error) {
	collection, err := app.FindCollectionByNameOrId(core.CollectionNameSuperusers)
	if err != nil {
		return "", err
	}
	r := core.NewRecord(collection)
	r.SetEmail("admin@example.com")
	r.SetRandomPassword()
	if err := app.Save(r); err != nil {
		return "", err
	}
	return r.NewAuthToken()
}

// serve serves until SIGTERM or an interrupt.
func serve(dir string) error {
	app, err := open(dir)
	if err != nil {
		return err
	}
	app.OnServe().BindFunc(func(e *core.ServeEvent) (err error) {
		if e.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
		if err := e.Next(); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "listening on http://%s\n", e.Listener.Addr())
		return nil
	})
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-ended
		time.AfterFunc(3*time.Second, func() { os.Exit(1) })
		event := &core.TerminateEvent{App: app}
		_ = app.OnTerminate().Trigger(event, func(e *core.TerminateEvent) error { return e.App.ResetBootstrapState() })
	}()
	return apis.Serve(app, apis.ServeConfig{})
}
