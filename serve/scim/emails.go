package scim

import (
	"slices"
	"strings"

	filter "github.com/scim2/filter-parser/v2"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// If the field that emails is mapped to may have several values, the attribute emails shows all of
// them. The first is userName and the primary address.

// maxNamed limits the addresses that a request names in its values and filters.
const maxNamed = 200

// An address is one value of emails.
type address struct {
	text, canonical string
	kind            string // type, or ""
}

// showsSeveral reports whether emails may have several values.
func (r *collection) showsSeveral() bool {
	return r.schema.Fields[r.fields["emails"]].MaxValues() > 1
}

// writesSeveral reports whether requests may set several values of emails.
func (r *collection) writesSeveral() bool { return r.showsSeveral() && r.h.options.mapsEmails() }

// addresses returns the addresses of a user, the primary one first.
func (r *collection) addresses(e userdb.Entry) (all []address) {
	for _, v := range e.TextValues(r.fields["emails"]) {
		all = append(all, address{v.Text, r.schema.Canonical(v.Text), v.Label})
	}
	return all
}

// kindOf returns the type of an address. A primary address without a type counts as type work,
// unless another address has that type. Users with only one address rarely have a type for it.
func kindOf(all []address, i int) string {
	isWork := func(a address) bool { return strings.EqualFold(a.kind, workKind) }
	if i == 0 && all[0].kind == "" && !slices.ContainsFunc(all, isWork) {
		return workKind
	}
	return all[i].kind
}

const workKind = "work"

// emailsResource returns addresses as they appear in a resource.
func emailsResource(all []address) []any {
	out := make([]any, len(all))
	for i, a := range all {
		one := map[string]any{"value": a.text, "primary": i == 0}
		if kind := kindOf(all, i); kind != "" {
			one["type"] = kind
		}
		out[i] = one
	}
	return out
}

// An addressEdit holds the changes that a request makes to emails, if emails may have several
// values.
type addressEdit struct {
	steps []addressStep
	count int // addresses in values and filters
}

// An addressStep is one operation on emails.
type addressStep struct {
	op     string         // add, remove, replace
	which  []condition    // selects addresses; nil means emails as a whole
	values []givenAddress // at most one if which is not nil
}

// A condition compares a sub-attribute of an address. A step selects the addresses that meet all
// its conditions.
type condition struct {
	sub     string // type, value, primary
	text    string
	primary bool
}

// A givenAddress holds the members of an address in a request; nil means that a member is missing.
type givenAddress struct {
	text, kind *string
	primary    *bool
}

// inList returns v without "primary": false. A directory that sends an address twice, with two
// types, marks one of the two as not primary, so false says nothing about the address.
func (v givenAddress) inList() givenAddress {
	if v.primary != nil && !*v.primary {
		v.primary = nil
	}
	return v
}

// primaryOnly selects the primary address.
var primaryOnly = []condition{{sub: "primary", primary: true}}

// add adds an operation of a PATCH, or the emails of a resource, to the edit.
func (a *addressEdit) add(s step) (err error) {
	if sub := s.at.sub; sub != "" && !has([]string{"value", "type", "primary", "display"}, sub) {
		return pathError(s.at.path)
	}
	one := addressStep{op: s.op}
	if one.which, err = a.conditions(s.at.which); err != nil {
		return err
	}
	if s.at.sub != "" && one.which == nil {
		one.which = primaryOnly
	}
	switch sub := s.at.sub; {
	case sub == "display": // not stored
		return nil
	case sub == "type" || sub == "primary":
		if s.op == "remove" {
			s.v = nil
		}
		one.values, err = parseAddresses(map[string]any{sub: s.v}, sub)
	case sub == "value" && s.op != "remove" && s.v != nil && s.v != "":
		one.values, err = parseAddresses(map[string]any{"value": s.v}, "value")
	case sub == "value" || s.v == nil || s.op == "remove" && one.which != nil: // removes
		if s.op == "add" && sub == "" {
			return nil // nothing to add
		}
	case one.which != nil:
		if one.values, err = parseAddresses(s.v, ""); err == nil && len(one.values) != 1 {
			err = badRequest(invalidValue, "%s requires one address", quoted(s.at.path))
		}
	default:
		one.values, err = parseAddresses(s.v, "value")
		if len(one.values) == 0 && s.op == "remove" {
			return err // an empty list
		}
	}
	if err != nil {
		return err
	}
	if a.count += len(one.values); a.count > maxNamed {
		return errTooManyNamed
	}
	a.steps = append(a.steps, one)
	return nil
}

var errTooManyNamed = badRequest(invalidValue, "the request names more than %d emails", maxNamed)

// conditions returns the conditions of a filter on emails.
func (a *addressEdit) conditions(which filter.Expression) ([]condition, error) {
	switch f := which.(type) {
	case nil:
		return nil, nil
	case *filter.LogicalExpression:
		left, err := a.conditions(f.Left)
		if err != nil || f.Operator != filter.AND {
			return nil, errAddressFilter
		}
		right, err := a.conditions(f.Right)
		return append(left, right...), err
	case *filter.AttributeExpression:
		if name := attributeName("", f.AttributePath); name == "primary" && f.Operator == filter.EQ {
			if primary, ok := parseBool(f.CompareValue); ok {
				return []condition{{sub: name, primary: primary}}, nil
			}
		}
		name, text, err := parseComparison("", f)
		if err != nil || name != "type" && name != "value" {
			return nil, errAddressFilter
		}
		if a.count++; a.count > maxNamed {
			return nil, errTooManyNamed
		}
		return []condition{{sub: name, text: text}}, nil
	}
	return nil, errAddressFilter
}

var errAddressFilter = badRequest(invalidFilter, `a filter on emails may only compare type, value and primary with "eq", and combine comparisons with "and"`)

// parseAddresses reads one address or a list of them. If required is "value", each must have a
// value. If it is "type", an address without a type gets an empty one.
func parseAddresses(v any, required string) (all []givenAddress, err error) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	if len(list) > maxNamed {
		return nil, errTooManyNamed
	}
	for _, one := range list {
		m, ok := one.(map[string]any)
		if !ok {
			return nil, badRequest(invalidValue, "emails must be objects")
		}
		var a givenAddress
		if a.text, err = stringMember(m, "value"); err != nil {
			return nil, err
		}
		if a.kind, err = stringMember(m, "type"); err != nil {
			return nil, err
		}
		if given := lookupFold(m, "primary"); given != nil {
			primary, ok := parseBool(given)
			if !ok {
				return nil, badRequest(invalidValue, "primary must be true or false")
			}
			a.primary = &primary
		}
		switch {
		case a.text != nil && (*a.text == "" || len(*a.text) > schema.MaxFacet), a.text == nil && required == "value":
			return nil, badRequest(invalidValue, "emails must have a value of at most 64 KiB")
		case a.kind == nil && required == "type":
			a.kind = new("")
		}
		all = append(all, a)
	}
	return all, nil
}

