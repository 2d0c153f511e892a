package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// Flows are the pages that every site with accounts has: for signing up, signing in with one or two
// steps and signing out, for resetting and changing a password, for changing the address, and for
// second factors, further addresses and devices. An application sets the fields, calls Register,
// and adds pages of its own with Page, Require and RequireTag. Do not change the fields after
// Register. Only Auth.Users, Mail and Base must be set.
type Flows struct {
	Auth
	// Mail sends the mails. Close it when the server has ended.
	Mail *MailQueue
	// Base is what links in mails begin with, such as https://example.com. If the site is under a
	// path, such as /shop, all Paths begin with it, and Base does not have it. Never take Base from
	// a request.
	Base string
	// Site is the name of the site. If "", it is Accounts.
	Site string
	// Render shows a page. If nil, it is RenderTemplates(Templates()).
	Render func(w http.ResponseWriter, r *http.Request, p Page)
	// SignUp says how visitors get an account.
	SignUp SignUp
	// Fields are the facets that visitors type when they sign up, besides the address.
	Fields []Field
	// New completes an account that a visitor is about to create, with facets and tags that the
	// visitor does not type. If another account has one of the facets that New set, New is called
	// again. With SignUpAtOnce nobody has verified the address of the invitation: grant nothing
	// because of it, except tags, which RequireTag ignores until that address is verified.
	New func(r *http.Request, i userdb.Invitation, n *userdb.NewEntry) error
	// Address is the facet that holds addresses. If "", it is email.
	Address string
	// Identifier labels the input for an identifier. If "", it is "E-mail address or name".
	Identifier string
	// Providers are other providers with which visitors can sign in; package web/oidc sets them.
	Providers []Provider
	// Languages are the languages of the pages and mails, each with a catalogue in Catalogues. The
	// Accept-Language header of a request chooses one of them, and the first is the default. If
	// there are none, everything is in English, except for the few words with which Protect refuses
	// a request: these are in the language of the visitor.
	Languages []string
	// Language chooses the language for a request. If nil, Languages and the request do.
	Language func(r *http.Request) string
	// Links returns the linked accounts of an entry; package web/oidc sets it.
	Links func(e userdb.Entry) []LinkedIdentity
	// Passkeys, if not nil, lets visitors use passkeys; package passkey/pages sets it.
	Passkeys Passkeys
	// Brief, if it has a Lifetime, lets visitors choose at the sign-in to stay signed in. Those who
	// do get a session as Session says. All others get one as Brief says, whose cookie ends with
	// the browser. Without Brief, visitors are not asked and stay signed in. A copy of Auth that is
	// made before Register does not know Brief.
	Brief userdb.SessionOptions
	// Paths are where the pages are. If it is the zero Paths, it is DefaultPaths.
	Paths Paths
}

// SignUp says how visitors get an account.
type SignUp int

const (
	SignUpClosed SignUp = iota // visitors cannot sign up
	SignUpByMail               // a link in a mail leads to the page that creates the account
	SignUpAtOnce               // the page creates the account, whose address a mail then verifies
)

// Paths are the paths of pages. A page without a path does not exist. Home and Account are pages of
// the application; Account is shown after a visitor has signed in.
type Paths struct {
	Home, Account             string
	SignUp, Sent, Welcome     string
	Prove                     string // verifies the address of an account that was created at once
	SignIn, Code, SignOut     string // Code asks for the second step
	Forgot, Reset             string
	Password, Verify, Devices string
	Email, Confirm            string // change the address
	Addresses, Add            string // further addresses
	With, Links               string // With is for package web/oidc; Links shows linked accounts
	Security                  string // second factors, and linked accounts
	Passkey, Script           string // challenges for passkeys, and their script
	Style                     string // the style sheet of the default templates
}

// DefaultPaths are the paths of all pages.
var DefaultPaths = Paths{
	Home: "/", Account: "/account", SignUp: "/signup", Sent: "/sent", Welcome: "/welcome", Prove: "/prove", SignIn: "/signin", Code: "/signin/code", SignOut: "/signout",
	Forgot: "/forgot", Reset: "/reset", Password: "/account/password", Verify: "/account/verify", Devices: "/account/devices",
	Email: "/account/email", Confirm: "/confirm", Addresses: "/account/addresses", Add: "/add",
	Security: "/account/security", With: "/signin/with", Links: "/account/links", Style: "/pages/style.css",
	Passkey: "/passkey", Script: "/pages/passkey.js",
}

// invitationLifetime is how long a link to sign up is valid.
const invitationLifetime = 24 * time.Hour

// maxNew limits the calls of Flows.New for one account.
const maxNew = 10

// setDefaults gives fields that are not set their default values.
func (f *Flows) setDefaults() {
	if f.Paths == (Paths{}) {
		f.Paths = DefaultPaths
	}
	f.Address, f.Site = cmp.Or(f.Address, "email"), cmp.Or(f.Site, "Accounts")
	f.Identifier = cmp.Or(f.Identifier, "E-mail address or name")
	f.SignInPath, f.VerifyPath = cmp.Or(f.SignInPath, f.Paths.SignIn), cmp.Or(f.VerifyPath, f.Paths.Verify)
	f.FactorsPath = cmp.Or(f.FactorsPath, f.Paths.Security)
	if f.Brief.Lifetime > 0 {
		f.brief = &f.Brief
	}
	if f.Render == nil {
		f.Render = RenderTemplates(Templates())
	}
	if f.Failed == nil {
		f.Failed = func(w http.ResponseWriter, r *http.Request, err error) {
			if f.isProgram(r) {
				WriteProblem(w, f.forPage(r), err)
				return
			}
			f.failurePage(err).ServeHTTP(w, r)
		}
	}
	f.denied = Protect(f.failurePage(errDenied))
	// A site's own page to sign in or to verify does not know of forms that it carries.
	if f.SignInPath == f.Paths.SignIn {
		f.ended = f.interrupted("signin", f.Paths.SignIn, errEnded)
	}
	if f.Paths.Verify != "" && f.VerifyPath == f.Paths.Verify {
		f.paused = f.interrupted("verify", f.Paths.Verify, errPaused)
	}
}

