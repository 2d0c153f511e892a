package userdb

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/hashpool"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A NewEntry describes an entry to create. The zero NewEntry is an entry with a generated UID and
// no facets.
type NewEntry struct {
	// UID is the primary value. If "", Create uses the next one from Options.NewUID that is free.
	UID string

	// Facets holds the facets without the primary one.
	Facets schema.Facets

	// Values holds all values of secondary fields that may have several, by field. The first one is
	// the facet, which may be missing in Facets.
	Values map[string][]string

	// Labels holds the labels of Values, by field and value; see SetLabel.
	Labels map[string]map[string]string

	// Tags holds the members of the tertiary set "tags", which the schema must declare.
	Tags []string

	// Sets holds the members of tertiary sets by name, with at most 10,000 in all, including Tags.
	// If it also names the set "tags", the entry has the members of both.
	Sets map[string][]string

	// Password is the password. If it is "" and RequirePassword is not set, the entry cannot log in
	// until SetPassword is called.
	Password string

	// RequirePassword makes Create refuse an empty Password.
	RequirePassword bool

	// Problems is what the caller has found wrong with the input, such as the error of web.Decode.
	// If it is not nil, no entry is created. If it consists of *FieldError and
	// *password.PolicyError, Create returns it joined with all other problems that it finds;
	// otherwise Create returns it alone.
	Problems error

	// Disabled says that the entry cannot log in until Enable.
	Disabled bool

	// SelfRegistered says that a visitor created the entry without proving that they own its
	// identifiers. Set it for a sign-up without mail, so that nobody who registers the address of
	// another person keeps access. Until an address is verified, no second factor and no further
	// identifier can be added (ErrUnproven), and an entry that gives up its address loses its tags.
	// The first mailed token that is redeemed removes the password, the sessions and other tokens,
	// and other identifiers of the entry; see Redeem and InSession. AcceptInvitation, which
	// verifies an address, ignores SelfRegistered.
	SelfRegistered bool
}

// maxUIDAttempts is how many generated UIDs may be taken before Create gives up.
const maxUIDAttempts = 16

var errNoFreeUID = errors.New("the UID generator returns only UIDs that are taken")

// RandomUID returns a generator of UIDs of n hexadecimal digits from a cryptographic source. n is
// from 8 to 64; 12 digits are 48 bits. If a UID is taken, Create asks the generator for another, so
// two entries never share a UID.
func RandomUID(n int) func() (string, error) {
	return func() (string, error) {
		if n < 8 || n > 64 {
			return "", fmt.Errorf("a UID of %d digits: want 8 to 64", n)
		}
		b := make([]byte, (n+1)/2)
		rand.Read(b) // never returns an error
		return hex.EncodeToString(b)[:n], nil
	}
}

// added is the field that Create sets to the current time if the schema declares it as a date. The
// original, coffeenode-userdb 0.0.10, sets it as well.
const added = "added"

// Create creates an entry with its SRKs, index members and tags, in one change or not at all. It
// returns the entry as written.
//
// The error is a *FieldError that wraps ErrDuplicate if a value is taken, a *FieldError that wraps
// ErrInvalid if a value breaks a rule, and a *password.PolicyError if the policy refuses the
// password. If there are several problems, they are joined (see errors.Join), so that a form can
// show all of them.
func (t *Type) Create(ctx context.Context, n NewEntry) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "Create", &err)
	defer v.end(&err)
	err = t.retryOnSchemaChange(ctx, func(t *Type) (err error) {
		e, err = t.create(ctx, n)
		return err
	})
	return e, err
}

// create creates an entry under the schema of t.
func (t *Type) create(ctx context.Context, n NewEntry) (Entry, error) {
	d, err := t.newDraft(ctx, n)
	if err != nil {
		return Entry{}, publicError(err)
	}
	for range maxUIDAttempts {
		if n.UID == "" {
			if d.UID, err = t.db.options.NewUID(); err != nil {
				return Entry{}, err
			}
		}
		r, err := t.createDraft(ctx, d, n.UID == "" && t.db.options.randomUIDs, token.Ending{})
		if n.UID == "" && t.isTakenUID(publicError(err)) {
			continue
		}
		return t.entryAsWritten(r, t.draftProblems(ctx, err, d))
	}
	return Entry{}, errNoFreeUID
}