// stringMember returns the text of a member, or nil if there is none. The case of its name makes no
// difference.
func stringMember(m map[string]any, name string) (*string, error) {
	v := lookupFold(m, name)
	text, ok := v.(string)
	switch {
	case v == nil:
		return nil, nil
	case !ok:
		return nil, badRequest(invalidValue, "%s of emails must be a string", name)
	}
	return &text, nil
}

// An addressList holds the addresses of a user while a request changes them.
type addressList struct {
	t     schema.Type
	field string
	all   []address

	// setsUserName means that the request sets userName. Then userName is the first address, even
	// if the request calls another one primary, as Entra ID does with the work address.
	setsUserName bool

	// Canonical forms of the addresses that the request sets, removes by their values, marks as
	// primary, and marks as not primary.
	set, gone, primary, notPrimary []string
}

// editAddresses returns the addresses of a user after an edit.
func (c *call) editAddresses(before []address, e *edit) ([]address, error) {
	l := addressList{t: c.schema, field: c.fields["emails"], all: slices.Clone(before)}
	if name := e.attributes["username"]; name != nil {
		l.rename(*name)
	}
	for _, s := range e.addresses.steps {
		if err := l.apply(s); err != nil {
			return nil, err
		}
	}
	err := l.finish() // which removes addresses
	return l.all, err
}

// changeAddresses changes the addresses of e according to an edit.
func (c *call) changeAddresses(e *userdb.Entry, edit *edit) error {
	before := c.addresses(*e)
	after, err := c.editAddresses(before, edit)
	if err != nil || slices.Equal(before, after) {
		return err
	}
	texts, labels := valuesOf(after)
	e.SetTexts(c.fields["emails"], texts...)
	for _, v := range e.TextValues(c.fields["emails"]) {
		if label := labels[v.Text]; label != v.Label {
			e.SetLabel(c.fields["emails"], v.Text, label)
		}
	}
	return nil
}

// valuesOf returns the texts of addresses, and their labels by text.
func valuesOf(all []address) (texts []string, labels map[string]string) {
	labels = map[string]string{}
	for _, a := range all {
		texts = append(texts, a.text)
		labels[a.text] = a.kind
	}
	return texts, labels
}