// failurePage returns a handler of the page that shows why a request failed.
func (f *Flows) failurePage(err error) http.Handler {
	return f.Page("gone", func(*http.Request) (any, error) { return nil, err }, nil)
}

// Register adds the pages to mux, and sets fields of f that are not set. Call it before Page,
// Require and RequireTag, and wrap mux in Protect. It panics if Base is not a scheme and a host. It
// also panics if the schema does not say that Address is an identifier that holds mail addresses:
// otherwise mails would go to whatever visitors type, and nobody would have to verify it.
func (f *Flows) Register(mux *http.ServeMux) {
	f.setDefaults()
	if field := f.Users.Schema().Fields[f.Address]; !field.Role.Has(schema.RoleSecondary) || !field.HasAddresses() {
		panic(fmt.Sprintf("web: Flows.Address: the schema does not declare the field %q as an identifier of the kind email", f.Address))
	}
	if u, err := url.Parse(f.Base); err != nil || u.Host == "" || f.Base != u.Scheme+"://"+u.Host {
		panic(fmt.Sprintf("web: Flows.Base: want a scheme and a host without a path, such as https://example.com, not %q", f.Base))
	}
	add := func(method, path string, wrap func(http.Handler) http.Handler, h http.Handler) {
		if path != "" {
			mux.Handle(method+path, Protect(wrap(h)))
		}
	}
	p, anyone, signedIn := f.Paths, f.anyone, f.Require
	if p.Style != "" {
		mux.HandleFunc("GET "+p.Style, func(w http.ResponseWriter, r *http.Request) {
			http.ServeFileFS(w, r, files, "pages/style.css")
		})
	}
	if f.SignUp != SignUpClosed {
		signUp := map[SignUp]func(http.ResponseWriter, *http.Request) (string, error){SignUpByMail: f.signUp, SignUpAtOnce: f.signUpAtOnce}
		add("", p.SignUp, anyone, f.Page("signup", nil, signUp[f.SignUp]))
		add("", p.Welcome, anyone, f.Page("welcome", f.invitation, f.welcome))
		add("", p.Prove, anyone, f.Page("prove", func(r *http.Request) (any, error) { return f.peekProof(r) }, f.prove))
	}
	add("GET ", p.Sent, anyone, f.Page("sent", func(r *http.Request) (any, error) { return r.FormValue("to"), nil }, nil))
	returnTo := func(r *http.Request) (any, error) { return ReturnPath(r), nil }
	add("", p.SignIn, anyone, f.Page("signin", returnTo, f.signIn))
	add("", p.Code, f.awaitsCode, f.Page("code", returnTo, f.code))
	add("POST ", p.SignOut, anyone, f.Page("gone", nil, f.signOut))
	add("", p.Forgot, anyone, f.Page("forgot", nil, f.forgot))
	add("", p.Reset, anyone, f.Page("reset", f.peek("reset"), f.reset))
	add("", p.Confirm, anyone, f.Page("confirm", f.peekConfirming(userdb.PurposeChange+f.Address), f.confirm(userdb.PurposeChange+f.Address, "email")))
	add("", p.Add, anyone, f.Page("add", f.peekConfirming("add:"+f.Address), f.confirm("add:"+f.Address, "add")))
	// If an entry has a second factor, the store changes its password, and the page email changes
	// its address, only for visitors who took both steps recently.
	twoSteps := func(next http.Handler) http.Handler {
		return f.verifiedRecently(securityAge, func(r *http.Request) bool { return r.Method != http.MethodPost && ownLevel(Entry(r.Context())) == 2 }, next)
	}
	add("", p.Password, twoSteps, f.Page("password", nil, f.password))
	add("", p.Security, f.requireForSecurity, f.Page("security", f.factors, f.security))
	add("", p.Verify, signedIn, f.Page("verify", returnTo, f.verify))
	add("", p.Email, twoSteps, f.Page("email", nil, f.email))
	add("", p.Addresses, signedIn, f.Page("addresses", nil, f.addresses))
	add("", p.Devices, signedIn, f.Page("devices", func(r *http.Request) (any, error) { return f.Users.Sessions(r.Context(), visitorHint(r)), nil }, f.endDevices))
}