// createDraft creates the entry of a draft, in a change that also spends or ends tokens. The record
// that it returns shares d.Facets. fresh is store.Change.Fresh.
func (t *Type) createDraft(ctx context.Context, d change.Draft, fresh bool, tokens token.Ending) (r store.Record, err error) {
	c, err := t.declared.Create(d)
	if err != nil {
		return r, err
	}
	c.Fresh, c.Tokens = fresh, tokens
	rev, err := t.view.Apply(ctx, t.declared, c)
	if committed(err) {
		r = change.ApplyInPlace(d.Facets, c, rev)
		t.db.emit(ctx, Event{Kind: EventCreate, Key: c.Key})
	}
	return r, err
}

// isTakenUID reports whether a create was refused because its UID is taken.
func (t *Type) isTakenUID(err error) bool {
	taken, ok := errors.AsType[*FieldError](err)
	return ok && errors.Is(taken, ErrDuplicate) && taken.Field == t.current().declared.Schema.Primary
}

// draftProblems calls allProblems for the entry of a draft.
func (t *Type) draftProblems(ctx context.Context, err error, d change.Draft) error {
	if err == nil {
		return nil
	}
	return t.allProblems(ctx, err, t.newRecordAt(d.UID), d.Fields())
}

// newRecordAt returns a record that holds only the key of an entry to be created. In a search for
// taken values, those of an entry with the same UID do not count.
func (t *Type) newRecordAt(uid string) (r store.Record) {
	r.Key, _ = t.declared.PRK(uid)
	return r
}

// newDraft checks and encodes a NewEntry.
func (t *Type) newDraft(ctx context.Context, n NewEntry) (change.Draft, error) {
	d := change.Draft{UID: n.UID, Facets: make(map[string]string, len(n.Facets)+change.OwnFields)}
	wrong, ofInput := problemsIn(n.Problems)
	if !ofInput || n.Problems != nil && len(wrong) == 0 { // such as an error that joins none
		return d, n.Problems
	}
	if _, given := n.Facets[t.declared.Schema.Primary]; given {
		return d, invalid(t.declared.Schema.Primary, "primary", "the UID must not be among the facets")
	}
	for _, field := range sortedKeys(n.Values) {
		if other := wrong.add(t.encodeNewTexts(&d, n, field)); other != nil {
			return d, other
		}
	}
	for _, field := range sortedKeys(n.Facets) {
		if len(n.Values[field]) > 0 {
			continue
		}
		if other := wrong.add(t.declared.EncodeFacet(d.Facets, field, n.Facets[field], nil)); other != nil {
			return d, other
		}
	}
	if _, given := d.Facets[added]; !given && t.declared.Schema.Fields[added].Codec == schema.CodecDate {
		if err := t.declared.EncodeFacet(d.Facets, added, schema.Date(t.view.Now()), nil); err != nil {
			return d, err
		}
	}
	if n.SelfRegistered {
		d.SetOwn(store.FieldUnproven, "1")
		_ = wrong.add(t.declared.CheckUnproven(store.Record{}, d.Facets, d.Own))
	}
	sets := n.sets()
	if err := t.checkSets(sets, &wrong); err != nil {
		return d, err
	}
	for _, name := range sortedKeys(sets) {
		d.Tertiary = append(d.Tertiary, change.Content{Name: name, Kind: "set", Values: sets[name]})
	}
	if n.Password != "" || n.RequirePassword {
		hash, err := t.hashNew(ctx, n, d.Fields(), wrong)
		if err != nil {
			return d, err
		}
		d.Facets[store.FieldPassword] = hash
		d.SetOwn(store.FieldChanged, schema.Date(t.view.Now()).Wire())
	} else if len(wrong) > 0 {
		return d, t.addNewEntryProblems(ctx, wrong, n.UID, d.Fields())
	}
	if n.Disabled {
		d.SetOwn(store.FieldDisabled, schema.Date(t.view.Now()).Wire())
	}
	return d, nil
}

