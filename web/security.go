package web

import (
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/userdb"
)

// securityAge is how long ago visitors may have been verified when they come to the page about
// second factors. The store allows twice as long, so there is time to scan a QR code.
const securityAge = 5 * time.Minute

// An otherPage is an error that makes Flows.Page show another page after a form, without a
// redirect.
type otherPage struct {
	name string
	data any
	err  error // what is wrong with the form, or nil

	sendTo string       // where the page "again" sends its form, if that is another path
	me     userdb.Entry // the visitor, if signed in by the form
	kept   []Input      // carry the form that was interrupted; see Page.Kept
}

func (o *otherPage) Error() string { return "the page " + o.name + " follows" }

// verifiedRecently calls next for visitors who are signed in. If due reports true for a request and
// there is a page to verify at, visitors who were not verified within age on the level of their
// account must verify first, and then return to the same path.
func (f *Flows) verifiedRecently(age time.Duration, due func(*http.Request) bool, next http.Handler) http.Handler {
	return f.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if due(r) && f.Paths.Verify != "" && !VerifiedWithin(r.Context(), age) {
			to := r.URL.RequestURI()
			if r.Method == http.MethodPost {
				to = f.securityPath(r)
			}
			http.Redirect(w, r, withReturn(f.Paths.Verify, to), http.StatusSeeOther)
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// securityPath returns the path of the page about second factors, with the name that a visitor has
// typed for an app or a passkey, and the path to which that page leads.
func (f *Flows) securityPath(r *http.Request) string {
	typed := url.Values{}
	for _, name := range []string{"label", "passkey-name", returnParameter} {
		if text := r.PostFormValue(name); text != "" {
			typed.Set(name, text)
		}
	}
	if len(typed) == 0 {
		return f.Paths.Security
	}
	return f.Paths.Security + "?" + typed.Encode()
}

// requireForSecurity guards the page about second factors. The store itself checks whether a change
// is allowed.
func (f *Flows) requireForSecurity(next http.Handler) http.Handler {
	due := func(r *http.Request) bool {
		do := r.PostFormValue("do")
		return do == "" || do == "add"
	}
	return f.verifiedRecently(securityAge, due, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Form.Has(returnParameter) {
			r.Form.Set(returnParameter, ReturnPath(r)) // templates link to it
		}
		next.ServeHTTP(w, r)
	}))
}

func (f *Flows) factors(r *http.Request) (any, error) {
	return f.Users.Factors(r.Context(), visitorHint(r))
}

// maxSecurityChanges is how often the owner of an account may change its factors within an hour.
const maxSecurityChanges = 20

// security adds and removes second factors, replaces recovery codes, and mails another link to
// those who have not verified their address.
func (f *Flows) security(w http.ResponseWriter, r *http.Request) (string, error) {
	if r.PostFormValue("do") != "add" { // all others mail the owner
		limit := Limit{Auth: f.Auth, Name: "security", Max: maxSecurityChanges}
		if err := limit.Allow(r); err != nil {
			return "", err
		}
	}
	slots, err := f.reserveNotice()
	if err != nil {
		return "", err
	}
	defer slots.giveBack()
	var codes []string
	done, kind := r.PostFormValue("do"), ""
	switch done {
	case "prove":
		return f.mailProofAgain(r, slots)
	case "add":
		return f.addApp(r)
	case "confirm":
		codes, err = f.confirmApp(w, r)
		// After a double click, the app is there already.
		if errors.Is(err, userdb.ErrNotFound) && f.factorKind(r, r.PostFormValue("id")) != "" {
			return f.Paths.Security + "?done=app", nil
		}
	case "passkey":
		codes, err = f.addPasskey(w, r)
	case "codes":
		codes, err = f.Users.ReplaceRecoveryCodes(r.Context(), f.Secret(r))
	case "remove":
		var c userdb.FactorChange
		kind = f.factorKind(r, r.PostFormValue("id"))
		c, err = f.Users.RemoveFactor(r.Context(), f.Secret(r), r.PostFormValue("id"), f.SessionOptions(r))
		f.replaceSession(w, r, c)
	default:
		return f.Paths.Security, nil
	}
	if kind == "passkey" {
		done = "remove-passkey"
	}
	// Codes show that the change was made, even if it was not confirmed.
	if made(err) || len(codes) > 0 {
		f.mailNotice(r.Context(), slots, Mail{Kind: securityMails[done], Link: f.Base + f.Paths.Security, Entry: Entry(r.Context())})
	}
	if len(codes) > 0 {
		return "", &otherPage{name: "codes", data: codes}
	}
	return f.afterSecurity(r, f.Paths.Security+"?done="+securityNotes[done], err)
}

