// Webapp is a small site with accounts, which docs/web.md explains. Visitors sign up by mail, sign
// in with an address, a name or a customer number, see their devices, edit their account, reset a
// forgotten password, and change, add and remove addresses. Administrators list accounts.
package main

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"html/template"
	"log"
	"math/rand/v2"
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
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

//go:embed pages
var files embed.FS
var templates = template.Must(template.ParseFS(files, "pages/*.html"))

// A site is the application.
type site struct {
	users *userdb.Type
	auth  web.Auth
	mail  string // the directory to write mails to
	admin string // the administrator's address
	base  string // the beginning of links, which must not depend on requests
}

func main() {
	s, listen, store := &site{}, flag.String("listen", "127.0.0.1:8080", "the `ADDRESS` to listen on"), flag.String("store", "memory:", "the `URL` of the accounts")
	flag.StringVar(&s.mail, "mail", "", "the `DIR` to write mails to")
	flag.StringVar(&s.admin, "admin", "", "give the tag admin to the account of this `ADDRESS` when it is created")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.run(ctx, *listen, *store); err != nil {
		log.Fatal("webapp: ", err)
	}
}

// run serves until ctx ends, and lets requests in progress finish.
func (s *site) run(ctx context.Context, listen, store string) error {
	if info, err := os.Stat(s.mail); err != nil || !info.IsDir() || flag.NArg() > 0 {
		return errors.Join(errors.New("want --mail DIR, an existing directory, and no arguments besides flags"), err)
	}
	text, _ := files.Open("pages/schema.json") // embedded
	accounts, err := schema.Load(text)
	if err != nil {
		return err
	}
	db, err := userdb.Open(ctx, store, userdb.Options{Schema: accounts})
	if err != nil {
		return err
	}
	defer db.Close()
	users, err := db.Type("user")
	listener, listenErr := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err = errors.Join(err, listenErr); err != nil {
		return err
	}
	s.users, s.auth, s.base = users, web.Auth{Users: users, SignInPath: "/signin"}, "http://"+listener.Addr().String()
	server := http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 20 * time.Second, IdleTimeout: time.Minute}
	fmt.Println("listening on", s.base)
	context.AfterFunc(ctx, func() { _ = server.Shutdown(context.Background()) })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	limited, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return server.Shutdown(limited) // waits for the Shutdown that AfterFunc began
}

// send writes a mail to a file, which appears only when it is complete. The link is on a line of
// its own.
func (s *site) send(to, subject, text, path string) error {
	f, err := os.CreateTemp(s.mail, ".mail-*")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "To: %s\nSubject: %s\n\n%s\n\n%s%s\n", to, subject, text, s.base, path)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), strings.Replace(f.Name(), ".mail-", "mail-", 1)+".txt")
	}
	return err
}

// A page holds the data that a template shows.
type page struct {
	Me       userdb.Entry // the visitor, if signed in
	Session  userdb.Session
	Form     url.Values // the form that was sent, and the query
	Problems []web.Problem
	Data     any
}

// Of returns the problems of a field, or of the form as a whole if field is "".
func (p page) Of(field string) []web.Problem {
	return slices.DeleteFunc(slices.Clone(p.Problems), func(problem web.Problem) bool { return p.fieldOf(problem) != field })
}

// fieldOf returns the form's field that a problem belongs to. With two passwords, either the old
// one is wrong or the new one is too weak.
func (p page) fieldOf(problem web.Problem) string {
	if problem.Rule == "login" && p.Form.Has("email") {
		return "password"
	}
	if p.Form.Has("old") {
		return cmp.Or(map[string]string{"password": "new"}[problem.Field], map[string]string{"login": "old"}[problem.Rule])
	}
	return problem.Field
}

// Shown returns the value that a facet's input showed when the form was made.
func (p page) Shown(name string) string {
	if sent, is := p.Form["shown-"+name]; is {
		return sent[0]
	}
	return p.Me.Text(name)
}

// Field describes an input for a template. Its value is what the visitor typed or else what is
// stored; passwords are not shown again. Addresses use inputs of type text, because browsers change
// ß to ss in inputs of type email.
func (p page) Field(name, label, kind, autocomplete, stored string) map[string]any {
	if sent, is := p.Form[name]; is && kind != "password" {
		stored = sent[0]
	}
	return map[string]any{"Name": name, "Label": label, "Type": kind, "Complete": autocomplete, "Value": stored, "Problems": p.Of(name)}
}

// codes maps the rules of problems to status codes; all other rules answer 422.
var codes = map[string]int{"gone": 410, "busy": 503, "unavailable": 503, "unknown": 503, "conflict": 409, "wait": 429}