// Page returns a handler that shows a page with the data that load returns. If the page's form is
// sent to the same path, do processes it. It returns the path to redirect to, or an error that says
// what is wrong with the form; then the page is shown again. load and do may be nil. If load
// returns an error and no data, the page "gone" shows what is wrong. If the store does not answer
// and load fails after a form was sent, the page "again" shows what is wrong, and keeps what was
// entered. Wrap the handler in Visitor, Require or RequireTag.
func (f *Flows) Page(name string, load func(*http.Request) (any, error), do func(http.ResponseWriter, *http.Request) (string, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = f.forPage(r)
		_ = r.ParseForm() // Protect has refused requests for which this fails
		err, posted := failure(r), r.Method == http.MethodPost
		if posted && err == nil {
			err = CheckOwner(r)
		}
		if posted && do != nil && err == nil {
			var to string
			if to, err = do(w, r); err == nil {
				http.Redirect(w, r, to, http.StatusSeeOther)
				return
			}
		}
		if posted && errors.Is(err, userdb.ErrConflict) {
			dropUntouched(r.Form)
		}
		p := f.newPage(name, r)
		var missing error // what load returns
		if other, is := errors.AsType[*otherPage](err); is {
			p.Name, p.Data, err, p.sendTo = other.name, other.data, other.err, other.sendTo
			if other.me.Key().IsValid() {
				p.Me = other.me
			}
			if other.kept != nil {
				p.kept = other.kept
			}
		} else if load != nil && !errors.Is(err, userdb.ErrNotFound) {
			ctx, cancel := r.Context(), func() {}
			if isDown(err) { // the store probably still does not answer
				ctx, cancel = context.WithTimeout(ctx, time.Second)
			}
			defer cancel() // Data may read the store until the page has been shown
			p.Data, missing = load(r.WithContext(ctx))
			if !isDown(err) {
				err = cmp.Or(missing, err)
			}
		}
		if p.Problems = problemsIn(p.Language, err); err != nil {
			p.Status = Status(err)
			setRetryAfter(w, err)
		}
		switch down := isDown(err); {
		case down && posted && (missing != nil || name == "gone"):
			if p.Name = "gone"; hasForm(r) { // other bodies, such as files, were not read
				p.Name, p.Data = "again", keptInputs(r)
			}
		case down && posted: // the page itself shows what was entered
		case down, p.Status == http.StatusGone, errors.Is(err, errOther), missing != nil && p.Data == nil:
			p.Name = "gone"
		}
		if p.Status == http.StatusServiceUnavailable {
			slog.WarnContext(r.Context(), "userdb: a page was not shown", slog.String("path", r.URL.Path), slog.Any("error", err))
		}
		if r.Form.Has("token") {
			// Requests from this page do not carry its address, not even to this site, where a
			// proxy would log it.
			w.Header().Set("Referrer-Policy", "strict-origin")
		}
		f.allowScript(w, p.Name)
		f.Render(w, r, p)
	})
}

// forPage returns a request whose context has the language of pages and mails, and the visitor's
// network address, as withOrigin sets it.
func (f *Flows) forPage(r *http.Request) *http.Request {
	return f.withOrigin(r.WithContext(context.WithValue(r.Context(), languageKey{}, f.language(r))))
}

// isDown reports whether the page of an error has status 503: the store has not answered or may not
// have made a change, the queue of mails is full, or too many visitors are signing in.
func isDown(err error) bool { return Status(err) == http.StatusServiceUnavailable }

type failureKey struct{}

// failure returns the error that leaves it unknown whether the sender of a form is signed in, or
// nil.
func failure(r *http.Request) error {
	err, _ := r.Context().Value(failureKey{}).(error)
	return err
}

// anyone does what Visitor does. If the store does not answer and the request has a form, it still
// calls next, so that the visitor gets the form back.
func (f *Flows) anyone(next http.Handler) http.Handler {
	a := f.Auth
	a.Failed = func(w http.ResponseWriter, r *http.Request, err error) {
		if r.Method == http.MethodPost && !f.isProgram(r) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), failureKey{}, err)))
			return
		}
		f.fail(w, r, err)
	}
	return a.Visitor(next)
}

// newPage returns a page for the sender of a request, without data.
func (f *Flows) newPage(name string, r *http.Request) Page {
	sc := f.Users.Schema()
	p := Page{
		Name: name, Status: http.StatusOK, Me: Entry(r.Context()), Session: Session(r.Context()), Form: r.Form,
		Site: f.Site, Paths: f.Paths, Fields: f.Fields, Identifier: f.Identifier, Address: f.Address,
		MaxAddresses: f.maxAddresses(), CanSignUp: f.SignUp != SignUpClosed && f.Paths.SignUp != "", AtOnce: f.SignUp == SignUpAtOnce,
		Providers: f.Providers, Passkeys: f.Passkeys != nil, CanStay: f.brief != nil,
		CanAddFactors: f.Users.AllowsFactors(),
		Language:      Language(r.Context()), MinPassword: max(sc.Policy().Min, 1),
		declared: sc.Fields, from: name, kept: carrierInputs(r),
	}
	if f.Links != nil {
		p.Links = f.Links(p.Me)
	}
	return p
}

// errDenied means that a visitor lacks the tag of a page.
var errDenied = coded.New(userdb.CodeScope, "the visitor lacks a tag")

// RequireRecent calls next for visitors who proved within maxAge who they are: by their password,
// and also by a code if they have a second factor. It asks others for these at Paths.Verify. Wrap
// it in Require.
func (f *Flows) RequireRecent(maxAge time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case VerifiedWithin(r.Context(), maxAge):
			next.ServeHTTP(w, r)
		case canInterrupt(r) && f.paused != nil:
			f.paused.ServeHTTP(w, r)
		default:
			redirectAndReturn(w, r, f.Paths.Verify)
		}
	})
}

// statuses maps the rules of problems to the statuses of pages. The status for all other rules is
// 422.
var statuses = map[string]int{
	"other": http.StatusForbidden, "ended": http.StatusForbidden, "paused": http.StatusForbidden,
	"gone": http.StatusGone, "busy": http.StatusServiceUnavailable, "unavailable": http.StatusServiceUnavailable,
	"unknown": http.StatusServiceUnavailable, "conflict": http.StatusConflict, "wait": http.StatusTooManyRequests, "verify": http.StatusForbidden, "denied": http.StatusForbidden,
}

// Status returns the HTTP status of a page that shows Problems(err). It is 200 for nil.
func Status(err error) int {
	if err == nil {
		return http.StatusOK
	}
	return cmp.Or(statuses[Problems(err)[0].Rule], http.StatusUnprocessableEntity)
}

// maxAddresses returns how many addresses an entry may have.
func (f *Flows) maxAddresses() int {
	return max(f.Users.Schema().Fields[f.Address].Many, 1)
}

func visitorHint(r *http.Request) hints.Hint { return hints.UID(Entry(r.Context()).UID()) }

// conceal returns nil for errors that must not be shown. The page after a form is the same for
// everybody, and a session that has already ended counts as ended.
func conceal(err error) error {
	if errors.Is(err, userdb.ErrTooManyAttempts) || errors.Is(err, userdb.ErrNotFound) {
		return nil
	}
	return err
}

