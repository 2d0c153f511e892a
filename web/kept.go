package web

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/userdb"
)

// If a form arrives whose sender must first sign in again, or prove again who they are, Flows asks
// for that on a page that carries the inputs of the form. Afterwards the page "again" offers to
// send the form, but only to the account that filled it in.

// Names of the inputs that carry a form. keptOwner has the UID of the account that filled it in,
// and keptPrefix begins the names of its inputs.
const (
	keptOwner  = "kept"
	keptPrefix = "kept:"
)

// maxKept and maxKeptInputs limit what a sign-in carries, in bytes of a form and in inputs. It must
// fit into a form together with a password (see Protect), and the answers to strangers, who can
// send such forms too, must not be many times as long as what they send.
const (
	maxKept       = 48 << 10
	maxKeptInputs = 500
)

// formOwnerInput is the name of the input with the UID of the account on whose page a form is. The
// template mine writes it. No facet has such a name.
const formOwnerInput = "~whose"

// errOther refuses a form of an account other than the one that is signed in, as in another tab. It
// was about what the visitor has seen there.
var errOther = &userdb.FieldError{Err: userdb.ErrInvalid, Rule: "other", Reason: "another account is signed in"}

// CheckOwner returns an error if a form says that it is of another account than the one that is
// signed in, as in another tab. Page calls it for its forms. Other handlers call it before they act
// on a form from a page of Flows. Wrap them in Protect, which parses the form, and in Visitor,
// Require or RequireTag.
func CheckOwner(r *http.Request) error {
	e := Entry(r.Context())
	if whose := r.PostForm.Get(formOwnerInput); whose != "" && e.Key().IsValid() && whose != e.UID() {
		return errOther
	}
	return nil
}

// errEnded and errPaused say why a page asks for a sign-in, or for a proof, in place of processing
// a form.
var (
	errEnded  = &userdb.FieldError{Err: userdb.ErrInvalid, Rule: "ended", Reason: "the session has ended"}
	errPaused = &userdb.FieldError{Err: userdb.ErrInvalid, Rule: "paused", Reason: "the visitor was verified too long ago"}
)

// secretParts are in the names of inputs that are taken for passwords and other secrets.
var secretParts = []string{"passw", "passphrase", "pwd", "secret"}

// keptInputs returns the inputs of a form without those that hold passwords and codes.
func keptInputs(r *http.Request) (kept []Input) {
	secret := []string{"code", "recovery", "passkey"}
	if r.PostForm.Has("old") && r.PostForm.Has("new") {
		secret = append(secret, "old", "new")
	}
	for _, name := range slices.Sorted(maps.Keys(r.PostForm)) {
		isPart := func(part string) bool { return strings.Contains(strings.ToLower(name), part) }
		if slices.Contains(secret, name) || slices.ContainsFunc(secretParts, isPart) {
			continue
		}
		for _, value := range r.PostForm[name] {
			kept = append(kept, Input{Name: name, Value: value})
		}
	}
	return kept
}

// interrupted returns a handler that answers a form with another page, "signin" or "verify", which
// is at path. The problem on that page is why. If the form has just set a new password, which has
// ended the session, the handler signs the visitor in. If the form cannot be carried, it redirects
// to the page.
func (f *Flows) interrupted(page, path string, why error) http.Handler {
	return Protect(f.Page(page, nil, func(w http.ResponseWriter, r *http.Request) (string, error) {
		if page == "signin" && r.URL.Path == f.Paths.Password {
			to, err := f.signInOnceMore(w, r, hints.UID(f.formOwner(r)), "", r.PostFormValue("new"), passwordSet)
			if err == nil {
				return to, nil
			}
		}
		kept, fits := f.keepForm(r)
		if !fits {
			return withReturn(path, ReturnPath(r)), nil
		}
		return "", &otherPage{name: page, data: ReturnPath(r), err: why, kept: kept}
	}))
}

// canInterrupt reports whether a request has a form that interrupted keeps.
func canInterrupt(r *http.Request) bool { return r.Method == http.MethodPost && hasForm(r) }

// hadSession reports whether the sender of a form was signed in when the form was shown.
func (a Auth) hadSession(r *http.Request) bool {
	return canInterrupt(r) && (a.Secret(r) != "" || r.PostFormValue(formOwnerInput) != "")
}

