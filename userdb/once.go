package userdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/recordkey"
)

// onceLife is how long the request of a CreateOnce is known by its name.
const onceLife = 24 * time.Hour

// onceLease is how long the first to make a request has it alone: it may still be at work.
const onceLease = 10 * time.Second

const purposeOnce = "once"

// CreateOnce is Create for a caller who sends a request again where no answer came, from any process, within 24 hours: all
// requests of one name make one entry, at one UID, and return it as it is by then. The name is the caller's, at most 1,024 bytes.
//
// ErrConflict: an earlier request of the name, at most ten seconds old, is not done; try again. ErrNotFound: it made the entry, which
// is gone since. A *FieldError of the rule "once": it was another request; passwords, which are not kept, may differ. A
// request that is refused is forgotten.
func (t *Type) CreateOnce(ctx context.Context, name string, n NewEntry) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "CreateOnce", &err)
	defer v.end(&err)
	err = t.following(ctx, func(t *Type) error {
		o, first, err := t.once(ctx, name, n)
		if err == nil {
			e, err = o.create(ctx, n, first)
		}
		return err
	})
	return e, err
}

// A once is a request by its name, for an entry at prk. Its age is by the server's clock: those of two programs may differ.
// The first request lays a token where those of the entry will lie, which the change that makes the entry spends. So it can
// be told at any time whether that was made, and all who try to make it exclude each other.
type once struct {
	*Type
	record recordkey.Key // where the request lies, as the token of an entry that does not exist
	digest string        // of the name and the request
	nonce  string        // of the caller that began it
	prk    recordkey.Key
	age    time.Duration
}

// once finds the request of a name, or begins it; first reports that.
func (t *Type) once(ctx context.Context, name string, n NewEntry) (o once, first bool, err error) {
	if name == "" || len(name) > 1024 {
		return o, false, invalid(purposeOnce, "size", "a name has 1 to 1,024 bytes")
	}
	if err := t.db.loadSecret(ctx); err != nil {
		return o, false, err
	}
	name = t.Name() + "\x00" + name
	o = once{Type: t, digest: t.db.digest("once-request", name+describeRequest(n))}
	if o.record, err = recordkey.PRK(purposeOnce, "name", t.db.digest("once-name", name)); err != nil {
		return o, false, err
	}
	o.record = o.record.In(view.Reserved)
	if err = o.read(ctx); errors.Is(err, ErrNotFound) {
		return o.begin(ctx, n.UID)
	}
	return o, false, err
}

// describeRequest is a request without its password.
func describeRequest(n NewEntry) string {
	var b strings.Builder
	add := func(text string) { fmt.Fprintf(&b, "%d:%s", len(text), text) }
	add(n.UID)
	for _, field := range slices.Sorted(maps.Keys(n.Facets)) {
		add(field)
		add(string(n.Facets[field].Codec()))
		add(n.Facets[field].Wire())
	}
	add("")
	for _, tag := range distinct(n.Tags) {
		add(tag)
	}
	return b.String()
}

// read reads what is known of the request.
func (o *once) read(ctx context.Context) error {
	tk, left, err := o.view.Engine.Peek(ctx, o.record, o.digest, o.view.StoreTime())
	if err != nil {
		return err
	}
	nonce, uid, ok := strings.Cut(tk.Value, " ")
	if !ok {
		return &store.CorruptError{Key: o.record.String(), Reason: "not a request that was begun"}
	}
	o.age, o.nonce = onceLife-left, nonce
	o.prk, err = o.declared.PRK(uid)
	return err
}

// begin notes the request: first at the UID that the entry will have, so that who dies in between leaves nothing that counts.
func (o once) begin(ctx context.Context, uid string) (begun once, first bool, err error) {
	prk, err := o.place(ctx, uid)
	if err != nil {
		return o, false, err
	}
	nonce := rand.Text()
	err = o.view.Engine.Invite(ctx, store.Invitation{
		Token: store.Token{Hash: o.digest, Purpose: purposeOnce, Value: nonce + " " + prk.Value()},
		PRK:   o.record, Life: onceLife, Now: o.view.StoreTime(),
	})
	if errors.Is(err, ErrDuplicate) {
		return o, false, invalid(purposeOnce, purposeOnce, "another request was made under this name")
	}
	if err == nil {
		err = o.read(ctx) // that of another caller, where it was before this one
	}
	return o, o.nonce == nonce, err
}