func (f *Flows) sentPath(entered string) string {
	return f.Paths.Sent + "?to=" + url.QueryEscape(strings.TrimSpace(entered))
}

func (f *Flows) link(path, secret string) string { return f.Base + path + "?token=" + secret }

func (f *Flows) signUp(_ http.ResponseWriter, r *http.Request) (string, error) {
	slots, err := f.Mail.reserve(1)
	if err != nil {
		return "", err
	}
	defer slots.leave(r.Context())
	entered := r.PostFormValue("email")
	i, err := f.Users.Invite(r.Context(), f.Address, entered, userdb.Token{Lifetime: invitationLifetime}, f.Attempt(r))
	if err == nil {
		f.mailInvitation(r.Context(), slots, i, MailWelcome)
	} else {
		slots.giveBack()
	}
	return f.sentPath(entered), conceal(err)
}

func (f *Flows) invitation(r *http.Request) (any, error) {
	return f.Users.PeekInvitation(r.Context(), r.FormValue("token"))
}

func (f *Flows) welcome(w http.ResponseWriter, r *http.Request) (string, error) {
	r = withChoice(r)
	secret := r.PostFormValue("token")
	i, err := f.Users.PeekInvitation(r.Context(), secret)
	var e userdb.Entry
	if err == nil {
		e, err = f.createEntered(r, i, func(n userdb.NewEntry) (userdb.Entry, error) {
			return f.Users.AcceptInvitation(r.Context(), secret, n)
		})
	}
	if errors.Is(err, userdb.ErrNotFound) {
		return f.afterDoubleClick(w, r, secret, func(e userdb.Entry) string {
			if !f.hasEntered(r, e) || slices.ContainsFunc(f.Fields, func(field Field) bool {
				return r.PostFormValue(field.Name) == "" && e.Text(field.Name) != "" && f.Users.Schema().Codec(field.Name) != schema.CodecBoolean
			}) {
				return "welcome-twice"
			}
			return "welcome"
		})
	}
	return f.enter(w, r, e, err, "welcome")
}

// doubleClick is how long after the first form a second one counts as sent by the same visitor.
const doubleClick = time.Minute

// afterDoubleClick signs in a visitor whose link has just been used, if the form has the password
// that was set: after a double click, browsers show the answer to the second form. This is a login
// like any other. For everybody else the link is no longer valid. done names the message to show.
func (f *Flows) afterDoubleClick(w http.ResponseWriter, r *http.Request, secret string, done func(userdb.Entry) string) (string, error) {
	uid, _ := token.SecretUID(secret)
	return f.signInOnceMore(w, r, hints.UID(uid), "", r.PostFormValue("password"), done)
}

// passwordSet returns the name of the message after a new password, for afterDoubleClick.
func passwordSet(userdb.Entry) string { return "password" }

// signInOnceMore does what afterDoubleClick does, for the account that h identifies. The visitor
// signs in with identifier or, if that is "", with the address of the account. If done returns "",
// the password is not that of the account, or that was not set just now, the error is ErrNotFound.
func (f *Flows) signInOnceMore(
	w http.ResponseWriter, r *http.Request, h hints.Hint, identifier, password string, done func(userdb.Entry) string,
) (string, error) {
	e, err := f.Users.Find(r.Context(), h)
	to := ""
	if err == nil && (password == "" || time.Since(e.PasswordChanged()).Abs() > doubleClick || done(e) == "") {
		err = userdb.ErrNotFound
	}
	if err == nil {
		_, err = f.Auth.SignIn(w, r, cmp.Or(identifier, e.Text(f.Address)), password)
		to, err = f.afterFirstStep(f.Paths.Account+"?done="+done(e), err)
	}
	if err != nil && !errors.Is(err, userdb.ErrUnavailable) {
		err = userdb.ErrNotFound
	}
	return to, err
}

// createEntered calls create with an account that has what the visitor entered and what New sets.
// It calls New and create again if somebody has a facet that New set.
func (f *Flows) createEntered(
	r *http.Request, i userdb.Invitation, create func(userdb.NewEntry) (userdb.Entry, error),
) (e userdb.Entry, err error) {
	for range maxNew {
		account := userdb.NewEntry{Facets: schema.Facets{}, Password: r.PostFormValue("password"), RequirePassword: true}
		declared := f.Users.Schema()
		for _, field := range f.Fields {
			if entered := enteredIn(r, declared, field.Name); entered != "" {
				account.Facets[field.Name] = parseEntered(declared, field.Name, entered)
			}
		}
		if f.New != nil {
			if found := f.New(r, i, &account); found != nil {
				account.Problems = found
			}
		}
		if e, err = create(account); err == nil || !f.onlyGeneratedTaken(err) {
			break
		}
	}
	return e, err
}

// onlyGeneratedTaken reports whether the only problems are that somebody has a facet that New made.
func (f *Flows) onlyGeneratedTaken(err error) bool {
	return !slices.ContainsFunc(Problems(err), func(p Problem) bool {
		entered := slices.ContainsFunc(f.Fields, func(field Field) bool { return field.Name == p.Field })
		return p.Rule != "taken" || p.Field == "" || p.Field == f.Address || entered
	})
}

// enter signs in the visitor whose entry was just created or whose password was just set. done
// names the message to show.
func (f *Flows) enter(w http.ResponseWriter, r *http.Request, e userdb.Entry, err error, done string) (string, error) {
	if err == nil {
		err = f.Start(w, r, e)
	}
	return f.afterFirstStep(f.Paths.Account+"?done="+done, err)
}