func (l *addressList) newAddress(text string) address {
	if l.t.Fields[l.field].HasAddresses() {
		text = strings.TrimSpace(text)
	}
	return address{text: text, canonical: l.t.Canonical(text)}
}

// indexOf returns the index of the address with a canonical form, or -1.
func (l *addressList) indexOf(canonical string) int {
	return slices.IndexFunc(l.all, func(a address) bool { return a.canonical == canonical })
}

func (l *addressList) removeAt(i int) { l.all = slices.Delete(l.all, i, i+1) }

// moveToFront makes the address at an index the first one.
func (l *addressList) moveToFront(i int) {
	a := l.all[i]
	l.removeAt(i)
	l.all = slices.Insert(l.all, 0, a)
}

// rename replaces the first address with userName.
func (l *addressList) rename(userName string) {
	a := l.newAddress(userName)
	l.setsUserName, l.set = true, append(l.set, a.canonical)
	if len(l.all) == 0 {
		l.all = []address{a}
		return
	}
	if i := l.indexOf(a.canonical); i > 0 {
		l.all[0] = l.all[i]
		l.removeAt(i)
	}
	a.kind = l.all[0].kind
	l.all[0] = a
}

func (l *addressList) apply(s addressStep) error {
	switch {
	case s.which != nil && len(s.values) == 0:
		l.removeSelected(s.which)
	case s.which != nil:
		return l.changeSelected(s)
	case len(s.values) == 0 && s.op != "add":
		l.all = l.all[:min(1, len(l.all))]
	case s.op == "replace":
		l.replaceAll(s.values)
	default:
		for _, v := range s.values {
			a := l.newAddress(*v.text)
			if s.op == "remove" {
				l.gone = append(l.gone, a.canonical)
				continue
			}
			l.addOne(a, v)
		}
	}
	return nil
}

// addOne adds an address unless the user has it, and sets its type and primary from the request.
func (l *addressList) addOne(a address, v givenAddress) {
	l.set = append(l.set, a.canonical)
	i := l.indexOf(a.canonical)
	if i < 0 {
		i = len(l.all)
		l.all = append(l.all, a)
	}
	if v.kind != nil {
		l.all[i].kind = *v.kind
	}
	l.setPrimary(i, v.inList())
}

// setPrimary makes the address at an index the first if the request marks it as primary and does
// not set userName.
func (l *addressList) setPrimary(i int, v givenAddress) {
	canonical := l.all[i].canonical
	switch {
	case v.primary == nil:
	case !*v.primary:
		l.notPrimary = append(l.notPrimary, canonical)
	default:
		if l.primary = append(l.primary, canonical); !l.setsUserName {
			l.moveToFront(i)
		}
	}
}

// replaceAll replaces the user's addresses with the given ones.
func (l *addressList) replaceAll(values []givenAddress) {
	before := l.all
	l.all = nil
	for _, v := range values {
		a := l.newAddress(*v.text)
		if i := l.indexOf(a.canonical); i >= 0 && l.all[i].kind != "" {
			v.kind = nil // the first of its types counts
		}
		l.addOne(a, givenAddress{text: v.text, kind: v.kind})
	}
	isPrimary := func(v givenAddress) bool { return v.primary != nil && *v.primary }
	if len(before) > 0 && (l.setsUserName || !slices.ContainsFunc(values, isPrimary)) {
		l.putFirst(before[0])
	}
	for _, v := range values {
		l.setPrimary(l.indexOf(l.newAddress(*v.text).canonical), v.inList())
	}
}

// putFirst chooses the first address and moves it to the front, for a request that sets userName or
// marks no address as primary. was is the first address so far. It stays first if it is among the
// new addresses or is userName. Otherwise an address of type work becomes the first, or else one
// without a type. If all have other types, was is added again and stays first, so that the user is
// not renamed.
func (l *addressList) putFirst(was address) {
	ofKind := func(kind string) int {
		return slices.IndexFunc(l.all, func(a address) bool { return strings.EqualFold(a.kind, kind) })
	}
	i := l.indexOf(was.canonical)
	if i < 0 && !l.setsUserName {
		if i = ofKind(workKind); i < 0 {
			i = ofKind("")
		}
	}
	if i < 0 {
		if ofKind(was.kind) >= 0 {
			was.kind = ""
		}
		i = len(l.all)
		l.all = append(l.all, was)
	}
	if l.moveToFront(i); l.setsUserName {
		l.all[0].text = was.text
	}
}

