package console

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// doneMessages holds the messages that pages show after an action, by its name.
var doneMessages = map[string]string{
	"saved":        "The account has been changed.",
	"disable":      "The account is disabled. Its sessions and links are no longer valid.",
	"enable":       "The account may sign in again.",
	"password":     "The password has been set. All earlier sessions and links are no longer valid.",
	"sessions/end": "The sessions have ended.",
	"device":       "The device has been signed out.",
	"waits":        "The count of wrong guesses has been reset. Nobody has to wait.",
	"new":          "The account has been created. It has no password yet.",
	"delete":       "The account has been deleted.",
	"deleted":      "There is no such account: it has been deleted, or never existed.",
	"app":          "The app has been added.",
	"no-app":       "The app has been removed.",
	"passkey":      "The passkey has been added.",
	"no-passkey":   "The passkey has been removed.",
	"factors":      "The second step has been changed. All sessions of the account have ended. Tell the owner, but not in the way in which they asked you.",
	"tags":         "The tags have been changed.",
	"key":          "The key has been revoked. After at most five seconds, no process accepts it. Sessions and links that were made with it stay valid.",
}

// A subject holds the account that an action concerns, and its page.
type subject struct {
	r        *http.Request
	db       *userdb.DB
	t        *userdb.Type
	e        userdb.Entry
	declared schema.Type
	hint     hints.Hint
	show     func(func(*account, *page)) // sends the page in place of the usual redirect
	ask      func(page)                  // sends another page in place of the redirect
	// then holds parameters of the page that follows. Its done, if any, replaces the name of the
	// action.
	then url.Values
}

type action func(subject) error

// act returns a handler that performs an action on the account in the path and shows its page.
func (c *Console) act(name string, do action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		db, t, e, ok := c.findAccount(w, r)
		if !ok {
			return
		}
		shown := false
		show := func(edit func(*account, *page)) {
			shown = true
			c.showAccount(w, r, db, t, e, func(a *account, p *page) {
				p.Form = map[string][]string{} // the submitted form is not the one with the facets
				edit(a, p)
			})
		}
		ask := func(p page) {
			shown = true
			c.show(w, r, http.StatusOK, p)
		}
		then := url.Values{}
		s := subject{r, db, t, e, db.Schema().Types[t.Name()], hints.Key(e.Key()), show, ask, then}
		err := do(s)
		if shown {
			return
		}
		if err == nil {
			c.signUndo(s, name)
			done := cmp.Or(then.Get("done"), name)
			then.Del("done")
			http.Redirect(w, r, accountPath(e.Type(), e.UID())+"?done="+done+prefixIfAny("&", then.Encode()), http.StatusSeeOther)
			return
		}
		problems := web.Problems(err)
		if isServiceProblem(problems) || isAny(err, userdb.ErrNotFound, admin.ErrOperatorDisabled) {
			c.fail(w, r, err)
			return
		}
		show(func(_ *account, p *page) {
			p.Problems = problems
			if name == "tags" {
				p.Form = map[string][]string{newTagName: r.PostForm["add"]}
			}
		})
	}
}

// newTagName is the name by which the page refers to the input for another tag. No facet has such a
// name.
const newTagName = "~tag"

// undoFor is how long an action can be taken back from the page that follows it.
const undoFor = 10 * time.Minute

// undoName is the name of the parameter that proves to undoOf what was done.
const undoName = "undo"