// afterFirstStep returns the path that follows the first step of a sign-in, a password or a link.
// Every flow that takes such a step ends here. If the account has a second factor, the path is that
// of the page that asks for a code; that page then leads to target.
func (f *Flows) afterFirstStep(target string, err error) (string, error) {
	if errors.Is(err, userdb.ErrNotVerified) && f.Paths.Verify != "" { // from ChangePassword
		return withReturn(f.Paths.Verify, f.Paths.Password), nil
	}
	if refused, is := errors.AsType[*userdb.FactorError](err); is && refused.Ticket != "" && f.Paths.Code != "" {
		return withMethods(withReturn(f.Paths.Code, target), refused.Methods), nil
	}
	return target, err
}

// awaitsCode calls next for visitors who have taken the first step of a sign-in, and sends others
// to the page to sign in.
func (f *Flows) awaitsCode(next http.Handler) http.Handler {
	returnTo := func(r *http.Request) (any, error) { return ReturnPath(r), nil }
	again := f.Page("code", returnTo, func(_ http.ResponseWriter, r *http.Request) (string, error) { return f.signInAgain(r) })
	return f.anyone(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case f.CookieValue(r, f.ticketCookie()) != "":
			next.ServeHTTP(w, r)
		case r.Method == http.MethodPost:
			again.ServeHTTP(w, r)
		default:
			to, _ := f.signInAgain(r) // it carries no form
			http.Redirect(w, r, to, http.StatusSeeOther)
		}
	}))
}

// code takes the second step of a sign-in.
func (f *Flows) code(w http.ResponseWriter, r *http.Request) (string, error) {
	if showsOtherStep(r) {
		return "", &otherPage{name: "code", data: ReturnPath(r)}
	}
	proof, err := f.proofIn(w, r)
	var e userdb.Entry
	if err == nil {
		e, err = f.Prove(w, r, proof)
	}
	if errors.Is(err, userdb.ErrNotFound) || errors.Is(err, userdb.ErrConflict) {
		return f.signInAgain(r)
	}
	if f.hasPasskey(r) {
		err = ofPasskey(err)
	}
	return f.resume(r, e, ReturnPath(r), err)
}

// proofIn returns the proof in a form for the second step: a code that the visitor entered, or the
// answer of a passkey. If the form has neither, it returns an error, so that this does not count as
// an attempt.
func (f *Flows) proofIn(w http.ResponseWriter, r *http.Request) (userdb.Proof, error) {
	if f.hasPasskey(r) {
		return f.Passkeys.Proof(w, r)
	}
	code, recovery := strings.TrimSpace(r.PostFormValue("code")), strings.TrimSpace(r.PostFormValue("recovery"))
	switch {
	case recovery != "":
		return userdb.RecoveryCode(recovery), nil
	case code != "":
		return userdb.TOTP(code), nil
	}
	return userdb.Proof{}, &userdb.FieldError{Field: "code", Rule: "required", Err: userdb.ErrInvalid, Reason: "no code was entered"}
}

func (f *Flows) signIn(w http.ResponseWriter, r *http.Request) (string, error) {
	r = withChoice(r)
	if f.hasPasskey(r) {
		e, err := f.signInByPasskey(w, r)
		return f.resume(r, e, ReturnPath(r), err)
	}
	password, err := typedPassword(r, "password")
	if err != nil {
		return "", err
	}
	e, err := f.Auth.SignIn(w, r, r.PostFormValue("identifier"), password)
	return f.afterFirstStepOf(r, e, err)
}

func (f *Flows) signOut(w http.ResponseWriter, r *http.Request) (string, error) {
	return f.Paths.Home + "?done=signout", f.Auth.SignOut(w, r)
}

func (f *Flows) forgot(_ http.ResponseWriter, r *http.Request) (string, error) {
	entered := r.PostFormValue("identifier")
	if strings.TrimSpace(entered) == "" {
		return "", &userdb.FieldError{Field: "identifier", Rule: "required", Err: userdb.ErrInvalid, Reason: "nothing was entered"}
	}
	slots, err := f.Mail.reserve(1)
	if err != nil {
		return "", err
	}
	defer slots.leave(r.Context())
	secret, to, err := f.Users.IssueForVisitor(r.Context(), f.Address, entered, userdb.Token{Purpose: "reset"}, f.Attempt(r))
	switch {
	case err == nil:
		slots.fill(r.Context(), Mail{Kind: MailReset, To: to, Link: f.link(f.Paths.Reset, secret)})
	case !errors.Is(err, userdb.ErrNotFound): // limits do not show who has an account
		slots.giveBack()
	}
	return f.sentPath(entered), conceal(err)
}

func (f *Flows) peek(purpose string) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		_, token, err := f.Users.Peek(r.Context(), purpose, r.FormValue("token"))
		return token, err
	}
}

func (f *Flows) reset(w http.ResponseWriter, r *http.Request) (string, error) {
	return f.resetPassword(w, r, "reset")
}

// resetPassword sets a new password for the owner of a token, signs the owner in unless the account
// has a second factor, and mails a notice.
func (f *Flows) resetPassword(w http.ResponseWriter, r *http.Request, purpose string) (string, error) {
	r = withChoice(r)
	secret := r.PostFormValue("token")
	before, _, err := f.Users.Peek(r.Context(), purpose, secret)
	if errors.Is(err, userdb.ErrNotFound) {
		return f.afterDoubleClick(w, r, secret, passwordSet)
	}
	if err != nil {
		return "", err
	}
	// Only for a valid token, so that forged ones do not fill the queue.
	notice, err := f.reserveNotice()
	if err != nil {
		return "", err
	}
	defer notice.giveBack()
	e, err := f.Users.ResetPassword(r.Context(), purpose, secret, r.PostFormValue("password"))
	if errors.Is(err, userdb.ErrNotFound) {
		return f.afterDoubleClick(w, r, secret, passwordSet)
	}
	if made(err) || doneWithoutEntry(err) {
		owner := e
		if !e.Key().IsValid() { // the account has a second factor
			owner = before
		}
		f.mailNotice(r.Context(), notice, f.passwordNotice(owner))
	}
	if visitor := Entry(r.Context()); doneWithoutEntry(err) && visitor.Key().IsValid() && visitor.Key() != before.Key() {
		return f.Paths.SignIn + "?done=reset", nil // the visitor's other account keeps its password
	}
	if doneWithoutEntry(err) {
		return f.Paths.SignIn + "?done=password", nil
	}
	return f.enter(w, r, e, err, "password")
}

