package console

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"html/template"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/passkey"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/serve/internal/figures"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// Options configure a Console.
type Options struct {
	// View returns the namespace that is served, opened with the schema in force.
	View func(ctx context.Context) (*userdb.DB, error)
	// Namespace is the path of that namespace, as recordkey.ParseNamespace reads it. Operators,
	// keys and jobs created in the console belong to it.
	Namespace string
	// Proxies lists the proxies whose X-Forwarded-For header is trusted.
	Proxies []netip.Prefix
	// ResetLink is the address of the application's page for a new password. It contains {secret}.
	// If it is "", the console shows operators the secret itself.
	ResetLink string
	// Passkeys, if not nil, lets operators use passkeys. Its Field is ignored.
	Passkeys *passkey.Config
	// Admit reserves capacity for work; leave releases it. An error means that there is none. For
	// WorkPage and WorkUpload, web.Entry(ctx) is the operator. If Admit is nil, there is no limit.
	Admit func(ctx context.Context, w Work) (leave func(), err error)
	// OnFailure, if not nil, is called for each request that failed through no fault of the
	// operator.
	OnFailure func(r *http.Request, err error)
	// OnRequest, if not nil, is called for each request, so that it can be logged. operator is the
	// name of the operator who is signed in, or ""; route is the pattern of the path.
	OnRequest func(r *http.Request, operator, route string)
}

// A Console handles requests under /console. It is safe for concurrent use.
type Console struct {
	options   Options
	store     *userdb.DB
	operators *userdb.Type
	passkeys  *passkey.Passkeys // or nil
	auth      web.Auth
	jobs      *runner
	figures   figures.Cache
	now       func(ctx context.Context, operator userdb.Entry) (time.Time, error)
	logins    loginCounter
	opened    openedAccounts
	handler   http.Handler
}

// Limits on a request.
const (
	maxForm        = 2 << 20 // bytes in the form of an operator
	maxVisitorForm = 8 << 10 // bytes in the form of somebody who is not signed in
	requestTimeout = 30 * time.Second
)

// visitorTimeout limits how long reading the form of somebody who is not signed in may take. Tests
// lower it.
var visitorTimeout = 5 * time.Second

// New returns a console for the accounts of a store. db is a view of the namespace of the options.
func New(db *userdb.DB, o Options) (*Console, error) {
	if o.Admit == nil {
		o.Admit = func(context.Context, Work) (func(), error) { return func() {}, nil }
	}
	if o.OnFailure == nil {
		o.OnFailure = func(*http.Request, error) {}
	}
	if o.OnRequest == nil {
		o.OnRequest = func(*http.Request, string, string) {}
	}
	operators, err := admin.Operators(db)
	if err != nil {
		return nil, err
	}
	c := &Console{options: o, store: db, operators: operators}
	if c.passkeys, err = openPasskeys(db, operators, o.Passkeys); err != nil {
		return nil, err
	}
	c.auth = web.Auth{
		Users: operators, SignInPath: "/console/signin", Cookie: web.Cookie{Name: "console"}, Proxies: o.Proxies, Failed: c.fail,
		Session: userdb.SessionOptions{Lifetime: 12 * time.Hour, IdleTimeout: 2 * time.Hour},
		Allowed: c.allowed,
	}
	if c.jobs, err = newRunner(db); err != nil {
		return nil, err
	}
	c.now = c.jobs.jobs.SessionTime
	c.handler = c.routes()
	return c, nil
}

// Close stops all background work. Jobs that are running are recorded as stopped. It returns when
// they have ended or ctx is done.
func (c *Console) Close(ctx context.Context) {
	c.figures.Close()
	c.jobs.close(ctx)
}

// ServeHTTP implements [http.Handler].
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

// guard wraps all pages. It refuses forms of other sites and requests through unknown proxies. It
// sets headers that keep other sites from showing a page in a frame, and from receiving its
// address, which may contain a secret, as the referrer.
func (c *Console) guard(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.show(w, r, http.StatusForbidden, page{Name: "message", Title: "This form came from another site", Data: "Nothing was changed. Open the console and try again there."})
	}))
	guarded := protection.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"X-Frame-Options":         "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			w.Header().Set(name, value)
		}
		if r.URL.Query().Has("token") {
			// The address holds a secret: no request from this page may carry it as the referrer,
			// not even to this site, where a proxy would log it.
			w.Header().Set("Referrer-Policy", "strict-origin")
		}
		if peer, unknown := c.unknownProxy(r); unknown {
			c.show(w, r, http.StatusForbidden, page{Name: "message", Title: "Unknown proxy", Data: "The request came through a proxy at " + peer + " that “userdb serve” does not trust. Start it with --proxy " + peer + ", and let the proxy send X-Forwarded-For. Otherwise it cannot tell visitors apart, and the cookie is not limited to HTTPS."})
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// unknownProxy reports whether the request came through a proxy that is not trusted, and returns
// the address of that proxy.
func (c *Console) unknownProxy(r *http.Request) (peer string, unknown bool) {
	isSet := func(name string) bool { return r.Header.Get(name) != "" }
	if !slices.ContainsFunc([]string{"X-Forwarded-For", "Forwarded", "X-Real-Ip"}, isSet) {
		return "", false
	}
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "ADDRESS", true // a placeholder in the command that the page suggests
	}
	address := at.Addr().WithZone("").Unmap()
	return address.String(), !slices.ContainsFunc(c.options.Proxies, func(p netip.Prefix) bool { return p.Contains(address) })
}