// undoMAC returns a code that proves a change of tags or of the state of an account. Nobody can
// make it without the secret of the operator's session. It covers the account, what was done to it
// and the event in which the history recorded that. params are the parameters of the page that
// follows.
func (c *Console) undoMAC(r *http.Request, key recordkey.Key, params url.Values, e userdb.HistoryEvent) string {
	text, _ := json.Marshal([]string{ // strings can always be encoded
		"undo", key.String(), params.Get("done"), params.Get("changed"), params.Get("added"), params.Get("removed"),
		string(e.Kind), e.Time.UTC().Format(time.RFC3339Nano),
	})
	mac := hmac.New(sha256.New, []byte(c.sessionSecret(r)))
	mac.Write(text)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// lastOwn returns the event that recorded the action named done. It returns false if another
// operator did it, or if a newer event is about the same thing: the account's tags, or whether it
// is disabled.
func lastOwn(r *http.Request, all []userdb.HistoryEvent, done string) (userdb.HistoryEvent, bool) {
	states := []userdb.EventKind{userdb.EventDisable, userdb.EventEnable}
	did, kinds := userdb.EventTags, []userdb.EventKind{userdb.EventTags}
	if done != "tags" {
		did, kinds = userdb.EventKind(done), states
	}
	last := slices.IndexFunc(all, func(e userdb.HistoryEvent) bool { return slices.Contains(kinds, e.Kind) })
	if last < 0 || all[last].Kind != did || all[last].Actor != actorName(r) {
		return userdb.HistoryEvent{}, false
	}
	return all[last], true
}

// signUndo adds a code to the parameters of the page that follows an action. The code proves to
// undoOf that the operator did the action. Without it, the page does not offer to take the action
// back.
func (c *Console) signUndo(s subject, name string) {
	if !s.then.Has("changed") && !s.then.Has("added") && !s.then.Has("removed") {
		return
	}
	all, err := s.t.History(s.r.Context(), s.hint)
	if err != nil {
		return // the action itself was done
	}
	if e, ok := lastOwn(s.r, all, name); ok {
		params := maps.Clone(s.then)
		params.Set("done", name)
		s.then.Set(undoName, c.undoMAC(s.r, s.e.Key(), params, e))
	}
}

// undoOf returns the form that undoes the action in the URL of the page, or nil if it cannot be
// undone. Anybody can make a link to the page, so its URL must have the code of undoMAC, and the
// history must show that nobody has done anything of that kind since.
func (c *Console) undoOf(r *http.Request, key recordkey.Key, a account, now time.Time) *undo {
	params := r.URL.Query()
	done, added, removed := params.Get("done"), params.Get("added"), params.Get("removed")
	var u undo
	switch {
	case done == "disable" && a.Disabled:
		u = undo{Path: a.Path + "/enable"}
	case done == "enable" && !a.Disabled:
		u = undo{Path: a.Path + "/disable"}
	case done == "tags" && added != "" && removed == "" && slices.Contains(a.Tags, added):
		u = undo{a.Path + "/tags", "remove", added}
	case done == "tags" && removed != "" && added == "" && !slices.Contains(a.Tags, removed):
		u = undo{a.Path + "/tags", "add", removed}
	default:
		return nil
	}
	e, ok := lastOwn(r, a.recorded, done)
	if !ok || now.Sub(e.Time) > undoFor || !hmac.Equal([]byte(params.Get(undoName)), []byte(c.undoMAC(r, key, params, e))) {
		return nil
	}
	return &u
}

func disable(s subject) error {
	if !s.e.Disabled() {
		s.then.Set("changed", "true")
	}
	return s.t.Disable(s.r.Context(), s.hint)
}

func enable(s subject) error {
	if s.e.Disabled() {
		s.then.Set("changed", "true")
	}
	return s.t.Enable(s.r.Context(), s.hint)
}

func resetThrottle(s subject) error { return s.t.ResetThrottle(s.r.Context(), s.hint) }

// endSessions ends one session or all sessions of the account.
func endSessions(s subject) error {
	id := s.r.PostFormValue("id")
	if id == "" {
		_, err := s.t.EndSessions(s.r.Context(), s.hint)
		return err
	}
	s.then.Set("tab", "devices")
	s.then.Set("done", "device")
	err := s.t.EndSessionID(s.r.Context(), s.hint, id)
	if isAny(err, userdb.ErrNotFound) { // it has ended meanwhile
		err = nil
	}
	return err
}

const confirmedPassword = "You have confirmed that it is you. Now enter the new password of the account."

// setPassword sets the password of the account. If the form lacks it, because the operator has just
// confirmed the request with their own, the page of the account asks for it.
func setPassword(s subject) error {
	if !s.r.PostForm.Has("password") {
		s.show(func(_ *account, p *page) { p.Done, p.Focus = confirmedPassword, "password" })
		return nil
	}
	password := s.r.PostFormValue("password")
	if password == "" {
		password = " " // so that an empty password is refused as too short
	}
	_, err := s.t.SetPassword(s.r.Context(), s.hint, password)
	return err
}

// changeTags removes a tag, adds one, or does both. The URL of the page that follows says which of
// them changed anything.
func changeTags(s subject) error {
	tags, add, remove := s.t.Tags(s.hint), lineEnds.Replace(strings.TrimSpace(s.r.PostFormValue("add"))), s.r.PostFormValue("remove")
	if strings.Contains(remove, "\n") { // browsers have changed its line ends
		all, err := tags.Members(s.r.Context())
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(all, func(tag string) bool { return sameText(tag, remove) }); i >= 0 {
			remove = all[i]
		}
	}
	if remove != "" {
		n, err := tags.Remove(s.r.Context(), remove)
		if err != nil {
			return err
		}
		if n > 0 {
			s.then.Set("removed", remove)
		}
	}
	if add != "" {
		n, err := tags.Add(s.r.Context(), add)
		if err != nil {
			return err
		}
		if n > 0 {
			s.then.Set("added", add)
		}
	}
	return nil
}

// removeFactors removes a second factor of the account, or all of them, after a confirmation.
func (c *Console) removeFactors(s subject) error {
	id := s.r.PostFormValue("id")
	if s.r.PostFormValue(confirmName) != "" {
		var ids []string
		if id != "" {
			ids = append(ids, id)
		}
		_, err := s.t.ResetFactors(s.r.Context(), s.hint, ids...)
		return err
	}
	all, err := s.t.Factors(s.r.Context(), s.hint)
	if err != nil && !isAny(err, userdb.ErrCorrupt) {
		return err
	}
	q := factorQuestion{Path: accountPath(s.e.Type(), s.e.UID()), Label: accountLabel(s.e, s.declared), ID: id, Last: true}
	for _, f := range newFactors(all).AppsAndPasskeys {
		if id != "" && f.ID != id {
			q.Last = false
		}
		if f.ID == id {
			q.Name = cmp.Or(f.Name, "a factor without a name")
		}
	}
	if id != "" && q.Name == "" {
		s.show(func(_ *account, p *page) {
			p.Problems = []web.Problem{{Code: userdb.CodeNotFound, Text: "The account does not have this part of the second step. It may have been removed just now."}}
		})
		return nil
	}
	title := "Remove the second step?"
	if !q.Last {
		title = "Remove this app or passkey?"
	}
	s.ask(page{Name: "factor-confirm", Title: title, Data: q})
	return nil
}

// A factorQuestion asks whether to remove a second factor, or all of them if ID is "".
type factorQuestion struct {
	Path, Label, ID, Name string
	Last                  bool // nothing but the password is left
}

// replaceAccountCodes replaces the recovery codes of the account, and shows the new ones once.
func (c *Console) replaceAccountCodes(s subject) error {
	codes, err := s.t.ResetRecoveryCodes(s.r.Context(), s.hint)
	if len(codes) == 0 {
		return err
	}
	s.show(func(a *account, _ *page) { a.NewCodes = codes })
	return nil
}

// linkLifetimes maps the choices of the form to lifetimes of a link.
var linkLifetimes = map[string]time.Duration{"": time.Hour, "1h": time.Hour, "24h": admin.MaxLinkLife}

// issue creates a link. The response shows it, and it is never shown again. The link is recorded,
// so that somebody who disables the operator sees for which accounts the operator made links.
func (c *Console) issue(s subject) error {
	token := userdb.Token{Purpose: s.r.PostFormValue("purpose"), Lifetime: linkLifetimes[s.r.PostFormValue("life")]}
	if token.Lifetime == 0 {
		token.Lifetime = time.Hour
	}
	if token.Purpose == "" {
		token.Purpose = resetPurpose
	}
	field, addresses := s.r.PostFormValue("field"), mailAddresses(identifiersOf(s.e, s.declared), s.declared)
	if field == "" && len(addresses) > 0 {
		field = addresses[0].Field
	}
	one := issuedLink{Purpose: token.Purpose}
	ctx := s.r.Context()
	links, err := admin.OpenLinks(s.db)
	if err == nil {
		err = links.Issue(ctx, senderName(s.r), s.e.Key(), token.Lifetime, func() (err error) {
			if field == "" {
				one.Secret, err = s.t.Issue(ctx, s.hint, token)
			} else {
				one.Secret, one.Address, err = s.t.IssueFor(ctx, s.hint, field, token)
			}
			return err
		})
	}
	if err != nil && s.e.Disabled() {
		err = &userdb.FieldError{Err: userdb.ErrInvalid, Field: "purpose", Rule: "disabled", Reason: "a disabled account cannot have links; enable it first"}
	}
	if refused, is := errors.AsType[*userdb.FieldError](err); is && refused.Field == field {
		general := *refused // the page shows the problem above the form, not beside the facet
		general.Field, err = "", &general
	}
	if err != nil {
		return err
	}
	if c.options.ResetLink != "" && token.Purpose == resetPurpose {
		one.Link = strings.Replace(c.options.ResetLink, "{secret}", one.Secret, 1)
	}
	s.show(func(a *account, _ *page) { a.Issued = &one })
	return nil
}