// passwordNotice returns the mail that tells the owner of an account of its new password.
func (f *Flows) passwordNotice(e userdb.Entry) Mail {
	return Mail{Kind: MailPassword, Link: f.Base + cmp.Or(f.Paths.Forgot, f.Paths.SignIn), Entry: e}
}

// doneWithoutEntry reports whether a change was made although err is not nil: the entry has a
// second factor, so redeeming a link does not return the entry.
func doneWithoutEntry(err error) bool {
	refused, is := errors.AsType[*userdb.FactorError](err)
	return is && refused.Done && !errors.Is(err, userdb.ErrUnconfirmed)
}

// A Confirming holds what the pages "confirm" and "add" show.
type Confirming struct {
	userdb.Token
	// Account names the account that the address is for, as mails do, unless the visitor is signed
	// in to it. Somebody else may have entered the visitor's address there, and would share the
	// account with a visitor who confirms it.
	Account string
}

func (f *Flows) peekConfirming(purpose string) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		e, token, err := f.Users.Peek(r.Context(), purpose, r.FormValue("token"))
		c := Confirming{Token: token}
		if err == nil && e.Key() != Entry(r.Context()).Key() {
			c.Account = cmp.Or(mailName(e), "–")
		}
		return c, err
	}
}

// confirm spends the link that confirms an address. The message that follows is on the account's
// page only for visitors who are signed in to that account. All others get a page that names the
// account, so that nobody takes what was done for a change of their own account.
func (f *Flows) confirm(purpose, done string) func(http.ResponseWriter, *http.Request) (string, error) {
	peek := f.peekConfirming(purpose)
	return func(_ http.ResponseWriter, r *http.Request) (string, error) {
		found, err := peek(r)
		if err == nil {
			_, _, err = f.Users.Redeem(r.Context(), purpose, r.PostFormValue("token"), userdb.InSession(f.Secret(r)))
		}
		if doneWithoutEntry(err) || errors.Is(err, userdb.ErrNotFound) && f.isConfirmed(r, r.PostFormValue("address")) {
			err = nil
		}
		if c := found.(Confirming); err == nil && c.Account != "" {
			return "", &otherPage{name: "confirmed", data: c}
		}
		return f.Paths.Account + "?done=" + done, err
	}
}

// isConfirmed reports whether the account of a visitor who is signed in, to which the token of a
// form belongs, has an address that is verified. After a double click, the first form has done so.
// Nobody else learns it.
func (f *Flows) isConfirmed(r *http.Request, address string) bool {
	uid, _ := token.SecretUID(r.PostFormValue("token"))
	if uid == "" || uid != Entry(r.Context()).UID() {
		return false
	}
	e, err := f.Users.Find(r.Context(), hints.UID(uid))
	return err == nil && e.VerifiedText(f.Address, address)
}

// maxPasswordNotices limits the notices of new passwords that the owner of an account causes within
// an hour.
const maxPasswordNotices = 20

// typedPassword returns the password in an input of a form. If there is none, as in a form that the
// page "again" has sent, that is no attempt to guess one: the error is a FieldError with the rule
// "required".
func typedPassword(r *http.Request, input string) (string, error) {
	if typed := r.PostFormValue(input); typed != "" {
		return typed, nil
	}
	return "", &userdb.FieldError{Field: input, Rule: "required", Err: userdb.ErrInvalid, Reason: "no password was typed"}
}

// An ownPasswordError is an error about the password of a visitor who is signed in, which is in an
// input of the form. If the password is wrong, the problem is that of the input, and does not say
// that the name may be wrong.
type ownPasswordError struct {
	error
	input string
}

func (e ownPasswordError) Unwrap() error { return e.error }

// ofOwnPassword returns err as an error about the visitor's own password if that was wrong.
func ofOwnPassword(err error, input string) error {
	if userdb.CodeOf(err) == userdb.CodeLogin {
		return ownPasswordError{err, input}
	}
	return err
}

// verifyPassword verifies the visitor's password, which is an input of the form.
func (f *Flows) verifyPassword(r *http.Request) error {
	password, err := typedPassword(r, "password")
	if err != nil {
		return err
	}
	return ofOwnPassword(f.Auth.Verify(r, password), "password")
}

func (f *Flows) password(w http.ResponseWriter, r *http.Request) (string, error) {
	old, err := typedPassword(r, "old")
	if err != nil {
		return "", err
	}
	notice, err := f.reserveNotice()
	if err != nil {
		return "", err
	}
	defer notice.giveBack()
	a := f.Attempt(r)
	a.Session = f.Secret(r)
	e, err := f.Users.ChangePassword(r.Context(), visitorHint(r), old, r.PostFormValue("new"), a)
	limit := Limit{Auth: f.Auth, Name: "password notices", Max: maxPasswordNotices}
	stays := r.WithContext(context.WithoutCancel(r.Context())) // the visitor may have hung up
	if made(err) && !errors.Is(limit.Allow(stays), userdb.ErrTooManyAttempts) {
		f.mailNotice(r.Context(), notice, f.passwordNotice(Entry(r.Context())))
	}
	// After a double click, the first form has changed the password, or changes it now.
	if errors.Is(err, userdb.ErrLogin) || errors.Is(err, userdb.ErrConflict) || errors.Is(err, userdb.ErrNotFound) {
		to, failed := f.signInOnceMore(w, r, visitorHint(r), "", r.PostFormValue("new"), passwordSet)
		if failed == nil {
			return to, nil
		}
	}
	return f.enter(w, r, e, ofOwnPassword(err, "old"), "password")
}

