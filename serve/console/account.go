package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// An account holds what the page of an account shows.
type account struct {
	Type, UID, Path, Label string
	Primary                string // name of the field of the UID
	Rev                    string
	Disabled               bool
	Found                  *foundBy // how another form of an identifier led here, or nil
	Why                    explanation
	Guessed                bool   // there are wrong guesses to reset
	Tab                    string // the tab that is shown, "" for the overview
	Names                  []identifier
	Shown                  []cell   // the other facets that have a value, as text
	Unset                  []string // names of facets without a value
	Editing                bool     // show the form
	Fields                 []editor
	Lists                  []valueList // the values of fields that may have several
	Held                   []userdb.HeldValue
	HasTags                bool
	Tags                   []string
	ShownTags              []shownTag // the same tags, with their groups
	Devices                []userdb.Session
	Factors                factors
	FactorsDamaged         bool
	NewCodes               []string // the recovery codes that were just made
	Open                   []userdb.OpenToken
	Addresses              []identifier // mail addresses that a link can be for
	Issued                 *issuedLink  // the link that was just created
	History                []event
	recorded               []userdb.HistoryEvent // the history, before equal events are grouped
	SignIns                []event               // successful and failed sign-ins, for their tab
	Older                  string                // path of the page with older sign-ins, or ""
	Paged                  bool                  // this is not the first page of sign-ins
	Conflict               bool
	Taken                  []match // the accounts that have the values that were refused as taken
}

func (a account) facetNames() (all []string) {
	for _, f := range a.Fields {
		all = append(all, f.Name)
	}
	return all
}

// FieldNames returns the names of the inputs and lists beside which the page shows their problems.
func (a account) FieldNames() []string {
	all := append(a.facetNames(), "password")
	for _, l := range a.Lists {
		all = append(all, rowsName(l.Field))
		if !l.Full() {
			all = append(all, addName(l.Field))
		}
	}
	return all
}

// A tab is a part of the page of an account. The name of the first is "".
type tab struct{ Name, Text string }

// Tabs returns the tabs in their order.
func (account) Tabs() []tab {
	return []tab{{"", "Overview"}, {"signins", "Sign-ins"}, {"devices", "Devices"}, {"history", "History"}}
}

// An identifier holds an identifier that people type.
type identifier struct {
	Field, Text string
	Label       string
	Verified    bool
	Unverified  bool // it does not count as an identifier before it is verified
	First       bool // it is the first of several values
	More        int  // the number of further values of its field that are not shown
}

// A foundBy says how a search led to an account. Path leads to the page that explains it.
type foundBy struct{ Query, ReadAs, Path string }

// An editor describes the input for one facet.
type editor struct {
	Name, Label string
	Stored      string // as text; "" if the facet is absent or empty
	Input       string // "line", "choice" or "area"
	Mode        string // the inputmode of a line: "email", "url", "decimal" or ""
	Hint        string
	Required    bool
	Verified    bool
}

// An issuedLink holds a new link, or only its secret. It is shown once.
type issuedLink struct{ Link, Secret, Address, Purpose string }

// findAccount returns the account in the path. If ok is false, it has sent a response.
func (c *Console) findAccount(w http.ResponseWriter, r *http.Request) (db *userdb.DB, t *userdb.Type, e userdb.Entry, ok bool) {
	db, t, err := c.pathType(r)
	if err == nil {
		e, err = t.Find(r.Context(), hints.UID(r.PathValue("uid")))
	}
	if err != nil {
		c.fail(w, r, err)
	}
	return db, t, e, err == nil
}