// sets returns the members of the tertiary sets of a new entry, sorted and without duplicates.
func (n NewEntry) sets() map[string][]string {
	if len(n.Sets)+len(n.Tags) == 0 {
		return nil
	}
	sets := make(map[string][]string, len(n.Sets)+1)
	for name, members := range n.Sets {
		if len(members) > 0 {
			sets[name] = distinct(members)
		}
	}
	if len(n.Tags) > 0 {
		sets[change.TagsName] = distinct(slices.Concat(n.Tags, sets[change.TagsName]))
	}
	return sets
}

// checkSets adds to wrong the problems of the sets that one change writes. It returns an error if
// the schema does not declare one of them.
func (t *Type) checkSets(sets map[string][]string, wrong *problems) error {
	total := 0
	for _, name := range sortedKeys(sets) {
		if err := t.declared.CheckTertiary(name, "set"); err != nil {
			return err
		}
		if limit := t.declared.Schema.Tertiary[name].Limit(); limit > 0 && len(sets[name]) > limit {
			_ = wrong.add(t.declared.TooManyError(name))
		}
		_ = wrong.add(checkElements(name, sets[name]))
		if total += len(sets[name]); total > maxElements {
			_ = wrong.add(tooManyElements(name))
		}
	}
	return nil
}

// encodeNewTexts adds the values of a field to a draft.
func (t *Type) encodeNewTexts(d *change.Draft, n NewEntry, field string) error {
	texts := n.Values[field]
	if len(texts) == 0 {
		return nil
	}
	if first, given := n.Facets[field]; given && first.Text() != texts[0] {
		return invalid(field, "many", "the facet differs from the first of the values")
	}
	if d.Own == nil {
		d.Own = map[string]string{}
	}
	if err := t.declared.SetTexts(store.Record{}, d.Facets, d.Own, field, texts, t.view.Now()); err != nil {
		return err
	}
	return t.declared.SetLabels(store.Record{}, d.Facets, d.Own, field, n.Labels[field])
}

// hashNew hashes the password of a new entry. If something shows that the entry cannot be created,
// it returns all problems instead: those in wrong, those of the password, and values that are
// missing or taken. facets are the facets and further values that could be encoded.
func (t *Type) hashNew(ctx context.Context, n NewEntry, facets map[string]string, wrong problems) (string, error) {
	c := callerIn(ctx, hashpool.General, "", "")
	if n.UID != "" {
		c.Account = t.newRecordAt(n.UID).Key.String()
	}
	own := append(t.declared.Identifiers(facets), n.UID) // the password must differ from these
	if other := wrong.add(t.db.hashers.check(ctx, c, t.declared, n.Password, own)); other != nil {
		return "", other
	}
	if err := t.addNewEntryProblems(ctx, wrong, n.UID, facets); err != nil {
		return "", err
	}
	return t.db.hashers.hashUnchecked(ctx, c, t.declared, n.Password)
}

// addNewEntryProblems adds the other problems of a new entry to wrong, and returns all problems as
// one error. The others are a UID that is taken or retired, and values that are missing or taken.
// uid may be "".
func (t *Type) addNewEntryProblems(ctx context.Context, wrong problems, uid string, facets map[string]string) error {
	r := t.newRecordAt(uid)
	if uid != "" && r.Key.IsValid() {
		_, err := t.view.FindOne(ctx, store.Lookup{PRK: r.Key})
		switch {
		case err == nil:
			err = store.DuplicateField(t.declared.Schema.Primary)
		case len(wrong) > 0 && errors.Is(err, ErrNotFound) && t.declared.Schema.Retire:
			err = t.checkRetired(ctx, r.Key) // if nothing else is wrong, the write checks it
		}
		if errors.Is(err, ErrDuplicate) {
			_ = wrong.add(err)
		}
	}
	return t.addMissingAndTaken(ctx, wrong, r, facets)
}