// asOperator sets the actor that histories record, and the time at which the operator's password
// was set. For uploads, which have deadlines of their own, that is all. For other requests it also
// sets a deadline, parses the form, and then looks up the session again, which may have ended while
// the form arrived. A GET or HEAD has no form, and needs no second look-up.
func (c *Console) asOperator(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx := userdb.WithActor(r.Context(), userdb.Actor{Name: actorName(r), Origin: web.Origin(r, c.options.Proxies)})
		ctx = admin.WithPassword(ctx, web.Entry(ctx).PasswordChanged())
		if isUpload(r) {
			next(w, r.WithContext(ctx))
			return
		}
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		r = r.WithContext(ctx)
		if !c.parseForm(w, r, maxForm) {
			return
		}
		if isRead(r) {
			next(w, r)
			return
		}
		if !c.checkOwner(w, r) {
			return
		}
		c.requireSession(func() {}, next).ServeHTTP(w, r)
	}
}

// asVisitor sets a deadline and parses the form of somebody who is not signed in, which must arrive
// within visitorTimeout.
func (c *Console) asVisitor(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		r = r.WithContext(ctx)
		control := http.NewResponseController(w)
		// Ignore the error: if the connection cannot set deadlines, those of the server apply.
		_ = control.SetReadDeadline(time.Now().Add(visitorTimeout))
		if !c.parseForm(w, r, maxVisitorForm) {
			return
		}
		// The short deadline would end the request while it is being handled.
		_ = control.SetReadDeadline(time.Now().Add(requestTimeout))
		next(w, r)
	}
}

// recordAction records an action of an operator or, if operator is "", of somebody who is not
// signed in. It writes to the feed of the namespace. If that fails, it only logs a warning, because
// the action itself was done.
func (c *Console) recordAction(r *http.Request, kind userdb.EventKind, operator, about string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), recordTimeout)
	defer cancel()
	admin.ActAs(ctx, c.store, operator, web.Origin(r, c.options.Proxies), kind, about)
}

// recordOwnAction records an action of the operator who is signed in.
func (c *Console) recordOwnAction(r *http.Request, kind userdb.EventKind, about string) {
	c.recordAction(r, kind, senderName(r), about)
}

// operatorNamespace returns the namespace of the operator who sent the request. The namespace
// decides what the operator sees.
func operatorNamespace(r *http.Request) string {
	return web.Entry(r.Context()).Text(admin.OperatorNamespace)
}

// senderName returns the name of the operator who sent the request, or "" for a visitor.
func senderName(r *http.Request) string { return web.Entry(r.Context()).Text(admin.OperatorName) }

// actorName returns the name that histories record for the sender of a request.
func actorName(r *http.Request) string { return "operator:" + senderName(r) }

// parseForm parses the query and the form of a request. The form may have up to limit bytes. A GET
// or HEAD with a body is refused without reading it. If parseForm returns false, it has sent a
// response.
func (c *Console) parseForm(w http.ResponseWriter, r *http.Request, limit int64) bool {
	if isRead(r) && r.ContentLength != 0 {
		w.Header().Set("Connection", "close") // otherwise the server reads the body first
		c.show(w, r, http.StatusBadRequest, page{Name: "message", Title: "This request cannot be read", Data: "A request for a page has no body."})
		return false
	}
	r.Body = http.MaxBytesReader(w, r.Body, limit)
	err := r.ParseForm()
	if err == nil {
		err = r.ParseMultipartForm(limit) // which keeps all of it in memory
	}
	if errors.Is(err, http.ErrNotMultipart) {
		err = nil
	}
	if err != nil {
		c.show(w, r, http.StatusBadRequest, page{Name: "message", Title: "This form cannot be read", Data: "It is incomplete or too long."})
	}
	return err == nil
}

