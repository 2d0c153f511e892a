package console

import (
	"cmp"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// A form that could not be processed, because the store did not answer or the session had ended,
// comes back as inputs of a page that can send it again, without passwords and codes. While an
// operator signs in again, the pages of the sign-in carry it. Only the operator who filled it in
// gets it back.

// Names of the inputs that carry a form. keptOwner has the UID of the operator, and keptPrefix
// begins the names of the form's inputs.
const (
	keptOwner  = "kept"
	keptPrefix = "kept:"
)

// ownerInput is the name of the input of a page's form that says which operator filled it in, as a
// UID. No facet has such a name.
const ownerInput = "~whose"

// checkOwner reports whether the operator who sent a form also filled it in. It removes the input
// that says so from the form. If another operator sent it, as in another tab, checkOwner has sent a
// response.
func (c *Console) checkOwner(w http.ResponseWriter, r *http.Request) bool {
	owner := r.PostForm.Get(ownerInput)
	r.PostForm.Del(ownerInput)
	r.Form.Del(ownerInput)
	if owner == "" || owner == web.Entry(r.Context()).UID() {
		return true
	}
	c.show(w, r, http.StatusForbidden, page{Name: "message", Title: "Another operator filled in this form", Data: "You are signed in as another operator by now, so nothing was changed."})
	return false
}

// formOwner returns the UID of the operator who filled in a form: as the form says, or else the
// operator of the session, which may have ended.
func (c *Console) formOwner(r *http.Request) string {
	uid, _ := token.SecretUID(c.auth.Secret(r))
	return cmp.Or(r.PostForm.Get(ownerInput), uid)
}

// maxKept limits the form that a sign-in carries, in bytes, so that it fits into maxVisitorForm
// together with a name and a password. A longer one is lost.
const maxKept = 6 << 10

// A resend is a form that a page can send again.
type resend struct {
	Path   string
	Inputs []input
	Ended  bool // the session had ended, and the operator has signed in again
}

// formInputs returns the inputs of a form of an operator without passwords and codes. A form that
// was confirmed by a passkey is inside another one.
func formInputs(r *http.Request) (kept []input) {
	form := r.PostForm
	if form.Has(packedName) {
		form, _ = url.ParseQuery(form.Get(packedName)) // see unpackForm
	}
	secret := []string{verifyName, codeName, "passkey", ownerInput}
	switch {
	case strings.HasSuffix(r.URL.Path, "/password"): // in other forms this is a facet
		secret = append(secret, "password")
	case strings.HasPrefix(r.URL.Path, securityPath+"/"):
		secret = append(secret, "code")
	}
	for _, name := range slices.Sorted(maps.Keys(form)) {
		for _, value := range form[name] {
			if !slices.Contains(secret, name) {
				kept = append(kept, input{Name: name, Value: value})
			}
		}
	}
	return kept
}

// hasKeepableForm reports whether a browser sent a form that a page can send again. Files and the
// requests of scripts are none.
func hasKeepableForm(r *http.Request) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	mode := r.Header.Get("Sec-Fetch-Mode")
	return r.Method == http.MethodPost && kind == "application/x-www-form-urlencoded" && (mode == "" || mode == "navigate")
}

// readVisitorForm reads the form of somebody who is not known to be signed in, within the limits
// for visitors, unless it has been read.
func readVisitorForm(w http.ResponseWriter, r *http.Request) bool {
	if r.PostForm != nil {
		return true
	}
	control := http.NewResponseController(w)
	// Ignore the errors: if the connection cannot set deadlines, those of the server apply.
	_ = control.SetReadDeadline(time.Now().Add(visitorTimeout))
	r.Body = http.MaxBytesReader(w, r.Body, maxVisitorForm)
	err := r.ParseForm()
	_ = control.SetReadDeadline(time.Now().Add(requestTimeout))
	return err == nil
}