func (f *Flows) verify(w http.ResponseWriter, r *http.Request) (string, error) {
	if showsOtherStep(r) {
		return "", &otherPage{name: "verify", data: ReturnPath(r)}
	}
	return f.resume(r, Entry(r.Context()), ReturnPath(r), f.proveAgain(w, r))
}

// proveAgain verifies a signed-in visitor by what a form has: a password, together with a code if
// the account has a second factor, or a passkey.
func (f *Flows) proveAgain(w http.ResponseWriter, r *http.Request) error {
	if ownLevel(Entry(r.Context())) == 1 {
		return f.verifyPassword(r)
	}
	if f.hasPasskey(r) {
		return f.raiseByPasskey(w, r)
	}
	proof, err := f.proofIn(w, r)
	if err == nil {
		err = f.verifyPassword(r)
	}
	if err == nil {
		_, err = f.Raise(w, r, proof)
	}
	return err
}

// email mails a link that changes the address.
func (f *Flows) email(_ http.ResponseWriter, r *http.Request) (string, error) {
	return f.confirmByMail(r, f.Paths.Email, userdb.PurposeChange+f.Address, f.Paths.Confirm, MailChange, MailChanging)
}

// maxStepsAge is how long ago the owner of an account may have been verified before a change of
// addresses. It is as long as the store allows for a change of factors.
const maxStepsAge = 10 * time.Minute

// needsSteps reports whether a visitor has a second factor and must take both steps again before a
// change of addresses: somebody who reads the mailbox of an account can get into the account.
func needsSteps(r *http.Request) bool {
	return ownLevel(Entry(r.Context())) == 2 && !VerifiedWithin(r.Context(), maxStepsAge)
}

// askForSteps returns the path of the page that asks visitors to prove again who they are, and then
// returns to a path.
func (f *Flows) askForSteps(to string) (string, error) {
	if f.Paths.Verify == "" {
		return "", userdb.ErrNotVerified
	}
	return withReturn(f.Paths.Verify, to), nil
}

// confirmByMail mails a link with a token to an address that was entered, and a notice to the
// addresses of the account. It asks for the password again, or for both steps if the account has a
// second factor: somebody at an open session may not be the owner of the account, and an address
// gives access to it. The mail goes to the address that will be stored, without the spaces that
// were entered around it. It is sent whether or not another account has the address: only those who
// read the mail learn that. form is the path of the page, and path the path of the link.
func (f *Flows) confirmByMail(r *http.Request, form, purpose, path string, link, notice MailKind) (string, error) {
	ctx, to, e := r.Context(), strings.TrimSpace(r.PostFormValue("email")), Entry(r.Context())
	if needsSteps(r) {
		return f.askForSteps(form + "?email=" + url.QueryEscape(to))
	}
	if ownLevel(e) == 1 {
		if err := f.verifyPassword(r); err != nil {
			return "", err
		}
	}
	slots, err := f.Mail.reserve(1 + f.noticeSlots())
	if err != nil {
		return "", err
	}
	defer slots.giveBack()
	secret, err := f.Users.Issue(ctx, visitorHint(r), userdb.Token{Purpose: purpose, Value: to})
	if err == nil {
		slots.fill(ctx, Mail{Kind: link, To: to, Link: f.link(path, secret), Entry: e})
		f.mailNotice(ctx, slots, Mail{Kind: notice, Link: f.Base + cmp.Or(f.Paths.Forgot, f.Paths.SignIn), Address: to, Entry: e})
	}
	return f.sentPath(to), conceal(err)
}

// maxAddressChanges limits how often the owner of an account may change the order of addresses, or
// remove one, within an hour: each time, the owner gets a notice.
const maxAddressChanges = 20

// addressMails are the notices of what a visitor did with one of the addresses of an account.
var addressMails = map[string]MailKind{"first": MailFirst, "remove": MailRemoved}

// addresses does one of three things: it mails a link that adds an address, makes another address
// the first, or removes an address. An address is added only by those who read its mail. The first
// one receives the mail of the account: it is never removed, and only a verified one can replace
// it.
func (f *Flows) addresses(_ http.ResponseWriter, r *http.Request) (string, error) {
	do, address := r.PostFormValue("do"), r.PostFormValue("address")
	if do == "add" {
		return f.confirmByMail(r, f.Paths.Addresses, "add:"+f.Address, f.Paths.Add, MailAdd, MailAdding)
	}
	if !VerifiedWithin(r.Context(), maxStepsAge) {
		return f.askForSteps(f.Paths.Addresses)
	}
	if err := (Limit{Auth: f.Auth, Name: "addresses", Max: maxAddressChanges}).Allow(r); err != nil {
		return "", err
	}
	notice, err := f.reserveNotice()
	if err != nil {
		return "", err
	}
	defer notice.giveBack()
	var before, after userdb.Entry
	_, err = f.Users.Update(r.Context(), visitorHint(r), func(e *userdb.Entry) error {
		before = *e
		err := f.changeAddress(e, do, address)
		after = *e
		return err
	})
	if made(err) && !slices.Equal(after.Texts(f.Address), before.Texts(f.Address)) {
		about := after.Text(f.Address)
		for _, text := range before.Texts(f.Address) {
			if !slices.Contains(after.Texts(f.Address), text) {
				about = text // as stored: the visitor may have sent another spelling
			}
		}
		f.mailNotice(r.Context(), notice, Mail{Kind: addressMails[do], Link: f.Base + cmp.Or(f.Paths.Forgot, f.Paths.SignIn), Address: about, Entry: before})
	}
	return f.Paths.Addresses + "?done=" + url.QueryEscape(do), err
}