// place lays the token at the UID that the entry will have.
func (o once) place(ctx context.Context, uid string) (prk recordkey.Key, err error) {
	tk := store.Token{Hash: o.digest, Purpose: purposeOnce}
	if uid == "" {
		return o.inviteAt(ctx, o.db.options.NewUID, onceLife, func(string) (store.Token, error) { return tk, nil })
	}
	if prk, err = o.declared.PRK(uid); err != nil {
		return prk, err
	}
	_, err = o.view.FindOne(ctx, store.Lookup{PRK: prk})
	switch {
	case err == nil:
		return prk, store.Taken(o.declared.Schema.Primary)
	case !errors.Is(err, ErrNotFound):
		return prk, err
	}
	err = o.view.Engine.Invite(ctx, store.Invitation{Token: tk, PRK: prk, Life: onceLife, Now: o.view.StoreTime()})
	if errors.Is(err, ErrDuplicate) {
		err = fmt.Errorf("another entry is being made at this UID: %w", ErrConflict)
	}
	return prk, err
}

// made is the entry, if the request has made it. waiting: not yet.
func (o once) made(ctx context.Context) (e Entry, waiting bool, err error) {
	_, _, err = o.view.Engine.Peek(ctx, o.prk, o.digest, o.view.StoreTime())
	if !errors.Is(err, ErrNotFound) {
		return Entry{}, err == nil, err
	}
	r, err := o.view.FindOne(ctx, store.Lookup{PRK: o.prk})
	e, err = o.entry(r, err)
	return e, false, err
}

// create makes the entry, or returns it where that was done before.
func (o once) create(ctx context.Context, n NewEntry, first bool) (Entry, error) {
	if !first {
		e, waiting, err := o.made(ctx)
		if err != nil || !waiting {
			return e, err
		}
		if o.age < onceLease {
			return Entry{}, fmt.Errorf("an earlier request of the same name is not done yet: %w", ErrConflict)
		}
	}
	given := n.UID != ""
	n.UID = o.prk.Value()
	e, err := o.createSpending(ctx, n, "", store.Token{Hash: o.digest, Purpose: purposeOnce})
	if errors.Is(err, ErrNotFound) || o.takenUID(err) {
		e, waiting, madeErr := o.made(ctx)
		if madeErr != nil || !waiting {
			return e, madeErr
		}
	}
	if isProblem(err) {
		o.forget(ctx, given)
	}
	return e, err
}

// isProblem reports whether what was asked for is refused, and nothing else is wrong.
func isProblem(err error) bool {
	return (errors.Is(err, ErrDuplicate) || errors.Is(err, ErrInvalid) || errors.Is(err, password.ErrPolicy)) && !errors.Is(err, ErrUnavailable)
}

// takenUID reports whether a create was refused for its UID.
func (t *Type) takenUID(err error) bool {
	taken, is := errors.AsType[*FieldError](err)
	return is && errors.Is(taken, ErrDuplicate) && taken.Field == t.now().declared.Schema.Primary
}

// forget lets the name be used for another request. What lies at a UID that the caller chose would be in the way of that.
func (o once) forget(ctx context.Context, given bool) {
	at := []recordkey.Key{o.record}
	if given {
		at = append(at, o.prk)
	}
	for _, prk := range at {
		key, err := store.TokenKey(prk)
		if err != nil {
			continue
		}
		found, err := store.Hashes(ctx, o.view.Engine, []string{key.String()})
		if err != nil || len(found[0].Fields) != 1 {
			continue
		}
		// What is left ends by itself, in a day.
		_, _ = o.view.Engine.Mend(ctx, store.Remove{Key: key.String(), Field: o.digest, Value: found[0].Fields[o.digest]})
	}
}