// typedForms are the routes whose forms have something that operators type or tick. If the session
// has ended, the other forms, which are buttons, lead to the page to sign in.
var typedForms = []string{
	"POST /console/new", "POST /console/bulk", "POST /console/keys", "POST /console/import/{id}",
	"POST /console/types/{type}/{uid}", "POST /console/types/{type}/{uid}/values", "POST /console/types/{type}/{uid}/tags",
}

// isTyped reports whether a request has a form that a sign-in carries if the session has ended.
func (c *Console) isTyped(r *http.Request) bool {
	return hasKeepableForm(r) && slices.Contains(typedForms, r.Pattern) && c.auth.Secret(r) != ""
}

// interrupt answers a form whose sender's session has ended with the page to sign in, which carries
// the form.
func (c *Console) interrupt(w http.ResponseWriter, r *http.Request) {
	to := r.URL.RequestURI()
	carrier := url.Values{}
	if readVisitorForm(w, r) && c.formOwner(r) != "" {
		carrier.Set(keptOwner, c.formOwner(r))
		for _, in := range formInputs(r) {
			carrier.Add(keptPrefix+in.Name, in.Value)
		}
	}
	if len(carrier) < 2 || len(carrier.Encode()) > maxKept { // there is no form, or it is empty
		http.Redirect(w, r, c.auth.SignInPath, http.StatusSeeOther)
		return
	}
	carrier.Set("return", to)
	r.PostForm, r.Form = carrier, carrier
	c.showSignIn(w, r, []web.Problem{{Code: userdb.CodeLogin, Text: "You are no longer signed in, so nothing was changed. Sign in again: what you entered is kept, except passwords and codes."}})
}

// carriedInputs returns the inputs of a page of the sign-in that carry a form.
func carriedInputs(r *http.Request) (all []input) {
	for _, name := range slices.Sorted(maps.Keys(r.PostForm)) {
		if name == keptOwner || strings.HasPrefix(name, keptPrefix) {
			for _, value := range r.PostForm[name] {
				all = append(all, input{Name: name, Value: value})
			}
		}
	}
	return all
}

// respondSignedIn responds to a sign-in of an operator that has succeeded: with the form that the
// pages of the sign-in have carried, if it is this operator's, and otherwise with a redirect.
func (c *Console) respondSignedIn(w http.ResponseWriter, r *http.Request, e userdb.Entry) {
	carried := carriedInputs(r)
	if len(carried) == 0 {
		http.Redirect(w, r, returnPath(r), http.StatusSeeOther)
		return
	}
	if to := returnPath(r); to != "/console" && r.PostForm.Get(keptOwner) == e.UID() {
		again := resend{Path: to, Ended: true, Inputs: []input{{Name: ownerInput, Value: e.UID()}}}
		for _, in := range carried {
			if name, is := strings.CutPrefix(in.Name, keptPrefix); is {
				again.Inputs = append(again.Inputs, input{Name: name, Value: in.Value})
			}
		}
		c.show(w, r, http.StatusOK, page{Name: "message", Title: "Go on", Resend: &again})
		return
	}
	http.Redirect(w, r, "/console", http.StatusSeeOther) // the form's path may be no page
}

// resendOf returns the form of a request, for a page that says why it was not processed, or nil if
// it cannot be sent again. The forms of visitors are filled in again.
func (c *Console) resendOf(r *http.Request) *resend {
	if !hasKeepableForm(r) || r.PostForm == nil || strings.HasPrefix(r.URL.Path, "/console/signin") ||
		r.URL.Path == "/console/setup" || strings.HasPrefix(r.URL.Path, "/console/enrol") {
		return nil
	}
	inputs := append(formInputs(r), input{Name: ownerInput, Value: c.formOwner(r)})
	return &resend{Path: r.URL.RequestURI(), Inputs: inputs}
}

// failLookup answers a request whose session could not be looked up. It reads the form, so that the
// page can send it again.
func (c *Console) failLookup(w http.ResponseWriter, r *http.Request, err error) {
	if hasKeepableForm(r) && !readVisitorForm(w, r) {
		r.PostForm = nil
	}
	c.fail(w, r, err)
}