// selected returns the indexes of the addresses that meet all conditions.
func (l *addressList) selected(which []condition) (found []int) {
	for i := range l.all {
		found = append(found, i)
	}
	for _, c := range which {
		canonical := ""
		if c.sub == "value" {
			canonical = l.newAddress(c.text).canonical
		}
		found = slices.DeleteFunc(found, func(i int) bool {
			switch c.sub {
			case "type":
				return !strings.EqualFold(kindOf(l.all, i), c.text)
			case "value":
				return l.all[i].canonical != canonical
			}
			return c.primary != (i == 0)
		})
	}
	return found
}

func hasCondition(which []condition, sub string) bool {
	return slices.ContainsFunc(which, func(c condition) bool { return c.sub == sub })
}

// removeSelected removes the addresses that meet all conditions, except the first, which is also
// userName. If a condition names a value, removeSelected leaves the removal to finish, which
// refuses to remove the first address.
func (l *addressList) removeSelected(which []condition) {
	for _, i := range slices.Backward(l.selected(which)) {
		switch {
		case hasCondition(which, "value"):
			l.gone = append(l.gone, l.all[i].canonical)
		case i > 0:
			l.removeAt(i)
		}
	}
}

// changeSelected changes the addresses that meet all conditions. If the request has a value, one
// address with that value replaces them. That address is added if no address meets the conditions
// and no condition names a value.
func (l *addressList) changeSelected(s addressStep) error {
	found, v := l.selected(s.which), s.values[0]
	if len(found) == 0 && s.op == "remove" {
		return nil
	}
	if len(found) == 0 && (v.text == nil || hasCondition(s.which, "value")) {
		return badRequest(noTarget, "no value of emails matches the filter")
	}
	if v.text != nil {
		a := l.newAddress(*v.text)
		for _, c := range s.which {
			if c.sub == "type" {
				a.kind = c.text
			}
		}
		if len(found) == 0 && slices.Contains(s.which, primaryOnly[0]) {
			v.primary = new(true)
		}
		l.set = append(l.set, a.canonical)
		found = []int{l.put(a, found)}
	}
	for _, i := range found {
		if v.kind != nil {
			l.all[i].kind = *v.kind
		}
	}
	if len(found) > 1 && v.primary != nil && *v.primary {
		return badRequest(invalidValue, "only one of emails can be primary")
	}
	for _, i := range found {
		l.setPrimary(i, v)
	}
	return nil
}

// put replaces the addresses at the given indexes, which are in ascending order, with the address
// a, and returns its index. If the request sets userName, put does not replace userName with
// another address. If no index is left, it adds the address, unless the user has it already.
func (l *addressList) put(a address, found []int) int {
	if l.setsUserName && len(found) > 0 && found[0] == 0 && l.all[0].canonical != a.canonical {
		if found = found[1:]; strings.EqualFold(l.all[0].kind, a.kind) {
			l.all[0].kind = "" // the type moves to the new address
		}
	}
	at, old := len(l.all), l.indexOf(a.canonical)
	switch {
	case len(found) > 0 && old != 0:
		at = found[0]
	case old >= 0:
		at = old
	}
	if old >= 0 && !slices.Contains(found, old) {
		a.text = l.all[old].text // keep the spelling, to which a verification applies
	}
	if a.kind == "" && at < len(l.all) {
		a.kind = l.all[at].kind
	}
	if at == len(l.all) {
		l.all = append(l.all, a)
	} else {
		l.all[at] = a
	}
	var rest []address
	for i, other := range l.all {
		if i == at || !slices.Contains(found, i) && i != old {
			rest = append(rest, other)
		}
	}
	l.all = rest
	return l.indexOf(a.canonical)
}

// finish removes the addresses that the request removes by their values. It returns an error if one
// of them is the first, or if the request contradicts itself.
func (l *addressList) finish() error {
	for _, canonical := range l.gone {
		switch i := l.indexOf(canonical); {
		case has(l.set, canonical):
			return errContradiction
		case i == 0:
			return badRequest(mutability, "the primary address is also userName; make another one primary before it is removed")
		case i > 0:
			l.removeAt(i)
		}
	}
	for _, canonical := range l.set {
		if l.indexOf(canonical) < 0 {
			return errContradiction
		}
	}
	for _, canonical := range l.primary {
		if canonical != l.primary[0] || has(l.notPrimary, canonical) || !l.setsUserName && canonical != l.all[0].canonical {
			return errContradiction
		}
	}
	return nil
}

var errContradiction = badRequest(invalidValue, "the operations on emails contradict each other")