// page returns a handler that shows a page with the data that load returns. If the page's form is
// sent to the same path, do processes it and returns the path to redirect to.
func (s *site) page(name string, load func(*http.Request) (any, error), do func(http.ResponseWriter, *http.Request) (string, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Histories record the origin of a request, and no origin may fill the queue for hashing.
		r = r.WithContext(userdb.WithActor(r.Context(), userdb.Actor{Origin: web.Origin(r, s.auth.Proxies)}))
		p, err := page{Me: web.Entry(r.Context()), Session: web.Session(r.Context()), Form: r.Form}, error(nil)
		if r.Method == http.MethodPost && do != nil {
			var to string
			if to, err = do(w, r); err == nil {
				http.Redirect(w, r, to, http.StatusSeeOther)
				return
			}
		}
		if load != nil && !errors.Is(err, userdb.ErrNotFound) {
			data, missing := load(r)
			p.Data, err = data, cmp.Or(missing, err)
		}
		b, shown, code := bytes.Buffer{}, name, http.StatusOK // a failing template writes nothing
		if p.Problems = web.Problems(err); err != nil {
			code = cmp.Or(codes[p.Problems[0].Rule], http.StatusUnprocessableEntity)
		}
		if code == http.StatusGone || code == http.StatusServiceUnavailable {
			shown = "gone"
			log.Println(r.URL.Path, err)
		}
		if err := templates.ExecuteTemplate(&b, shown, p); err != nil {
			log.Println(err)
			code = http.StatusInternalServerError
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(code)
		_, _ = b.WriteTo(w)
	})
}

// guard wraps all pages. It refuses forms that other sites send, and does not tell other sites the
// addresses of pages, which may contain secrets.
func guard(next http.Handler) http.Handler {
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "same-origin")
		r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
		if err := r.ParseForm(); err != nil {
			http.Error(w, "This form cannot be read.", http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	}))
}

func (s *site) handler() http.Handler {
	s.auth.Failed = func(w http.ResponseWriter, r *http.Request, err error) {
		s.page("gone", func(*http.Request) (any, error) { return nil, err }, nil).ServeHTTP(w, r)
	}
	mux, anyone, signedIn := http.NewServeMux(), s.auth.Visitor, s.auth.Require
	mux.Handle("GET /pages/style.css", http.FileServerFS(files))
	mux.Handle("GET /{$}", anyone(s.page("home", nil, nil)))
	mux.Handle("GET /sent", anyone(s.page("sent", func(r *http.Request) (any, error) { return r.FormValue("to"), nil }, nil)))
	mux.Handle("/signup", anyone(s.page("signup", nil, s.signUp)))
	mux.Handle("/welcome", anyone(s.page("welcome", s.invitation, s.welcome)))
	mux.Handle("/signin", anyone(s.page("signin", func(r *http.Request) (any, error) { return web.ReturnPath(r), nil }, s.signIn)))
	mux.Handle("POST /signout", anyone(s.page("home", nil, s.signOut)))
	mux.Handle("/forgot", anyone(s.page("forgot", nil, s.forgot)))
	mux.Handle("/reset", anyone(s.page("reset", s.peek("reset"), s.reset)))
	mux.Handle("/confirm", anyone(s.page("confirm", s.peek("change:email"), s.confirm("change:email", "email"))))
	mux.Handle("/add", anyone(s.page("confirm", s.peek("add:email"), s.confirm("add:email", "add"))))
	mux.Handle("GET /account", signedIn(s.page("account", func(r *http.Request) (any, error) { return s.users.Tags(me(r)).Members(r.Context()) }, nil)))
	mux.Handle("/account/edit", signedIn(s.page("edit", nil, s.edit)))
	mux.Handle("/account/password", signedIn(s.page("password", nil, s.password)))
	mux.Handle("/account/email", signedIn(s.page("email", nil, s.email)))
	mux.Handle("/account/addresses", signedIn(s.page("addresses", nil, s.addresses)))
	mux.Handle("/account/devices", signedIn(s.page("devices", func(r *http.Request) (any, error) { return s.users.Sessions(r.Context(), me(r)), nil }, s.endDevices)))
	mux.Handle("/admin", s.auth.RequireTag("admin", s.page("admin", s.list, s.setDisabled)))
	return guard(mux)
}

func me(r *http.Request) hints.Hint { return hints.UID(web.Entry(r.Context()).UID()) }

// conceal returns nil for errors that must not be shown. The page after a form is the same for
// everybody, and a session that has already ended counts as ended.
func conceal(err error) error {
	if errors.Is(err, userdb.ErrTooManyAttempts) || errors.Is(err, userdb.ErrNotFound) {
		return nil
	}
	return err
}