// keepForm returns the inputs that carry the form of a request, and replaces the form by the path
// to return to. A form of which nothing may be kept, because all that it has is secret, is not
// carried: the visitor returns to its page. Neither is one that confirms a second factor, which
// holds the key of an app, nor one whose path ReturnPath does not accept. If a form is too long or
// has too many inputs, it is not carried either, and fits is false.
func (f *Flows) keepForm(r *http.Request) (carrier []Input, fits bool) {
	inputs := slices.DeleteFunc(keptInputs(r), func(in Input) bool { return in.Name == formOwnerInput })
	asSent := url.Values{}
	for _, in := range inputs {
		asSent.Add(keptPrefix+in.Name, in.Value)
	}
	fits = len(inputs) <= maxKeptInputs && len(asSent.Encode()) <= maxKept
	isFactor := r.URL.Path == f.Paths.Security && slices.Contains([]string{"confirm", "passkey"}, r.PostForm.Get("do"))
	r.Form = url.Values{returnParameter: {r.URL.RequestURI()}}
	if len(inputs) == 0 && len(r.PostForm) > 0 || isFactor || !fits || ReturnPath(r) == "/" {
		if strings.HasPrefix(r.Pattern, http.MethodPost+" ") { // the path may be no page
			r.Form.Set(returnParameter, f.Paths.Account)
		}
		return nil, fits
	}
	carrier = append(carrier, Input{Name: keptOwner, Value: f.formOwner(r)})
	for _, in := range inputs {
		carrier = append(carrier, Input{Name: keptPrefix + in.Name, Value: in.Value})
	}
	return carrier, true
}

// formOwner returns the UID of the account whose page had the form of a request: as the form says,
// or else the visitor's, or that of the session that has ended.
func (f *Flows) formOwner(r *http.Request) string {
	if whose := r.PostForm.Get(formOwnerInput); whose != "" {
		return whose
	}
	if e := Entry(r.Context()); e.Key().IsValid() {
		return e.UID()
	}
	uid, _ := token.SecretUID(f.Secret(r))
	return uid
}

// carries reports whether a form carries another one.
func carries(r *http.Request) bool { return r.PostForm.Has(keptOwner) }

// carrierInputs returns the inputs with which the form of a request carries another one, or none if
// keepForm would not have made so many. A query carries none: links of other sites could otherwise
// make up a form.
func carrierInputs(r *http.Request) (inputs []Input) {
	if r.Method != http.MethodPost {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(r.PostForm)) {
		if name == keptOwner || strings.HasPrefix(name, keptPrefix) {
			for _, value := range r.PostForm[name] {
				inputs = append(inputs, Input{Name: name, Value: value})
			}
		}
	}
	if len(inputs) > maxKeptInputs+1 { // one of them is the owner
		return nil
	}
	return inputs
}

// Kept returns the inputs with which a form carries another one, which the visitor sent before the
// page asked for a sign-in or a proof. The template kept writes them into a form.
func (p Page) Kept() []Input { return p.kept }

// resume returns to and err, which are what a sign-in or a proof leads to. If that has succeeded,
// and the form carries another one that the same account filled in, resume returns an error that
// makes Flows.Page offer to send it. Another account gets nothing of it, and returns to its own
// page.
func (f *Flows) resume(r *http.Request, e userdb.Entry, to string, err error) (string, error) {
	switch {
	case err != nil || !carries(r):
		return to, err
	case !e.Key().IsValid() || r.PostForm.Get(keptOwner) != e.UID():
		return f.Paths.Account, nil
	}
	var inputs []Input
	for _, in := range carrierInputs(r) {
		if name, is := strings.CutPrefix(in.Name, keptPrefix); is {
			inputs = append(inputs, Input{Name: name, Value: in.Value})
		}
	}
	return "", &otherPage{name: "again", data: inputs, sendTo: to, me: e}
}

// afterFirstStepOf does what afterFirstStep does. If the form carries another one, the pages that
// follow carry it on: there is no redirect before the page "again".
func (f *Flows) afterFirstStepOf(r *http.Request, e userdb.Entry, err error) (string, error) {
	to, failed := f.afterFirstStep(ReturnPath(r), err)
	if err == nil || failed != nil || !carries(r) {
		return f.resume(r, e, to, failed)
	}
	methods, _ := url.Parse(to)
	r.Form.Set(methodsParameter, methods.Query().Get(methodsParameter))
	return "", &otherPage{name: "code", data: ReturnPath(r)}
}

// signInAgain sends visitors whose ticket is not valid to the page to sign in.
func (f *Flows) signInAgain(r *http.Request) (string, error) {
	if carries(r) {
		r.Form.Set("done", "again")
		return "", &otherPage{name: "signin", data: ReturnPath(r)}
	}
	return withReturn(f.Paths.SignIn, withoutDone(ReturnPath(r))) + "&done=again", nil
}

// otherStep is the name of the button with which a form that carries another one asks for the other
// way to take the second step: by a code of an app, or by a recovery code.
const otherStep = "other-step"

// showsOtherStep reports whether a form only asks for the other way to take the second step, and
// prepares the form for that.
func showsOtherStep(r *http.Request) bool {
	if !r.PostForm.Has(otherStep) {
		return false
	}
	hadRecovery := r.Form.Has("recovery")
	r.Form.Del("recovery")
	if !hadRecovery {
		r.Form.Set("recovery", "")
	}
	return true
}
