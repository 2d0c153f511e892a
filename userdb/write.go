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
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A NewEntry is what Create takes.
type NewEntry struct {
	UID      string        // "": the next one that Options.NewUID gives and no entry has
	Facets   schema.Facets // without the primary one
	Tags     []string      // members of the tertiary set "tags", which the schema must declare
	Password string        // "": the entry cannot log in until SetPassword, unless Typed
	Typed    bool          // Password is what somebody typed: an empty one is refused, too
	Disabled bool          // it cannot log in until Enable
}

// uidAttempts is how many generated UIDs may be taken before a generator is called broken.
const uidAttempts = 16

var errUIDs = errors.New("the UID generator gives only UIDs that are taken")

// RandomUID returns a generator of UIDs of n hexadecimal digits from a cryptographic source. n is
// at least 8 and at most 64; 12 digits are 48 bits. A UID that is taken is never used again for
// another entry: Create asks for the next one.
func RandomUID(n int) func() (string, error) {
	return func() (string, error) {
		if n < 8 || n > 64 {
			return "", fmt.Errorf("a UID of %d digits: want 8 to 64", n)
		}
		b := make([]byte, (n+1)/2)
		rand.Read(b) // never fails, says its documentation
		return hex.EncodeToString(b)[:n], nil
	}
}

// added is the field that Create sets where the schema declares it as a date, as the original does.
const added = "added"

// Create makes an entry, its SRKs, index members and tags in one change, or nothing at all. It returns the entry as
// written. ErrDuplicate names the field of a value that is taken, ErrInvalid a value that a rule refuses, *password.PolicyError a
// password against the type's policy. Of several, the error is all of them joined (see errors.Join): what is wrong with a form.
func (t *Type) Create(ctx context.Context, n NewEntry) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "Create", &err)
	defer v.end(&err)
	err = t.following(ctx, func(t *Type) (err error) {
		e, err = t.create(ctx, n)
		return err
	})
	return e, err
}

func (t *Type) create(ctx context.Context, n NewEntry) (Entry, error) {
	d, err := t.draft(ctx, n)
	if err != nil {
		return Entry{}, public(err)
	}
	for range uidAttempts {
		if n.UID == "" {
			if d.UID, err = t.db.options.NewUID(); err != nil {
				return Entry{}, err
			}
		}
		c, err := t.declared.Create(d)
		var r store.Record
		if err == nil {
			c.Fresh = n.UID == "" && t.db.options.randomUIDs
			var rev string
			if rev, err = t.view.Apply(ctx, t.declared, c); done(err) {
				r = change.Into(d.Facets, c, rev)
				t.db.emit(ctx, Event{Kind: EventCreate, PRK: c.Key})
			}
		}
		taken, is := errors.AsType[*store.FieldError](err)
		if is && errors.Is(taken, ErrDuplicate) && taken.Field == t.declared.Schema.Primary && n.UID == "" {
			continue
		}
		return t.entry(r, t.allOf(ctx, err, t.unwritten(d.UID), d.Facets))
	}
	return Entry{}, errUIDs
}

// unwritten is an entry before it is created: its key alone. What a create by another of the same UID has got is not taken
// by others.
func (t *Type) unwritten(uid string) (r store.Record) {
	r.Key, _ = t.declared.PRK(uid)
	return r
}

// draft checks and encodes what was given.
func (t *Type) draft(ctx context.Context, n NewEntry) (change.Draft, error) {
	d := change.Draft{UID: n.UID, Facets: make(map[string]string, len(n.Facets)+change.OwnFields)}
	if _, given := n.Facets[t.declared.Schema.Primary]; given {
		return d, invalid(t.declared.Schema.Primary, "primary", "the UID is not given as a facet")
	}
	var wrong problems
	for _, field := range sortedKeys(n.Facets) {
		if other := wrong.add(t.declared.EncodeFacet(d.Facets, field, n.Facets[field], nil)); other != nil {
			return d, other
		}
	}
	if _, given := d.Facets[added]; !given && t.declared.Schema.Fields[added].Codec == schema.CodecDate {
		if err := t.declared.EncodeFacet(d.Facets, added, schema.Date(t.view.Now()), nil); err != nil {
			return d, err
		}
	}
	if len(n.Tags) > 0 {
		tags := distinct(n.Tags)
		if len(tags) > t.declared.Schema.Tertiary[change.TagsName].Limit() {
			_ = wrong.add(t.declared.TooMany(change.TagsName))
		}
		_ = wrong.add(checkElements(change.TagsName, tags))
		d.Tertiary = []change.Content{{Name: change.TagsName, Kind: "set", Values: tags}}
	}
	var own []string // what the password may not be
	withPassword := n.Password != "" || n.Typed
	if withPassword {
		own = append(t.declared.Identifiers(d.Facets), n.UID)
	}
	if len(wrong) > 0 {
		if withPassword {
			if other := wrong.add(t.db.hashers.Judge(ctx, t.declared, n.Password, own)); other != nil {
				return d, other
			}
		}
		return d, t.rest(ctx, wrong, t.unwritten(d.UID), d.Facets)
	}
	if withPassword {
		hash, err := t.db.hashers.Hash(ctx, t.declared, n.Password, own)
		if err != nil {
			return d, t.allOf(ctx, err, t.unwritten(d.UID), d.Facets)
		}
		d.Facets[store.FieldPassword] = hash
		d.Own = map[string]string{store.FieldChanged: schema.Date(t.view.Now()).Wire()}
	}
	if n.Disabled {
		if d.Own == nil {
			d.Own = map[string]string{}
		}
		d.Own[store.FieldDisabled] = schema.Date(t.view.Now()).Wire()
	}
	return d, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := slices.AppendSeq(make([]string, 0, len(m)), maps.Keys(m))
	slices.Sort(keys)
	return keys
}