func (s *site) signUp(_ http.ResponseWriter, r *http.Request) (string, error) {
	typed := r.PostFormValue("email")
	i, err := s.users.Invite(r.Context(), "email", typed, userdb.Token{Lifetime: 24 * time.Hour}, s.auth.Attempt(r))
	switch {
	case err != nil:
	case i.Registered:
		err = s.send(i.Address, "You have an account", "This address has an account. Sign in, or choose a new password:", "/signin")
	default:
		err = s.send(i.Address, "Welcome", "Choose a name and a password:", "/welcome?token="+i.Secret)
	}
	return "/sent?to=" + url.QueryEscape(typed), conceal(err)
}

func (s *site) invitation(r *http.Request) (any, error) {
	return s.users.PeekInvitation(r.Context(), r.FormValue("token"))
}

func (s *site) welcome(w http.ResponseWriter, r *http.Request) (string, error) {
	i, err := s.users.PeekInvitation(r.Context(), r.PostFormValue("token"))
	if err != nil {
		return "", err
	}
	e, n := userdb.Entry{}, userdb.NewEntry{Password: r.PostFormValue("password"), RequirePassword: true}
	if strings.EqualFold(i.Address, s.admin) {
		n.Tags = []string{"admin"}
	}
	for taken := true; taken; { // another customer number if this one is taken
		n.Facets = schema.Texts("name", r.PostFormValue("name"), "number", fmt.Sprintf("%08d", rand.N(100_000_000)))
		e, err = s.users.AcceptInvitation(r.Context(), r.PostFormValue("token"), n)
		taken = slices.ContainsFunc(web.Problems(err), func(p web.Problem) bool { return p.Field == "number" && p.Rule == "taken" })
	}
	return s.start(w, r, e, err, "welcome")
}

// start signs in the visitor whose entry was just created or changed. done names the message to
// show.
func (s *site) start(w http.ResponseWriter, r *http.Request, e userdb.Entry, err error, done string) (string, error) {
	if err == nil {
		err = s.auth.Start(w, r, e)
	}
	return "/account?done=" + done, err
}

func (s *site) signIn(w http.ResponseWriter, r *http.Request) (string, error) {
	_, err := s.auth.SignIn(w, r, r.PostFormValue("identifier"), r.PostFormValue("password"))
	return web.ReturnPath(r), err
}

func (s *site) signOut(w http.ResponseWriter, r *http.Request) (string, error) {
	return "/?done=signout", s.auth.SignOut(w, r)
}

func (s *site) forgot(_ http.ResponseWriter, r *http.Request) (string, error) {
	typed := r.PostFormValue("identifier")
	secret, to, err := s.users.IssueForVisitor(r.Context(), "email", typed, userdb.Token{Purpose: "reset"}, s.auth.Attempt(r))
	if err == nil {
		err = s.send(to, "New password", "Choose a new password for your account:", "/reset?token="+secret)
	}
	return "/sent?to=" + url.QueryEscape(typed), conceal(err)
}

func (s *site) peek(purpose string) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		_, token, err := s.users.Peek(r.Context(), purpose, r.FormValue("token"))
		return token, err
	}
}

func (s *site) reset(w http.ResponseWriter, r *http.Request) (string, error) {
	e, err := s.users.ResetPassword(r.Context(), "reset", r.PostFormValue("token"), r.PostFormValue("password"))
	return s.start(w, r, e, err, "password")
}

func (s *site) confirm(purpose, done string) func(http.ResponseWriter, *http.Request) (string, error) {
	return func(_ http.ResponseWriter, r *http.Request) (string, error) {
		_, _, err := s.users.Redeem(r.Context(), purpose, r.PostFormValue("token"))
		return "/account?done=" + done, err
	}
}

// edit saves the fields that were changed in the form, if the entry still has the revision that the
// form was made from.
func (s *site) edit(_ http.ResponseWriter, r *http.Request) (string, error) {
	fields := []string{"name", "job"}
	_, err := s.users.Update(r.Context(), me(r), func(e *userdb.Entry) error {
		if e.Rev() != r.PostFormValue("rev") {
			return userdb.ErrConflict
		}
		for _, field := range fields {
			typed, was := r.PostFormValue(field), page{Me: *e, Form: r.Form}.Shown(field)
			if !r.PostForm.Has(field) || typed == was {
				continue
			}
			if e.Drop(field); typed != "" {
				e.Put(field, schema.Text(typed))
			}
		}
		return nil
	})
	for _, field := range fields {
		// The next form shows the stored values, and the visitor's changes.
		if errors.Is(err, userdb.ErrConflict) {
			if r.Form.Get(field) == r.Form.Get("shown-"+field) {
				r.Form.Del(field)
			}
			r.Form.Del("shown-" + field)
		}
	}
	return "/account?done=edit", err
}

