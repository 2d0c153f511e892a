package transfer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/schema"
)

// isName reports whether a field of a table holds user names, which an account can do without.
func (l *line) isName(field string) bool {
	f := l.t.Schema.Fields[field]
	return l.table && change.IsName(f) && f.Role.Has(schema.RoleSecondary) && !f.Required
}

// checkIdentifiers leaves out user names that are the entry's own address, and finds out whether
// the line has an identifier. unnamed is why a user name was left out before, or nil.
func (im *importer) checkIdentifiers(l *line, unnamed error) {
	identifiers := 0
	for _, field := range l.t.Typed {
		switch wire, has := l.draft.Facets[field]; {
		case has && l.table && strings.Contains(wire, "@") && l.isOwnAddress(field, wire):
			delete(l.draft.Facets, field)
			l.leftOut.name = true
		case has:
			identifiers++
		}
	}
	l.leftOut.name = l.leftOut.name || unnamed != nil
	if identifiers == 0 && len(l.t.Typed) > 0 && l.table && !im.o.WithoutIdentifier {
		l.incomplete = cmp.Or(unnamed, fmt.Errorf("it has no identifier, %s (userdb import --without-identifier imports it without one)", strings.Join(l.t.Typed, " or ")))
	}
}

// isOwnAddress reports whether a line can do without the only value of a secondary field because
// its address is the same.
func (l *line) isOwnAddress(field, wire string) bool {
	several := slices.ContainsFunc(l.values, func(v fieldValues) bool { return v.field == field && len(v.all) > 1 })
	if f := l.t.Schema.Fields[field]; f.HasAddresses() || f.Required || several {
		return false
	}
	for _, other := range l.t.Secondary {
		address, has := l.draft.Facets[other]
		if has && l.t.Schema.Fields[other].HasAddresses() && l.t.Schema.Canonical(address) == l.t.Schema.Canonical(wire) {
			return true
		}
	}
	return false
}

// mayUpdate reports whether a line that cannot create an entry may be about an existing one.
func (im *importer) mayUpdate(l *line) bool {
	return im.o.OnDuplicate != DuplicateFail && l.draft.UID != ""
}

// addOwnFields adds to the draft everything but facets and tertiary records.
func (im *importer) addOwnFields(l *line, r *reading) error {
	if err := l.markVerified(r, im.o.Zone); err != nil {
		return err
	}
	if r.unproven {
		l.setOwn(store.FieldUnproven, "1")
	}
	now := im.Now()
	disabled, err := disabledSince(r.own, now, im.o.Zone)
	if err != nil {
		return err
	}
	changed := r.own[columnChanged]
	if l.statedChange, err = ownDate(changed, im.o.Zone); err != nil {
		return fmt.Errorf("%s: %w", columnChanged, err)
	}
	if err := cmp.Or(im.addHash(l, r), im.addFactors(l, r)); err != nil {
		return err
	}
	switch {
	case l.clearPassword != "":
		changed = cmp.Or(changed, schema.Date(now).Wire())
	case im.o.From != "" && l.leftOut.password:
		changed = ""
	}
	return cmp.Or(l.setOwnDate(store.FieldChanged, changed, now, im.o.Zone), l.setOwnDate(store.FieldDisabled, disabled, now, im.o.Zone))
}

// withoutPassword is the advice on a password that cannot be used.
const withoutPassword = "; userdb import --without-password imports the account without it"

// markOfClear marks passwords that an import has hashed. No hash has this mark.
const markOfClear = "clear"

// addHash adds the password of a line to the draft.
func (im *importer) addHash(l *line, r *reading) error {
	// No hash begins or ends with white space, but people may paste white space with a hash.
	hash, advice, err := unwrapXenForo(strings.TrimSpace(r.own[columnHash])), "", r.hashErr
	if isNoPassword(hash) {
		hash = ""
	}
	if l.clearPassword = r.own[columnClear]; l.clearPassword != "" {
		if hash != "" {
			return errors.New("both a password hash and a clear password")
		}
		l.mark = markOfClear
	}
	if hash != "" {
		if im.o.Prepared != "" { // parseOptions has checked the options
			hash, _ = password.Prepared(im.o.Prepared, im.o.Pepper, hash)
		}
		if err = im.Config.Hashing.HasherFor(l.t).Usable(hash); err != nil {
			err = fmt.Errorf("password: %w", err)
			if im.o.From == "" && !strings.Contains(err.Error(), columnClear) {
				advice = "; a clear password goes into clear_password"
			}
		}
	}
	switch {
	case err != nil && !im.o.WithoutPassword:
		return fmt.Errorf("%w%s%s", err, advice, withoutPassword)
	case err != nil || hash == "":
		l.leftOut.password = l.clearPassword == ""
		return nil
	}
	l.draft.Facets[store.FieldPassword] = hash
	if l.mark = r.mark; !r.marked {
		l.mark = store.ImportMark(hash)
	}
	return nil
}

// isNoPassword reports whether text stands in place of a hash for an account that has no password,
// or whose password is locked, as in /etc/shadow, in Django and in XenForo.
func isNoPassword(text string) bool {
	switch text {
	case "*", "*LK*", "*NP*", "NP", "a:0:{}", "[]":
		return true
	}
	return strings.HasPrefix(text, "!")
}