// Update reads an entry, lets f change its copy, and writes the difference if nobody changed the
// entry meanwhile; else it begins again, so f may run more than once and should do nothing else. An
// error of f ends Update and is returned. Where f changes nothing, nothing is written. A facet that cannot be
// read is absent to f; if f neither sets nor drops it, Update fails with ErrCorrupt.
func (t *Type) Update(ctx context.Context, h hints.Hint, f func(*Entry) error) (updated Entry, err error) {
	ctx, v := t.db.begin(ctx, "Update", &err)
	defer v.end(&err)
	err = t.following(ctx, func(t *Type) error {
		var e Entry
		var read store.Record
		judged := false
		r, err := t.rewrite(ctx, h, store.Record{}, func(now store.Record) (c store.Change, due bool, err error) {
			read, e = now, t.bare(now)
			if err = f(&e); err == nil {
				err = e.readable()
			}
			if err != nil {
				return c, false, err
			}
			c, due, err = t.edited(ctx, now, e)
			judged = err != nil
			return c, due, err
		})
		if errors.Is(err, ErrDuplicate) && !judged {
			err = t.allOfEdit(ctx, err, read, e)
		}
		t.switched(ctx, read, r, err)
		updated, err = t.entry(r, err)
		return err
	})
	return updated, err
}

// Save writes an entry that was read before and changed since with Put and Drop: one round trip; on a cluster three or
// more. ErrConflict says that it has another Rev by now (I6); ErrNotFound that it is gone.
func (t *Type) Save(ctx context.Context, e Entry) (saved Entry, err error) {
	ctx, v := t.db.begin(ctx, "Save", &err)
	defer v.end(&err)
	err = t.following(ctx, func(t *Type) (err error) {
		saved, err = t.save(ctx, e)
		return err
	})
	return saved, err
}

func (t *Type) save(ctx context.Context, e Entry) (Entry, error) {
	if !e.key.IsValid() || e.Type() != t.Name() {
		return Entry{}, notOfType(t)
	}
	r := store.Record{Key: e.key.In(t.view.NS), Fields: e.was}
	c, due, err := t.edited(ctx, r, e)
	if err != nil {
		return Entry{}, public(err)
	}
	if due {
		after, err := t.apply(ctx, c, r)
		if errors.Is(err, ErrDuplicate) {
			err = t.allOfEdit(ctx, err, r, e)
		}
		t.switched(ctx, r, after, err)
		return t.entry(after, public(err))
	}
	now, err := t.view.FindOne(ctx, store.Lookup{PRK: r.Key})
	if err == nil && now.Seen().Rev != r.Seen().Rev { // to be fenced is no change
		err = ErrConflict
	}
	return e, err
}

func notOfType(t *Type) error {
	return invalid(store.FieldType, "type", "not an entry of type "+t.Name())
}

// edited is the change that brings a record to what an entry says, and whether there is anything to write. The
// password hash, which no Entry holds, stays.
func (t *Type) edited(ctx context.Context, r store.Record, e Entry) (c store.Change, due bool, err error) {
	if len(e.edits) == 0 && e.disable == nil {
		return c, false, nil
	}
	own := t.switching(r, e)
	wires, wrong, err := t.wires(r, e)
	if err != nil {
		return c, false, err
	}
	if len(wrong) > 0 {
		return c, false, t.rest(ctx, wrong, r, wires)
	}
	if c, due, err = t.declared.Update(r, wires, own); err != nil {
		err = t.allOf(ctx, err, r, wires)
	}
	return c, due, err
}

// switching are the own fields of a record that shall have another, where an entry says so by SetDisabled.
func (t *Type) switching(r store.Record, e Entry) map[string]string {
	is := r.Fields[store.FieldDisabled] != ""
	if e.disable == nil || *e.disable == is {
		return nil
	}
	own := map[string]string{}
	if is {
		change.Enable(r, own)
	} else {
		change.Disable(r, t.view.Now(), own)
	}
	return own
}