func (c *Console) account(w http.ResponseWriter, r *http.Request) {
	db, t, e, ok := c.findAccount(w, r)
	if !ok {
		return
	}
	c.showAccount(w, r, db, t, e, func(a *account, p *page) {
		if r.URL.Query().Has("done") {
			if now, err := c.now(r.Context(), web.Entry(r.Context())); err == nil {
				p.Undo = c.undoOf(r, e.Key(), *a, now)
			}
		}
		if q := r.URL.Query().Get("q"); q != "" && len(q) <= maxQuery {
			declared := db.Schema().Types[t.Name()]
			if readAs := declared.Canonical(q); readAs != q && hasText(e, declared, readAs) {
				a.Found = &foundBy{q, readAs, findPath(q)}
			}
		}
	})
}

// hasText reports whether a text in canonical form is the UID or an identifier of an entry.
func hasText(e userdb.Entry, t schema.Type, canonical string) bool {
	return t.Canonical(e.UID()) == canonical || slices.ContainsFunc(t.Typed(), func(field string) bool {
		return slices.ContainsFunc(e.Texts(field), func(text string) bool { return t.Canonical(text) == canonical })
	})
}

// showAccount sends the page of an account. edit may change what it shows.
func (c *Console) showAccount(w http.ResponseWriter, r *http.Request, db *userdb.DB, t *userdb.Type, e userdb.Entry, edit func(*account, *page)) {
	a, err := c.describeAccount(r, db, t, e)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	p := page{Name: "account", Title: a.Label, RailPath: r.URL.Path, Done: doneMessages[r.URL.Query().Get("done")]}
	p.Copies = a.shortenHead()
	edit(&a, &p)
	a.Editing = a.Editing || a.Conflict || len(p.Problems) > len(p.OtherProblems(a.facetNames()))
	c.opened.add(r, e)
	p.Data = a
	status := statusOf(p.Problems)
	if a.Issued != nil || len(a.NewCodes) > 0 {
		status = http.StatusOK
	}
	c.show(w, r, status, p)
}

// describeAccount collects what the page of an account shows.
func (c *Console) describeAccount(r *http.Request, db *userdb.DB, t *userdb.Type, e userdb.Entry) (account, error) {
	ctx, hint, declared := r.Context(), hints.Key(e.Key()), db.Schema().Types[e.Type()]
	a := account{
		Type: e.Type(), UID: e.UID(), Path: accountPath(e.Type(), e.UID()), Label: accountLabel(e, declared), Rev: e.Rev(), Disabled: e.Disabled(),
		Primary: declared.Primary,
		Fields:  newEditors(e, declared), Lists: newValueLists(e, declared), Held: e.HeldValues(), HasTags: declared.Tertiary["tags"].Kind == "set",
	}
	a.Names = headIdentifiers(identifiersOf(e, declared), a.Lists)
	if r.Method == http.MethodGet && slices.ContainsFunc(a.Tabs(), func(t tab) bool { return t.Name == r.FormValue("tab") }) {
		a.Tab = r.FormValue("tab")
	}
	a.Shown, a.Unset = readFacets(e, declared, a.Fields)
	report, err := reportLogin(ctx, db, t, e)
	if err != nil {
		return a, err
	}
	a.Why, a.Open = report.why, report.status.Tokens
	a.Guessed = report.status.Failures > 0 || report.status.Wait > 0
	a.recorded = report.history
	for _, h := range report.history {
		a.History = append(a.History, event{HistoryEvent: h})
	}
	a.Addresses = mailAddresses(identifiersOf(e, declared), declared)
	switch a.Tab {
	case "devices":
		for s, err := range t.Sessions(ctx, hint) {
			if err != nil {
				return a, err
			}
			a.Devices = append(a.Devices, s)
		}
		return a, nil
	case "signins":
		return a, a.readSignIns(ctx, db, e, r.FormValue("after"))
	case "history":
		a.History = group(a.History)
		return a, nil
	}
	if a.HasTags {
		if a.Tags, err = t.Tags(hint).Members(ctx); err != nil {
			return a, err
		}
		slices.Sort(a.Tags)
		if a.ShownTags, err = showTags(ctx, db, e.Type(), a.Tags); err != nil {
			return a, err
		}
	}
	if len(report.status.SecondStep.Methods) > 0 {
		all, err := t.Factors(ctx, hint)
		if a.FactorsDamaged = errors.Is(err, userdb.ErrCorrupt); err != nil && !a.FactorsDamaged {
			return a, err
		}
		a.Factors = newFactors(all)
	}
	return a, nil
}