// isRead reports whether a request has a method that takes no form and changes nothing.
func isRead(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead
}

// A page holds the data of the layout template.
type page struct {
	Name     string // of the template to execute
	Title    string
	Problems []web.Problem
	Done     string // message about what was done, shown with role="status"
	Data     any

	Undo *undo // takes back what Done says

	Focus string // name of the input that gets the focus, or ""

	Copies string // what the title is, if a script may offer to copy it

	Operator  string   // name of the operator who is signed in, or ""
	Types     []string // types of the schema, for the navigation
	Path      string
	RailPath  string  // path of the link in the rail to which the page belongs
	Trail     []crumb // the pages above this one
	Above     []crumb // further pages above this one, below RailPath
	Again     string  // path of the page that could not be shown, or ""
	Resend    *resend // the form that could not be processed, or nil
	Query     string  // in the search box
	Searching bool    // the search box has the focus
	Full      bool    // the page is as wide as the window
	Form      map[string][]string
}

// ProblemsOf returns the problems of a field. Problems of the field "" concern the whole form.
func (p page) ProblemsOf(field string) (some []web.Problem) {
	for _, one := range p.Problems {
		if one.Field == field {
			some = append(some, one)
		}
	}
	return some
}

// A refusal is a problem with one input. ID is that of the input.
type refusal struct{ ID, Text string }

// Refusals returns the problems of inputs that may be below what a small window shows. The page
// lists them at its top, where the browser puts the focus, and links to the inputs. They are in the
// order of the inputs.
func (p page) Refusals() (all []refusal) {
	if p.Operator == "" || p.Name == "verify" {
		return nil // these pages are short
	}
	a, isAccount := p.Data.(account)
	names := topInputs
	if isAccount {
		names = a.facetNames()
	}
	order := func(one, other web.Problem) int {
		return slices.Index(names, one.Field) - slices.Index(names, other.Field)
	}
	for _, one := range slices.SortedStableFunc(slices.Values(p.Problems), order) {
		field := one.Field
		added, isAdded := strings.CutPrefix(field, addName(""))
		row, isRow := strings.CutPrefix(field, rowsName(""))
		switch {
		case isAccount && slices.Contains(a.facetNames(), field):
			all = append(all, refusal{"f-" + field, field + ": " + one.Text})
		case isAccount && !slices.Contains(a.FieldNames(), field): // it is at the top already
		case isAccount && isAdded:
			all = append(all, refusal{"a-" + added, added + ": " + one.Text})
		case isAccount && isRow:
			all = append(all, refusal{"r-" + row, row + ": " + one.Text})
		case field == "scope":
			all = append(all, refusal{"scope-" + scopes[0].Name, field + ": " + one.Text})
		case slices.Contains(topInputs, field):
			all = append(all, refusal{field, strings.TrimPrefix(field, "passkey-") + ": " + one.Text})
		}
	}
	return all
}

// topInputs are the fields, other than facets, whose inputs have the same ID.
var topInputs = []string{"password", "name", "uid", "file", "code", "label", "passkey-label", "account", "from", "until"}

// Entered returns what was entered into an input of the submitted form, or stored if there was no
// such input.
func (p page) Entered(name, stored string) string {
	if sent, ok := p.Form[name]; ok && len(sent) > 0 {
		return sent[0]
	}
	return stored
}

// Chosen returns attribute if the submitted form has this value for this name, and otherwise "".
// Templates use it for "checked" and "selected".
func (p page) Chosen(attribute, name, value string) template.HTMLAttr {
	if !slices.Contains(p.Form[name], value) {
		return ""
	}
	return template.HTMLAttr(" " + attribute) //nolint:gosec // the templates name it
}

// An input describes one input of a form.
type input struct {
	Name, Label, Type, Complete, Value string
	Problems                           []web.Problem
	Focus                              bool
}

// Field returns an input that contains what was entered or, on the first display, the stored text.
// It never contains a password.
func (p page) Field(name, label, kind, complete, stored string) input {
	if kind != "password" {
		stored = p.Entered(name, stored)
	}
	return input{name, label, kind, complete, stored, p.ProblemsOf(name), name == p.Focus}
}

// Choices returns the values of a Boolean facet; "" means that the entry has none.
func (page) Choices() []string { return []string{"", "true", "false"} }

// OtherProblems returns the problems of fields that the page has no inputs for.
func (p page) OtherProblems(fields []string) (some []web.Problem) {
	for _, one := range p.Problems {
		if !slices.Contains(fields, one.Field) {
			some = append(some, one)
		}
	}
	return some
}

//go:embed pages/*.html
var templateFiles embed.FS