// switched does what follows a change after which an entry may log in, and before it might not, or the other way round.
func (t *Type) switched(ctx context.Context, before, after store.Record, err error) {
	disabled := after.Fields[store.FieldDisabled] != ""
	if !done(err) || disabled == (before.Fields[store.FieldDisabled] != "") {
		return
	}
	kind := EventEnable
	if disabled {
		kind = EventDisable
	}
	t.clearSessions(ctx, before, after)
	t.db.emit(ctx, Event{Kind: kind, PRK: after.Key})
}

// wires are the facets that an entry says, and what is wrong with them.
func (t *Type) wires(r store.Record, e Entry) (wires map[string]string, wrong problems, err error) {
	wires = change.Bare(r)
	for _, field := range sortedKeys(e.edits) {
		v := e.edits[field]
		switch {
		case v != nil:
			err = wrong.add(t.declared.EncodeFacet(wires, field, *v, r.Fields))
		case field == store.FieldPassword:
			err = invalid(field, "name", "a password is set by its own verb")
		default:
			delete(wires, field)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return wires, wrong, nil
}

// allOfEdit is allOf for an entry that was edited.
func (t *Type) allOfEdit(ctx context.Context, err error, r store.Record, e Entry) error {
	wires, _, bad := t.wires(r, e)
	if bad != nil {
		return err
	}
	return t.allOf(ctx, err, r, wires)
}

// Delete ends an entry, with its SRKs, index members and tertiary records, in one change. An entry
// that changes meanwhile is deleted as it is at that time.
func (t *Type) Delete(ctx context.Context, h hints.Hint) (err error) {
	ctx, v := t.db.begin(ctx, "Delete", &err)
	defer v.end(&err)
	return t.following(ctx, func(t *Type) error {
		r, err := t.rewrite(ctx, h, store.Record{}, func(now store.Record) (store.Change, bool, error) { return t.declared.Delete(now), true, nil })
		if done(err) {
			t.db.emit(ctx, Event{Kind: EventDelete, PRK: r.Key})
		}
		return err
	})
}

// follows is how often a verb begins again because another schema is in force than it went by.
const follows = 16

// following runs what writes: again, by the schema in force, where that is another one by now. A schema that cannot be gone by,
// such as one that a change is under way of, is met twice.
func (t *Type) following(ctx context.Context, write func(t *Type) error) (err error) {
	met := 0
	for range follows {
		t = t.now()
		if err = write(t); !view.Followable(err) {
			return err
		}
		next, failed := t.db.follow(ctx, t.view, t.declared.Name)
		if failed != nil {
			return failed
		}
		if next == t.view {
			met++
		}
		if met > 1 {
			return err
		}
	}
	return err
}

// A building makes the change of an entry from its record, and reports whether it is due.
type building func(now store.Record) (c store.Change, due bool, err error)

// rewrite is the loop of every verb that changes an entry: it reads the entry, unless it was just read, builds a change
// of that, and applies it, again after a conflict. It returns the record as written, also where the change is not
// confirmed, or as read where nothing was due.
func (t *Type) rewrite(ctx context.Context, h hints.Hint, read store.Record, build building) (r store.Record, err error) {
	err = retry(ctx, func() (conflict bool, err error) {
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
	return r, public(err)
}

// rewriteRead is rewrite of an entry that was just read.
func (t *Type) rewriteRead(ctx context.Context, r store.Record, build building) (store.Record, error) {
	return t.rewrite(ctx, hints.Key(r.Key.In(recordkey.Namespace{})), r, build)
}

// apply makes a change of a record, and returns the record as it is after that; as it was where that failed.
func (t *Type) apply(ctx context.Context, c store.Change, r store.Record) (store.Record, error) {
	v, err := t.view.Apply(ctx, t.declared, c)
	if done(err) {
		r = change.After(c, v, r.Fields)
		t.changed(ctx, c)
	}
	return r, err
}

// attempts bounds how often a verb begins again after a conflict.
const attempts = 100

// retry repeats what ends in a conflict, after a pause that is random and longer every time, so that writers of one
// entry part.
func retry(ctx context.Context, attempt func() (conflict bool, err error)) error {
	for n := range attempts {
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

// done reports whether a change was made, even if it is not known to be on replicas.
func done(err error) bool { return err == nil || errors.Is(err, ErrUnconfirmed) }

// Format writes which fields the entry has, and not what is in them, whatever the verb.
func (n NewEntry) Format(f fmt.State, _ rune) { fmt.Fprint(f, describe(n)) }

// LogValue is the same for a log.
func (n NewEntry) LogValue() slog.Value { return slog.StringValue(describe(n)) }

// MarshalJSON reports whether there is a password in place of it, and which facets: they are personal data.
func (n NewEntry) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		UID      string   `json:"uid,omitempty"`
		Fields   []string `json:"fields"`
		Tags     []string `json:"tags,omitempty"`
		Password bool     `json:"password"`
	}{n.UID, slices.Sorted(maps.Keys(n.Facets)), n.Tags, n.Password != ""})
}