func (s *site) password(w http.ResponseWriter, r *http.Request) (string, error) {
	e, err := s.users.ChangePassword(r.Context(), me(r), r.PostFormValue("old"), r.PostFormValue("new"), s.auth.Attempt(r))
	return s.start(w, r, e, err, "password")
}

// email mails a link that changes the address.
func (s *site) email(_ http.ResponseWriter, r *http.Request) (string, error) {
	return s.confirmByMail(r, "change:email", "/confirm", "change your address to ")
}

// confirmByMail mails a link with a token to an address that was typed, and says so in a mail to
// the first address of the account. It asks for the password again: somebody at an open session may
// not be its owner, and an address gives access to the account. The mail goes to the address that
// will be stored, without the spaces that were typed around it. It is sent whether or not somebody
// has the address, which only those who read the mail learn.
func (s *site) confirmByMail(r *http.Request, purpose, path, action string) (string, error) {
	to, e := strings.TrimSpace(r.PostFormValue("email")), web.Entry(r.Context())
	if err := s.auth.Verify(r, r.PostFormValue("password")); err != nil {
		return "", err
	}
	secret, err := s.users.Issue(r.Context(), me(r), userdb.Token{Purpose: purpose, Value: to})
	if err == nil {
		err = s.send(to, "Your new address", "Confirm that this is your address, for the account "+e.Text("name")+". If you did not ask for this, do nothing:", path+"?token="+secret)
	}
	if err == nil {
		err = s.send(e.Text("email"), "New address", "Somebody who gave your password asked to "+action+to+". If it was not you, choose a new password:", "/forgot")
	}
	return "/sent?to=" + url.QueryEscape(to), conceal(err)
}

// addresses mails a link that adds an address, makes another address the first, or removes one. An
// address is added only by those who read its mail. The first one receives the mail of the account:
// it is never removed, and only a verified one takes its place.
func (s *site) addresses(_ http.ResponseWriter, r *http.Request) (string, error) {
	do, address := r.PostFormValue("do"), r.PostFormValue("address")
	if do == "add" {
		return s.confirmByMail(r, "add:email", "/add", "add the address ")
	}
	_, err := s.users.Update(r.Context(), me(r), func(e *userdb.Entry) error {
		first, reason := e.Text("email"), ""
		switch {
		case do == "first" && e.VerifiedText("email", address):
			e.PutFirst("email", address)
		case do == "first":
			reason = "this address is not verified"
		case do == "remove":
			if e.DropText("email", address); e.Text("email") != first {
				reason = "make another address the first before you remove this one"
			}
		}
		if reason != "" {
			return &userdb.FieldError{Err: userdb.ErrInvalid, Rule: "first", Reason: reason}
		}
		return nil
	})
	return "/account/addresses?done=" + url.QueryEscape(do), err
}

func (s *site) endDevices(_ http.ResponseWriter, r *http.Request) (string, error) {
	if r.PostFormValue("all") != "" {
		_, err := s.users.EndSessions(r.Context(), me(r))
		return "/signin?done=everywhere", err
	}
	return "/account/devices?done=device", conceal(s.users.EndSessionID(r.Context(), me(r), r.PostFormValue("id")))
}

// list returns a page of accounts whose names begin with the text searched for, preceded by the
// account that has this text as an identifier.
func (s *site) list(r *http.Request) (any, error) {
	q := strings.TrimSpace(r.FormValue("q"))
	p, err := s.users.Page(r.Context(), userdb.Query{Order: "name", Prefix: strings.ToLower(q), Limit: 20, After: r.FormValue("after"), Before: r.FormValue("before")})
	if errors.Is(err, userdb.ErrCursor) {
		err = nil // an invalid position: show an empty page
	}
	if e, findErr := s.users.Find(r.Context(), hints.Any(q)); err == nil && findErr == nil {
		p.Entries = slices.DeleteFunc(p.Entries, func(o userdb.Entry) bool { return o.UID() == e.UID() })
		p.Entries = slices.Insert(p.Entries, 0, e)
	}
	return map[string]any{"Q": q, "After": r.FormValue("after"), "Page": p}, err
}

func (s *site) setDisabled(_ http.ResponseWriter, r *http.Request) (string, error) {
	set := s.users.Disable
	if r.PostFormValue("do") == "enable" {
		set = s.users.Enable
	}
	return "/admin?" + r.URL.RawQuery + "&done=" + url.QueryEscape(r.PostFormValue("do")), set(r.Context(), hints.UID(r.PostFormValue("uid")))
}