func sortedKeys[V any](m map[string]V) []string {
	if len(m) == 0 {
		return nil
	}
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Update reads an entry, calls f to change its copy, and writes the difference. If another change
// comes in between, Update starts again, so f may be called more than once and should have no other
// effects. If f changes nothing, nothing is written. The error is ErrNotFound if there is no such
// entry. Problems with values are reported as by Create.
//
// If f returns an error, Update returns it and writes nothing. If the error consists of
// *FieldError, such as that of web.Decode, Update joins it with the problems of the facets that f
// has set.
//
// A facet that cannot be read is absent in the copy. If f neither sets nor drops it, the error is
// ErrCorrupt.
func (t *Type) Update(ctx context.Context, h hints.Hint, f func(*Entry) error) (updated Entry, err error) {
	ctx, v := t.db.begin(ctx, "Update", &err)
	defer v.end(&err)
	err = t.retryOnSchemaChange(ctx, func(t *Type) error {
		var e Entry
		var read store.Record
		collected := false // all problems have been found
		r, err := t.rewrite(ctx, h, store.Record{}, func(current store.Record) (c store.Change, due bool, err error) {
			read, e = current, t.entryUnchecked(current)
			if err = f(&e); err == nil {
				err = e.checkReadable()
			}
			if err != nil {
				collected = true
				return c, false, t.withOtherProblems(ctx, err, current, e)
			}
			c, _, due, err = t.editChange(ctx, current, e)
			collected = err != nil
			return c, due, err
		})
		if errors.Is(err, ErrDuplicate) && !collected {
			err = t.allEditProblems(ctx, err, read, e)
		}
		t.afterDisabledChange(ctx, read, r, err)
		updated, err = t.entry(r, err)
		if committed(err) {
			updated.sets = e.knownSets()
		}
		return err
	})
	return updated, err
}

// Save writes the changes that Put, Drop and similar methods made to an entry that was read before.
// It takes one round trip, and three or more on a cluster. The error is ErrConflict if the entry
// has changed since it was read (I6), and ErrNotFound if it was deleted. Problems with values are
// reported as by Create.
func (t *Type) Save(ctx context.Context, e Entry) (saved Entry, err error) {
	ctx, v := t.db.begin(ctx, "Save", &err)
	defer v.end(&err)
	err = t.retryOnSchemaChange(ctx, func(t *Type) (err error) {
		saved, err = t.save(ctx, e)
		return err
	})
	return saved, err
}

// save writes an entry under the schema of t.
func (t *Type) save(ctx context.Context, e Entry) (Entry, error) {
	if !e.key.IsValid() || e.Type() != t.Name() {
		return Entry{}, notOfType(t)
	}
	r := store.Record{Key: e.key.In(t.view.NS), Fields: e.fields}
	c, fields, due, err := t.editChange(ctx, r, e)
	if err != nil {
		return Entry{}, publicError(err)
	}
	if due {
		after, err := t.applyEdit(ctx, c, r, fields)
		if errors.Is(err, ErrDuplicate) {
			err = t.allEditProblems(ctx, err, r, e)
		}
		t.afterDisabledChange(ctx, r, after, err)
		result := t.entry
		if e.readable && e.t == t.declared {
			result = t.entryAsWritten
		}
		saved, err := result(after, publicError(err))
		if committed(err) {
			saved.sets = e.knownSets()
		}
		return saved, err
	}
	current, err := t.view.FindOne(ctx, store.Lookup{PRK: r.Key})
	// Rev stays the same if another writer on a cluster has only fenced the entry.
	if err == nil && current.Version().Rev != r.Version().Rev {
		err = ErrConflict
	}
	return e, err
}

// notOfType returns the error for an entry that is not of type t.
func notOfType(t *Type) error {
	return invalid(store.FieldType, "type", "not an entry of type "+t.Name())
}

// editChange returns the change that turns a record into the edited entry, and the fields of the
// record with the edited facets. It reports whether there is anything to write. The password hash,
// which an Entry does not contain, stays.
func (t *Type) editChange(ctx context.Context, r store.Record, e Entry) (c store.Change, fields map[string]string, due bool, err error) {
	if len(e.edits) == 0 && e.disable == nil && len(e.newSets) == 0 {
		return c, nil, false, nil
	}
	own := t.ownChange(r, e)
	fields, wrong, err := t.encodeFacets(r, e, own)
	if err != nil {
		return c, nil, false, err
	}
	sets := store.Change{Key: r.Key}
	err = t.checkSets(e.newSets, &wrong)
	for _, name := range sortedKeys(e.newSets) {
		if err == nil {
			err = wrong.add(t.declared.SetTertiary(&sets, []change.Content{{Name: name, Kind: "set", Values: e.newSets[name]}}))
		}
	}
	if err != nil {
		return c, nil, false, err
	}
	if len(wrong) > 0 {
		return c, nil, false, t.addMissingAndTaken(ctx, wrong, r, change.WithFurther(r, fields, own))
	}
	if c, due, err = t.declared.Update(r, fields, own); err != nil {
		return c, nil, due, t.allProblems(ctx, err, r, change.WithFurther(r, fields, own))
	}
	t.declared.Hold(&c, r, t.view.Now())
	dropped := func(d store.Container) bool {
		return slices.ContainsFunc(sets.Drop, func(other store.Container) bool { return other.Key == d.Key })
	}
	c.Drop, c.Add = append(slices.DeleteFunc(c.Drop, dropped), sets.Drop...), append(c.Add, sets.Add...)
	return c, fields, due || len(sets.Drop) > 0, nil
}

// ownChange returns the store's own fields that an edit changes: those that disable or enable the
// entry, and lost values that Drop has removed.
func (t *Type) ownChange(r store.Record, e Entry) map[string]string {
	own := map[string]string{}
	for _, ed := range e.edits {
		if ed.drop && store.IsLost(ed.field) {
			own[ed.field] = ""
		}
	}
	disabled := r.Fields[store.FieldDisabled] != ""
	switch {
	case e.disable == nil || *e.disable == disabled:
	case disabled:
		change.Enable(r, own)
	default:
		change.Disable(r, t.view.Now(), own)
	}
	return own
}

// afterDisabledChange clears the sessions and emits the event if a change has disabled or enabled
// an entry.
func (t *Type) afterDisabledChange(ctx context.Context, before, after store.Record, err error) {
	disabled := after.Fields[store.FieldDisabled] != ""
	if !committed(err) || disabled == (before.Fields[store.FieldDisabled] != "") {
		return
	}
	kind := EventEnable
	if disabled {
		kind = EventDisable
	}
	t.clearSessions(ctx, before, after)
	t.db.emit(ctx, Event{Kind: kind, Key: after.Key})
}

// encodeFacets returns the fields of a record with the encoded facets of the edited entry, and the
// problems of these facets. It adds the changes of further values to own.
func (t *Type) encodeFacets(r store.Record, e Entry, own map[string]string) (encoded map[string]string, wrong problems, err error) {
	if encoded = maps.Clone(r.Fields); encoded == nil {
		encoded = map[string]string{}
	}
	for _, ed := range e.edits {
		field := ed.field
		texts, several := e.texts[field]
		switch {
		case several:
			refused := t.declared.SetTexts(r, encoded, own, field, texts, t.view.Now())
			if refused == nil {
				refused = t.declared.SetLabels(r, encoded, own, field, e.labels[field])
			}
			err = wrong.add(refused)
		case !ed.drop:
			err = wrong.add(t.declared.EncodeFacet(encoded, field, ed.v, r.Fields))
		case field == store.FieldPassword:
			err = invalid(field, "name", "the password is not a facet")
		case !store.OwnField(field):
			delete(encoded, field)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return encoded, wrong, nil
}

// allEditProblems calls allProblems for an edited entry.
func (t *Type) allEditProblems(ctx context.Context, err error, r store.Record, e Entry) error {
	own := map[string]string{}
	encoded, _, bad := t.encodeFacets(r, e, own)
	if bad != nil {
		return err
	}
	return t.allProblems(ctx, err, r, change.WithFurther(r, encoded, own))
}

// A DeleteOption changes what Delete does.
type DeleteOption func(*deletion)

type deletion struct {
	release bool
	check   func(Entry) error
}

// ReleaseAtOnce makes Delete free the values of the entry at once instead of holding them,
// including those that it already held; see schema.Field.Hold. The UID may still be retired.
func ReleaseAtOnce() DeleteOption { return func(d *deletion) { d.release = true } }

// DeleteIf makes Delete call check with the entry that it is about to delete. If check returns an
// error, Delete returns it and changes nothing. If another change comes first, Delete calls check
// again with the changed entry.
func DeleteIf(check func(Entry) error) DeleteOption { return func(d *deletion) { d.check = check } }

// Delete deletes an entry with its SRKs, index members and tertiary records, in one change. If
// another change comes first, Delete deletes the changed entry. Its values are held and its UID is
// retired if the schema says so. The error is ErrNotFound if there is no such entry.
//
// With ReleaseAtOnce, an error other than ErrNotFound may mean that the entry was deleted but that
// values that it already held are still held. ReleaseHeld frees them.
func (t *Type) Delete(ctx context.Context, h hints.Hint, options ...DeleteOption) (err error) {
	ctx, v := t.db.begin(ctx, "Delete", &err)
	defer v.end(&err)
	var d deletion
	for _, set := range options {
		set(&d)
	}
	var held []store.HeldValue // before the entry was deleted
	err = t.retryOnSchemaChange(ctx, func(t *Type) error {
		r, err := t.rewrite(ctx, h, store.Record{}, func(current store.Record) (store.Change, bool, error) {
			if d.check != nil {
				if err := d.check(t.entryUnchecked(current)); err != nil {
					return store.Change{}, false, err
				}
			}
			held = store.HeldIn(current.Fields)
			if d.release {
				return t.declared.DeleteFree(current, t.view.Now()), true, nil
			}
			return t.declared.Delete(current, t.view.Now()), true, nil
		})
		if committed(err) {
			t.db.emit(ctx, Event{Kind: EventDelete, Key: r.Key})
		}
		return err
	})
	if !d.release || !committed(err) {
		return err
	}
	for _, h := range held {
		switch failed := t.current().releaseHeld(ctx, h.Field, h.Canonical); {
		case errors.Is(failed, ErrNotFound): // it has ended, or somebody else released it
		case failed != nil:
			return publicError(failed)
		}
	}
	return err
}

// maxSchemaAttempts is how often a method tries to write while the schema in force keeps changing.
const maxSchemaAttempts = 16

// retryOnSchemaChange calls write, and calls it again if the stored schema has changed. If the
// stored schema cannot be adopted, for example while a change of it is running, retryOnSchemaChange
// tries only once more.
func (t *Type) retryOnSchemaChange(ctx context.Context, write func(t *Type) error) (err error) {
	unchanged := 0
	for range maxSchemaAttempts {
		t = t.current()
		if err = write(t); !view.IsSchemaChanged(err) {
			return err
		}
		next, refreshErr := t.db.refresh(ctx, t.view, t.declared.Name)
		if refreshErr != nil {
			return refreshErr
		}
		if next == t.view {
			unchanged++
		}
		if unchanged > 1 {
			return err
		}
	}
	return err
}

// A buildFunc returns the change to make to a record, and reports whether there is anything to
// change.
type buildFunc func(current store.Record) (c store.Change, due bool, err error)

// rewrite reads an entry, calls build, and applies the change that build returns. After a conflict
// it starts again. If read has fields, the first attempt uses read instead of reading the entry.
// rewrite returns the record as written, even if the change is unconfirmed, or the unchanged record
// if there was nothing to change.
func (t *Type) rewrite(ctx context.Context, h hints.Hint, read store.Record, build buildFunc) (r store.Record, err error) {
	err = retryOnConflict(ctx, func() (conflict bool, err error) {
		if r, read.Fields = read, nil; r.Fields == nil {
			r, err = t.record(ctx, h)
		}
		if err != nil {
			return false, err
		}
		c, due, err := build(r)
		if err != nil || !due {
			return false, err
		}
		r, err = t.apply(ctx, c, r)
		return errors.Is(err, ErrConflict), err
	})
	return r, publicError(err)
}

// rewriteRead calls rewrite for a record that was just read.
func (t *Type) rewriteRead(ctx context.Context, r store.Record, build buildFunc) (store.Record, error) {
	return t.rewrite(ctx, hints.Key(r.Key.In(recordkey.Namespace{})), r, build)
}

// rewriteInForce calls rewriteRead under the schema in force, as retryOnSchemaChange does. It
// passes build the type under that schema, and also returns the record that build last got.
func (t *Type) rewriteInForce(
	ctx context.Context, r store.Record, build func(t *Type, current store.Record) (store.Change, bool, error),
) (before, after store.Record, err error) {
	before, after = r, r
	err = t.retryOnSchemaChange(ctx, func(t *Type) (err error) {
		after, err = t.rewriteRead(ctx, after, func(current store.Record) (store.Change, bool, error) {
			before = current
			return build(t, current)
		})
		return err
	})
	return before, after, err
}

// apply applies a change and returns the record after it, or r if the change failed.
func (t *Type) apply(ctx context.Context, c store.Change, r store.Record) (store.Record, error) {
	rev, err := t.view.Apply(ctx, t.declared, c)
	if committed(err) {
		r = change.Apply(c, rev, r.Fields)
		t.emitChange(ctx, c)
	}
	return r, err
}

// applyEdit does the same as apply for the results of editChange. It reuses fields for the
// resulting record.
func (t *Type) applyEdit(ctx context.Context, c store.Change, r store.Record, fields map[string]string) (store.Record, error) {
	rev, err := t.view.Apply(ctx, t.declared, c)
	if committed(err) {
		r = change.ApplyInPlace(fields, c, rev)
		t.emitChange(ctx, c)
	}
	return r, err
}

// maxAttempts is how often a method tries to write while each attempt ends in a conflict.
const maxAttempts = 100

// retryOnConflict calls attempt until it ends without a conflict, at most maxAttempts times.
// Between calls it waits for a random time, at first up to a millisecond and later up to 50, so
// that competing writers get out of step.
func retryOnConflict(ctx context.Context, attempt func() (conflict bool, err error)) error {
	for n := range maxAttempts {
		if conflict, err := attempt(); !conflict {
			return err
		}
		longest := min(time.Millisecond<<min(n, 6), 50*time.Millisecond)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(mathrand.N(longest)):
		}
	}
	return ErrConflict
}

// committed reports whether a change was made, even if it is unconfirmed.
func committed(err error) bool { return err == nil || errors.Is(err, ErrUnconfirmed) }

// Format writes what MarshalJSON returns, whatever the formatting verb.
func (n NewEntry) Format(f fmt.State, _ rune) { fmt.Fprint(f, describe(n)) }

// LogValue returns what MarshalJSON returns, for a log.
func (n NewEntry) LogValue() slog.Value { return slog.StringValue(describe(n)) }

// fields returns the names of the fields of n, sorted.
func (n NewEntry) fields() []string {
	names := slices.AppendSeq(sortedKeys(n.Values), maps.Keys(n.Facets))
	slices.Sort(names)
	return slices.Compact(names)
}

// MarshalJSON leaves out the values of the facets and the members of sets, which are personal data,
// and the password. It includes the UID, as logs do, the names of the facets and sets, and whether
// there is a password.
func (n NewEntry) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		UID      string   `json:"uid,omitempty"`
		Fields   []string `json:"fields"`
		Sets     []string `json:"sets,omitempty"`
		Password bool     `json:"password"`
	}{n.UID, n.fields(), sortedKeys(n.sets()), n.Password != ""})
}