// identifiersOf returns the identifiers of an entry that people type, in the order of labelFields.
// Of several values of a field it returns the first.
func identifiersOf(e userdb.Entry, t schema.Type) (all []identifier) {
	for _, field := range labelFields(t) {
		if text := e.Text(field); text != "" && t.Fields[field].IsTyped() {
			all = append(all, identifier{Field: field, Text: text, Verified: e.Verified(field)})
		}
	}
	return all
}

// maxHeadValues limits the values of a field that the head of the page shows.
const maxHeadValues = 5

// headIdentifiers returns identifiers with the other values of their fields, for the head of the
// page.
func headIdentifiers(first []identifier, lists []valueList) (all []identifier) {
	for _, one := range first {
		i := slices.IndexFunc(lists, func(l valueList) bool { return l.Field == one.Field })
		if i < 0 {
			all = append(all, one)
			continue
		}
		values := lists[i].Values
		for _, v := range values[:min(len(values), maxHeadValues)] {
			all = append(all, identifier{
				Field: one.Field, Text: v.Text, Label: v.Label, Verified: v.Verified, Unverified: lists[i].Addresses && !v.Verified, First: v.First && len(values) > 1,
			})
		}
		all[len(all)-1].More = max(len(values)-maxHeadValues, 0)
	}
	return all
}

// shortenHead removes from the head of the page the identifier that the title shows, unless the
// head says more about it. It returns the field whose value only the title shows, or "".
func (a *account) shortenHead() (field string) {
	switch {
	case a.Label == a.UID && len(a.Names) == 0:
		return a.Primary
	case len(a.Names) == 0 || a.Names[0] != identifier{Field: a.Names[0].Field, Text: a.Label}:
		return ""
	}
	field, a.Names = a.Names[0].Field, a.Names[1:]
	return field
}

func mailAddresses(all []identifier, t schema.Type) (some []identifier) {
	for _, one := range all {
		if t.Fields[one.Field].HasAddresses() {
			some = append(some, one)
		}
	}
	return some
}

// signInKinds are the kinds of events on the tab for sign-ins.
var signInKinds = []userdb.EventKind{userdb.EventLogin, userdb.EventLoginFailed, userdb.EventThrottle, userdb.EventFactorLock, userdb.EventPasskeyClone}

// readSignIns reads a page of the sign-ins of an entry, successes and failures.
func (a *account) readSignIns(ctx context.Context, db *userdb.DB, e userdb.Entry, after string) error {
	a.Paged = after != ""
	found, err := db.Events(ctx, userdb.EventQuery{Latest: true, After: after, Kinds: signInKinds, Key: e.Key(), Limit: maxSignIns})
	if isAny(err, userdb.ErrCursor) {
		return nil // events as old as that are no longer kept
	}
	if err != nil {
		return err
	}
	for _, one := range found.Events {
		a.SignIns = append(a.SignIns, event{HistoryEvent: one})
	}
	a.SignIns = group(a.SignIns)
	if found.Next != "" {
		a.Older = a.Path + "?" + url.Values{"tab": {"signins"}, "after": {found.Next}}.Encode()
	}
	return nil
}

// readFacets returns the facets that the page shows as text below its head, undeclared ones last,
// and the names of declared facets without a value.
func readFacets(e userdb.Entry, t schema.Type, editors []editor) (shown []cell, unset []string) {
	for _, one := range editors {
		v, ok := e.Get(one.Name)
		if !ok || one.Stored == "" {
			unset = append(unset, one.Name)
			continue
		}
		if t.Fields[one.Name].Role.Has(schema.RoleSecondary) {
			continue // it is in the head of the page
		}
		c := cell{Column: one.Name, Text: one.Stored}
		c.At, _ = v.Time()
		shown = append(shown, c)
	}
	return append(shown, undeclaredCells(e, t)...), unset
}