var templates = template.Must(template.New("").Funcs(templateFuncs).ParseFS(templateFiles, "pages/*.html"))

// show sends a page, completely or not at all.
func (c *Console) show(w http.ResponseWriter, r *http.Request, status int, p page) {
	p.Operator, p.Path = senderName(r), r.URL.Path
	if p.Form == nil {
		p.Form = r.PostForm
	}
	if p.Operator != "" {
		if db, err := c.view(r.Context()); err == nil {
			p.Types = db.Schema().Names()
		}
	}
	p.locate()
	var text bytes.Buffer
	if err := templates.ExecuteTemplate(&text, "layout", p); err != nil {
		c.options.OnFailure(r, err)
		http.Error(w, "This page cannot be shown.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if status == http.StatusUnauthorized {
		// Browsers do not know this scheme, so they show the page instead of a dialog.
		w.Header().Set("WWW-Authenticate", `Password realm="userdb"`)
	}
	w.WriteHeader(status)
	_, _ = text.WriteTo(w) // an error means that the browser is gone
}

// fail sends a page that describes err.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, admin.ErrOperatorDisabled) {
		http.Redirect(w, r, "/console/signin", http.StatusSeeOther)
		return
	}
	if userdb.CodeOf(err) == userdb.CodeHint {
		err = userdb.ErrNotFound // no account can have the UID in the path
	}
	title, problems := "Something went wrong", web.Problems(err)
	if len(problems) == 0 {
		problems = []web.Problem{{Code: userdb.CodeOther, Text: web.Texts["unavailable"]}}
	}
	status := statusOf(problems)
	if seconds := problems[0].Params["seconds"]; seconds != "" {
		w.Header().Set("Retry-After", seconds)
	}
	if isServiceProblem(problems) {
		c.options.OnFailure(r, err)
		if strings.HasPrefix(r.URL.Path, "/console/signin") && len(carriedInputs(r)) > 0 {
			c.showSignIn(w, r, problems) // this page carries the form on
			return
		}
	}
	again, form := "", (*resend)(nil)
	switch {
	case !isServiceProblem(problems):
	case r.Method == http.MethodGet:
		again = r.URL.RequestURI()
	default:
		form = c.resendOf(r)
	}
	switch userdb.CodeOf(err) {
	case userdb.CodeUnavailable:
		switch {
		case isAny(err, userdb.ErrIndexBuilding):
			title = "This cannot be listed yet"
			problems = []web.Problem{{Text: "The schema is being changed, and an index that this page needs is still being built."}}
		case problems[0].Rule == "unavailable" && isAny(err, userdb.ErrUnavailable, context.DeadlineExceeded):
			title = "The store is not responding"
			problems = []web.Problem{{Text: "Nothing can be shown or changed until it responds again."}}
		}
	case userdb.CodeNotFound:
		title = "Page not found"
		problems = []web.Problem{{Text: "What you are looking for does not exist, or no longer exists."}}
	case userdb.CodeCorrupt:
		problems = []web.Problem{{Text: "A record of this account is damaged. The Check page says what is wrong and may be able to repair it."}}
	}
	c.show(w, r, status, page{Name: "message", Title: title, Problems: problems, Again: again, Resend: form})
}

// statusOf returns the HTTP status of a page with problems: the status of the code that comes first
// in userdb.Codes. Problems without a code are about the input of the form.
func statusOf(problems []web.Problem) int {
	if len(problems) == 0 {
		return http.StatusOK
	}
	for _, code := range userdb.Codes() {
		if slices.ContainsFunc(problems, func(p web.Problem) bool { return p.Code == code }) {
			return code.HTTPStatus()
		}
	}
	return userdb.CodeInvalid.HTTPStatus()
}

// isServiceProblem reports whether the operator cannot solve the problems by changing the form.
func isServiceProblem(problems []web.Problem) bool {
	return slices.ContainsFunc(problems, func(p web.Problem) bool {
		return p.Rule == "unavailable" || p.Rule == "unknown" || p.Rule == "busy"
	})
}

// notFound handles paths that have no page.
func (c *Console) notFound(w http.ResponseWriter, r *http.Request) { c.fail(w, r, userdb.ErrNotFound) }

// view returns the accounts, opened with the schema in force.
func (c *Console) view(ctx context.Context) (*userdb.DB, error) { return c.options.View(ctx) }

func (c *Console) pathType(r *http.Request) (*userdb.DB, *userdb.Type, error) {
	db, err := c.view(r.Context())
	if err != nil {
		return nil, nil, err
	}
	t, err := db.Type(r.PathValue("type"))
	if err != nil {
		return nil, nil, userdb.ErrNotFound
	}
	return db, t, nil
}