// changeAddress makes a verified address of an entry the first, or removes an address.
func (f *Flows) changeAddress(e *userdb.Entry, do, address string) error {
	first, reason := e.Text(f.Address), ""
	switch {
	case do == "first" && e.VerifiedText(f.Address, address):
		e.PutFirst(f.Address, address)
	case do == "first":
		reason = "this address is not verified"
	case do == "remove":
		if e.DropText(f.Address, address); e.Text(f.Address) != first {
			reason = "make another address the first before you remove this one"
		}
	}
	if reason != "" {
		return &userdb.FieldError{Err: userdb.ErrInvalid, Rule: "first", Reason: reason}
	}
	return nil
}

func (f *Flows) endDevices(_ http.ResponseWriter, r *http.Request) (string, error) {
	if r.PostFormValue("all") != "" {
		_, err := f.Users.EndSessions(r.Context(), visitorHint(r))
		return f.Paths.SignIn + "?done=everywhere", err
	}
	return f.Paths.Devices + "?done=device", conceal(f.Users.EndSessionID(r.Context(), visitorHint(r), r.PostFormValue("id")))
}

// Touched returns those of fields that a visitor changed in a form. The form has a hidden input
// shown-FIELD with the value that the input of the field showed, or "" for a checkbox that was not
// ticked. For a set it has one with "", so that an empty set has one as well, and one for each
// member, in the order of the checkboxes. A field without shown-FIELD is touched. Touched returns
// all fields of a request that has no form, such as one with JSON. Pass the result to Decode, so
// that a form that was open while somebody else made a change undoes nothing in the fields that the
// visitor left alone.
func Touched(r *http.Request, fields ...string) (touched []string) {
	if !hasForm(r) || r.ParseForm() != nil {
		return fields
	}
	for _, field := range fields {
		if shown, known := r.PostForm["shown-"+field]; !known || !sameInputs(r.PostForm[field], shown) {
			touched = append(touched, field)
		}
	}
	return touched
}

// parseEntered returns the value that a visitor entered for a facet, or the text if the codec
// cannot parse it: Create or Update then reports that, together with all other problems.
func parseEntered(t schema.Type, field, entered string) schema.Value {
	v, err := schema.ParseText(t.Codec(field), entered)
	if err != nil {
		return schema.Text(entered)
	}
	return v
}

// SaveForm saves the facets that a visitor who is signed in changed in a form: texts, numbers,
// dates, and booleans, as the inputs of Page.Field send them. Beside an input for each field, the
// form has a hidden input shown-FIELD with the value that it showed, and a hidden input rev with
// the revision of the entry. Fields that were not touched, or that are not named, are not written.
// If a field has several values, the form changes only the first. If the entry has changed since,
// and lacks something that the form asks for, the error is ErrConflict, and Page.Field returns what
// is stored now for fields that were not touched.
//
// Do not name the field of addresses. The page at Paths.Email changes it, and asks for the password
// first: somebody at an open session who could replace the address could take over the account.
func (f *Flows) SaveForm(r *http.Request, fields ...string) (userdb.Entry, error) {
	declared := f.Users.Schema()
	e, err := f.Users.Update(r.Context(), visitorHint(r), func(e *userdb.Entry) error {
		isCurrent := e.Rev() == r.PostFormValue("rev")
		for _, field := range fields {
			if !isTouched(r, declared, *e, field) {
				continue
			}
			entered := enteredIn(r, declared, field)
			if !isCurrent && e.Text(field) == parseEntered(declared, field, entered).Text() {
				continue // after a double click, the first form has saved it
			}
			if !isCurrent {
				return userdb.ErrConflict
			}
			switch texts := e.Texts(field); {
			case entered != "":
				e.Put(field, parseEntered(declared, field, entered))
			case len(texts) > 1:
				e.DropText(field, texts[0])
			default:
				e.Drop(field)
			}
		}
		return nil
	})
	if errors.Is(err, userdb.ErrConflict) {
		dropUntouched(r.Form)
	}
	return e, err
}

// dropUntouched removes from a form the inputs that the visitor has not changed, and all inputs
// shown-FIELD, so that Page.Field and Page.Shown return what is stored now.
func dropUntouched(form url.Values) {
	for _, name := range slices.Collect(maps.Keys(form)) {
		field, is := strings.CutPrefix(name, "shown-")
		switch {
		case !is:
			continue
		case sameInputs(form[field], form[name]):
			form.Del(field)
		case !form.Has(field):
			form.Set(field, "") // browsers send nothing for a box that is not ticked
		}
		form.Del(name)
	}
}

// sameInputs reports whether inputs have the values that were shown, ignoring empty ones.
func sameInputs(sent, shown []string) bool {
	isEmpty := func(text string) bool { return text == "" }
	return slices.Equal(slices.DeleteFunc(slices.Clone(sent), isEmpty), slices.DeleteFunc(slices.Clone(shown), isEmpty))
}

// enteredIn returns what a visitor entered for a field in a form. For a boolean it is "true" or
// "false", as browsers send nothing for a box that is not ticked.
func enteredIn(r *http.Request, declared schema.Type, field string) string {
	entered := oneKindOfLines(r.PostFormValue(field))
	if declared.Codec(field) != schema.CodecBoolean {
		return entered
	}
	if entered == "on" || entered == "1" {
		return "true"
	}
	return cmp.Or(entered, "false")
}

// oneKindOfLines returns a text with \n as line breaks. Browsers send \r\n, whatever line breaks
// the page contains.
func oneKindOfLines(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// isTouched reports whether a visitor changed a field in a form, compared with what the form
// showed, or else with the entry.
func isTouched(r *http.Request, declared schema.Type, e userdb.Entry, field string) bool {
	before := oneKindOfLines(shown(r.Form, declared.Codec(field), e, field))
	entered := enteredIn(r, declared, field)
	if declared.Codec(field) == schema.CodecBoolean {
		return (r.PostForm.Has(field) || r.Form.Has("shown-"+field)) && entered != cmp.Or(before, "false")
	}
	return r.PostForm.Has(field) && entered != before
}