// fieldNames returns the sorted names of the declared fields.
func fieldNames(t schema.Type) (all []string) {
	for name := range t.Fields {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// newEditors returns the inputs for the facets of an entry, identifiers first.
func newEditors(e userdb.Entry, t schema.Type) (all []editor) {
	names := fieldNames(t)
	slices.SortStableFunc(names, func(a, b string) int {
		return int(t.Fields[b].Role&schema.RoleSecondary) - int(t.Fields[a].Role&schema.RoleSecondary)
	})
	for _, name := range names {
		// Nobody types the values of other secondary fields.
		if f := t.Fields[name]; !f.Role.Has(schema.RoleSecondary) || f.IsTyped() {
			all = append(all, newEditor(e, name, f))
		}
	}
	if t.Open {
		for name := range e.Fields() {
			if _, ok := t.Fields[name]; !ok && name != t.Primary && !strings.HasPrefix(name, "~") {
				all = append(all, newEditor(e, name, schema.Field{}))
			}
		}
	}
	return all
}

// newEditor returns the input for one facet. A line has type="text", because browsers rewrite the
// value of an input of type email (ß becomes ss in a domain), url or number, and the form would
// save that.
func newEditor(e userdb.Entry, name string, f schema.Field) editor {
	one := editor{Name: name, Label: name, Stored: e.Text(name), Input: "line", Required: f.Required, Verified: e.Verified(name)}
	switch {
	case f.Codec == schema.CodecBoolean:
		one.Input = "choice"
	case strings.ContainsAny(one.Stored, "\r\n") || len(one.Stored) > 200:
		one.Input = "area"
	case f.Codec == schema.CodecNumber:
		one.Mode = "decimal"
	case f.Codec == schema.CodecDate:
		one.Hint = "such as 2026-11-20T08:02:40Z"
	case f.Codec == schema.CodecJSON:
		one.Input, one.Hint = "area", "JSON"
	case f.HasAddresses():
		one.Mode = "email"
	case f.Kind == "url":
		one.Mode = f.Kind
	}
	if len(e.Texts(name)) > 1 {
		one.Hint = "the first of several values"
	}
	return one
}

// undeclaredCells returns the facets that the schema does not declare, and the values that a repair
// took out of their fields.
func undeclaredCells(e userdb.Entry, t schema.Type) (all []cell) {
	for name, v := range e.Flat() {
		_, declared := t.Fields[name]
		facet := !strings.HasPrefix(name, "~") && !declared && name != t.Primary && !t.Open
		if facet || strings.HasPrefix(name, "~lost:") {
			all = append(all, cell{Column: name, Text: v.Text()})
		}
	}
	slices.SortFunc(all, func(a, b cell) int { return strings.Compare(a.Column, b.Column) })
	return all
}

// edit saves the facets that the operator changed, provided the account still has the revision that
// the form shows. It asks for confirmation first if an identifier changes.
func (c *Console) edit(w http.ResponseWriter, r *http.Request) {
	db, t, e, ok := c.findAccount(w, r)
	if !ok {
		return
	}
	form, declared := r.PostForm, db.Schema().Types[t.Name()]
	sent, rev := form["rev"], ""
	if len(sent) > 0 {
		rev, sent = sent[0], sent[1:]
	}
	if delete(form, "rev"); len(sent) > 0 { // the second value is that of a facet named rev
		form["rev"] = sent
	}
	question, err := newQuestion(r, t, e, declared, rev)
	if err == nil && len(question.Changes) > 0 && form.Get(confirmName) == "" {
		title := confirmTitle
		if question.OnlyMail {
			title = mailTitle
		}
		c.show(w, r, http.StatusOK, page{Name: "edit-confirm", Title: title, Data: question})
		return
	}
	if err == nil {
		_, err = t.Update(r.Context(), hints.Key(e.Key()), func(e *userdb.Entry) error {
			if e.Rev() != rev {
				return userdb.ErrConflict
			}
			applyEntered(e, newEditors(*e, declared), declared, form)
			return nil
		})
	}
	if errors.Is(err, userdb.ErrConflict) && c.hasEntered(r, t, e, declared) {
		err = nil // after a double click, the first form has saved it
	}
	e, problems, ok := c.respondSaved(w, r, t, e, err)
	if !ok {
		return
	}
	c.showAccount(w, r, db, t, e, func(a *account, p *page) {
		p.Problems, p.Form = problems, form
		a.Conflict = errors.Is(err, userdb.ErrConflict)
		a.Taken = findOwners(r, db, t, problems, form)
		if !a.Conflict { // what was entered belongs to the revision that the form shows
			a.Rev = rev
			return
		}
		for _, one := range a.Fields { // the next form shows what is stored now
			if _, changed := enteredChange(form, one); !changed {
				delete(form, one.Name)
			}
			delete(form, shownName(one.Name))
		}
	})
}

// hasEntered reports whether an account has everything that was entered in a form by now.
func (c *Console) hasEntered(r *http.Request, t *userdb.Type, e userdb.Entry, declared schema.Type) bool {
	now, err := t.Find(r.Context(), hints.Key(e.Key()))
	if err != nil {
		return false
	}
	for _, one := range newEditors(now, declared) {
		entered, changed := enteredChange(r.PostForm, one)
		if changed && now.Text(one.Name) != parseEntered(declared, one, entered).Text() {
			return false
		}
	}
	return true
}

// respondSaved responds to a form that changed the account e with the result err. If the page of
// the account must show problems, respondSaved sends no response, but returns the problems and
// true. After a conflict, it returns the account as it is now in place of e.
func (c *Console) respondSaved(w http.ResponseWriter, r *http.Request, t *userdb.Type, e userdb.Entry, err error) (userdb.Entry, []web.Problem, bool) {
	if err == nil {
		http.Redirect(w, r, accountPath(e.Type(), e.UID())+"?done=saved", http.StatusSeeOther)
		return e, nil, false
	}
	if errors.Is(err, userdb.ErrConflict) {
		if e, err = t.Find(r.Context(), hints.Key(e.Key())); err == nil {
			err = userdb.ErrConflict
		}
	}
	problems := web.Problems(err)
	if isServiceProblem(problems) || isAny(err, userdb.ErrNotFound) {
		c.fail(w, r, err)
		return e, nil, false
	}
	return e, problems, true
}

// confirmName is the name of the input that confirms a change of identifiers or mail addresses. No
// facet has such a name.
const confirmName = "~confirm"

// shownName returns the name of the input that holds the text that the form showed for a facet.
func shownName(field string) string { return "~shown:" + field }

// enteredChange returns the text that was entered for a facet, and reports whether it differs from
// the text that the form showed. The browser sends both. If it cannot send a text unchanged, it
// alters both of them in the same way, so the facet does not count as changed. If a program does
// not send the text that was shown, the stored text takes its place.
func enteredChange(form map[string][]string, one editor) (entered string, changed bool) {
	sent, shown := form[one.Name], one.Stored
	if before := form[shownName(one.Name)]; len(before) > 0 {
		shown = before[0]
	}
	if len(sent) == 0 || sameText(sent[0], shown) {
		return "", false
	}
	return sent[0], true
}

const (
	confirmTitle = "Change how this account is found?"
	mailTitle    = "Change where mail to this account goes?"
)

// A question asks whether to change identifiers or mail addresses, and carries the submitted form.
type question struct {
	Path, Back, Label string // Path is where the form goes, Back the page of the account
	Changes           []identifierChange
	Inputs            []input

	Unverified []string // mail addresses that do not count before they are verified
	None       bool     // the account has no identifier left
	OnlyMail   bool     // no identifier changes, only mail addresses in other fields
}

// An identifierChange says that a value of a field is replaced, removed or set.
type identifierChange struct {
	Field, From, To string
	Added           bool // To is added after other values
	First           bool // To is another value of the field, which becomes the first
}

// newQuestion returns the changes of identifiers and mail addresses in a form, and the error that
// saving them would return. Applications may send secrets to a mail address even if it is not an
// identifier.
func newQuestion(r *http.Request, t *userdb.Type, e userdb.Entry, declared schema.Type, rev string) (question, error) {
	form, editors := r.PostForm, newEditors(e, declared)
	q := question{Path: accountPath(e.Type(), e.UID()), Label: accountLabel(e, declared), Inputs: []input{{Name: "rev", Value: rev}}, OnlyMail: true}
	q.Back = q.Path
	after := e
	applyEntered(&after, editors, declared, form)
	for _, one := range editors {
		for _, name := range []string{shownName(one.Name), one.Name} {
			if sent := form[name]; len(sent) > 0 {
				q.Inputs = append(q.Inputs, input{Name: name, Value: sent[0]})
			}
		}
		entered, changed := enteredChange(form, one)
		f := declared.Fields[one.Name]
		identifies := f.Role.Has(schema.RoleSecondary)
		if changed && identifies {
			q.OnlyMail = false
		}
		switch {
		case !changed || !identifies && !f.HasAddresses():
		case f.MaxValues() > 1:
			q.Changes = append(q.Changes, compareValues(one.Name, e.Texts(one.Name), after.Texts(one.Name))...)
		default:
			q.Changes = append(q.Changes, identifierChange{Field: one.Name, From: one.Stored, To: entered})
		}
	}
	if len(q.Changes) == 0 {
		return q, nil
	}
	if e.Rev() != rev {
		return q, userdb.ErrConflict
	}
	if !q.OnlyMail {
		q.warn(e, after, declared)
	}
	return q, t.Check(r.Context(), after)
}

// applyEntered writes the texts that were entered in a form to an entry.
func applyEntered(e *userdb.Entry, editors []editor, t schema.Type, form map[string][]string) {
	for _, one := range editors {
		entered, changed := enteredChange(form, one)
		if !changed {
			continue
		}
		if entered == "" {
			if t.Fields[one.Name].MaxValues() > 1 { // the form shows only the first
				e.DropText(one.Name, one.Stored)
			} else {
				e.Drop(one.Name)
			}
			continue
		}
		e.Put(one.Name, parseEntered(t, one, entered))
	}
}

// parseEntered returns the value that was entered for a facet, or the text if the codec cannot
// parse it. Saving the entry then refuses the text, together with everything else that is wrong.
func parseEntered(t schema.Type, one editor, entered string) schema.Value {
	if !strings.Contains(one.Stored, "\r") {
		entered = lineEnds.Replace(entered)
	}
	v, err := schema.ParseText(t.Codec(one.Name), entered)
	if err != nil {
		return schema.Text(entered)
	}
	return v
}

// lineEnds replaces the line ends that forms send, which have two characters, with one.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// sameText reports whether two texts are equal apart from their line ends.
func sameText(a, b string) bool { return lineEnds.Replace(a) == lineEnds.Replace(b) }

// findOwners returns the accounts that have the values that were refused as taken, with the
// records that prove it.
func findOwners(r *http.Request, db *userdb.DB, t *userdb.Type, problems []web.Problem, form map[string][]string) (all []match) {
	for _, p := range problems {
		if p.Rule != "taken" || len(form[p.Field]) == 0 {
			continue
		}
		value := form[p.Field][0]
		e, err := t.Find(r.Context(), hints.Any(value))
		if err != nil {
			continue // the value has become free
		}
		m := matchOf(e, db.Schema().Types[t.Name()], value)
		if m.Claims, err = inspect.Claims(r.Context(), db, t.Name(), value); err == nil {
			all = append(all, m)
		}
	}
	return all
}