// securityMails are the mails that tell the owner what was done, and securityNotes are the messages
// that tell the visitor on the next page.
var (
	securityMails = map[string]MailKind{
		"confirm": MailFactorAdded, "remove": MailFactorRemoved, "codes": MailNewCodes,
		"passkey": MailPasskeyAdded, "remove-passkey": MailPasskeyRemoved,
	}
	securityNotes = map[string]string{"confirm": "app", "remove": "no-app", "passkey": "passkey", "remove-passkey": "no-passkey"}
)

// made reports whether a change was made, even if a replica may not have it yet, or may have been
// made. So nobody avoids a notice by hanging up before the store answers.
func made(err error) bool {
	return err == nil || errors.Is(err, userdb.ErrUnconfirmed) || errors.Is(err, userdb.ErrOutcomeUnknown)
}

// afterSecurity returns to and err. If err says that the visitor was verified too long ago, it
// returns what askForSteps returns.
func (f *Flows) afterSecurity(r *http.Request, to string, err error) (string, error) {
	if errors.Is(err, userdb.ErrNotVerified) {
		return f.askForSteps(f.securityPath(r))
	}
	return to, err
}

// addApp begins to add an authenticator app.
func (f *Flows) addApp(r *http.Request) (string, error) {
	e := Entry(r.Context())
	app, err := f.Users.EnrolTOTP(r.Context(), f.Secret(r), userdb.TOTPOptions{
		Name: strings.TrimSpace(r.PostFormValue("label")), Issuer: f.Site, Account: e.Text(f.Address),
	})
	if err != nil {
		return f.afterSecurity(r, "", err)
	}
	return "", &otherPage{name: "app", data: app}
}

// confirmApp adds an authenticator app if the code in the form is right. If the code is wrong, the
// error makes Flows.Page show the page with the app's secret again.
func (f *Flows) confirmApp(w http.ResponseWriter, r *http.Request) (codes []string, err error) {
	app, err := enrolmentIn(r)
	if err != nil {
		return nil, err
	}
	c, err := f.Users.ConfirmTOTP(r.Context(), f.Secret(r), app.ID, strings.TrimSpace(r.PostFormValue("code")), f.SessionOptions(r))
	f.replaceSession(w, r, c)
	if errors.Is(err, userdb.ErrLogin) {
		err = &otherPage{name: "app", data: app, err: codeError{err}}
	}
	return c.RecoveryCodes, err
}

// replaceSession sets the cookie of the session that a change of factors started, if there is one.
func (f *Flows) replaceSession(w http.ResponseWriter, r *http.Request, c userdb.FactorChange) {
	if c.Secret != "" {
		f.startCookie(w, r, c.Session, c.Secret)
	}
}

// maxURI limits the URI of an authenticator app in a form, in bytes.
const maxURI = 2000

// enrolmentIn returns the authenticator app that a form is about.
func enrolmentIn(r *http.Request) (userdb.TOTPEnrolment, error) {
	e := userdb.TOTPEnrolment{ID: r.PostFormValue("id"), URI: r.PostFormValue("uri")}
	u, err := url.Parse(e.URI)
	if err != nil || !isAppURI(e.URI) || len(e.URI) > maxURI {
		return userdb.TOTPEnrolment{}, userdb.ErrNotFound
	}
	e.Secret = u.Query().Get("secret")
	return e, nil
}

func isAppURI(uri string) bool { return strings.HasPrefix(uri, "otpauth://totp/") }

// AppLink returns the address with which a visitor adds the authenticator app on the same device.
// It contains the app's secret.
func (p Page) AppLink() template.URL {
	e, _ := p.Data.(userdb.TOTPEnrolment)
	if !isAppURI(e.URI) {
		return ""
	}
	return template.URL(e.URI)
}

// Groups returns a text in groups of four characters, for people who type it.
func (p Page) Groups(text string) string {
	var groups []string
	for group := range slices.Chunk([]byte(text), 4) {
		groups = append(groups, string(group))
	}
	return strings.Join(groups, " ")
}