// xenForoHash matches an array that PHP has serialized and that has nothing but a hash.
var xenForoHash = regexp.MustCompile(`^a:1:\{s:4:"hash";s:(\d{1,3}):"([!-~]+)";\}$`)

// unwrapXenForo returns the hash in the column data of XenForo's accounts, which is an array that
// PHP has serialized, or a JSON object. It returns any other text unchanged.
func unwrapXenForo(text string) string {
	if m := xenForoHash.FindStringSubmatch(text); m != nil && m[1] == strconv.Itoa(len(m[2])) {
		return m[2]
	}
	var object map[string]string
	if strings.HasPrefix(text, "{\"") && json.Unmarshal([]byte(text), &object) == nil && len(object) == 1 && object["hash"] != "" {
		return object["hash"]
	}
	return text
}

// setOwn sets a field of the store's own.
func (l *line) setOwn(field, wire string) {
	if l.draft.Own == nil {
		l.draft.Own = map[string]string{}
	}
	l.draft.Own[field] = wire
}

// markVerified marks facets as verified: those that a line of an export lists, and those whose
// column is true or a date.
func (l *line) markVerified(r *reading, zone *time.Location) error {
	for _, field := range r.verified {
		wire, has := l.draft.Facets[field]
		if !has || field == l.t.Schema.Primary {
			return change.Invalid(field, "verified", "the line has no such facet")
		}
		l.setOwn(store.FieldVerified(field), store.Verified(wire))
	}
	for _, column := range r.flagged {
		field, text := strings.TrimPrefix(column, columnVerified), r.own[column]
		verified, isFlag := parseFlag(text)
		if at, err := ownDate(text, zone); !isFlag && err == nil {
			verified = !at.IsZero()
		} else if !isFlag {
			return flagError(column, text, err)
		}
		if wire, has := l.draft.Facets[field]; verified && has && field != l.t.Schema.Primary {
			l.setOwn(store.FieldVerified(field), store.Verified(wire))
		}
	}
	return nil
}

// parseFlag parses a truth value as databases and spreadsheets write it.
func parseFlag(text string) (value, ok bool) {
	switch strings.ToLower(text) {
	case "1", "t", "true", "yes":
		return true, true
	case "0", "f", "false", "no":
		return false, true
	}
	return false, false
}

// flagError returns the error for text that is neither a truth value nor a date. err is why it is
// not a date.
func flagError(column, text string, err error) error {
	if text[0] >= '0' && text[0] <= '9' || strings.EqualFold(text, "null") {
		return fmt.Errorf("%s: %w", column, err)
	}
	return fmt.Errorf("%s is neither a date nor true or false", column)
}

// disabledSince returns the date since which a line says that its entry is disabled, or "". If the
// line does not say since when, the date is now.
func disabledSince(own map[string]string, now time.Time, zone *time.Location) (string, error) {
	since, enabled := "", false
	for _, column := range []string{columnDisabled, columnFlag, columnEnabled} {
		text := own[column]
		flag, isFlag := parseFlag(text)
		switch {
		case text == "":
		case isFlag && flag != (column == columnEnabled):
			since = cmp.Or(since, schema.Date(now).Wire())
		case isFlag:
			enabled = enabled || column != columnEnabled
		case column == columnDisabled:
			at, err := ownDate(text, zone)
			if err != nil {
				return "", flagError(column, text, err)
			}
			if !at.IsZero() {
				since = text
			}
		default:
			return "", fmt.Errorf("%s is neither true nor false", column)
		}
	}
	if enabled && since != "" {
		return "", errors.New("both disabled and not disabled")
	}
	if own[columnUntil] == "infinity" { // of Postgres
		return cmp.Or(since, schema.Date(now).Wire()), nil
	}
	until, err := ownDate(own[columnUntil], zone)
	if err != nil {
		return "", fmt.Errorf("%s: %w", columnUntil, err)
	}
	if until.After(now) {
		since = cmp.Or(since, schema.Date(now).Wire())
	}
	return since, nil
}

// ownDate parses a date that is not a facet. A text that stands for no date is the zero time. A
// time without a time zone is in zone, which may be nil.
func ownDate(text string, zone *time.Location) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	v, err := schema.ParseText(schema.CodecDate, text)
	if at, isDate := v.Time(); err == nil && isDate {
		return at, nil
	}
	at, _, reason := parseDate(text, zone)
	if reason != "" {
		return time.Time{}, errors.New(reason) // without the text, which may be a password
	}
	return at, nil
}

// setOwnDate sets a field of the store's own to a date; an empty date leaves it out. A future date
// becomes now, since otherwise every session would seem older than its password.
func (l *line) setOwnDate(field, date string, now time.Time, zone *time.Location) error {
	at, err := ownDate(date, zone)
	if err != nil || at.IsZero() {
		return err
	}
	if at.After(now) {
		at = now
	}
	l.setOwn(field, schema.Date(at).Wire())
	return nil
}
