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

// onceEnd is how long a call that failed may take to leave the request to the next one.
const onceEnd = 2 * time.Second

const purposeOnce = "once"

// CreateOnce is Create for a caller who sends a request again where no answer came, from any process, within 24 hours: all
// requests of one name make one entry, at one UID, and return it as it is by then. The name is the caller's, at most 1,024 bytes.
//
// ErrConflict: an earlier request of the name, at most ten seconds old, is not done; try again. One that failed is done, and is tried
// again by the next call; after one whose process died that takes ten seconds. ErrNotFound: it made the entry, which
// is gone since. A *FieldError of the rule "once": it was another request; passwords, which are not kept, may differ. A
// request that is refused is forgotten.
func (t *Type) CreateOnce(ctx context.Context, name string, n NewEntry) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "CreateOnce", &err)
	defer v.end(&err)
	o, caller := once{}, rand.Text() // the same when it begins again by another schema
	err = t.following(ctx, func(t *Type) error {
		if o, err = t.once(ctx, name, caller, n); err == nil {
			e, err = o.create(ctx, n)
		}
		return err
	})
	if o.caller == caller && !done(err) {
		o.leave(ctx, err)
	}
	return e, err
}

// A once is a request by its name, for an entry at prk. Its age is by the server's clock: those of two programs may differ.
// The first request lays a token where those of the entry will lie, which the change that makes the entry spends. So it can
// be told at any time whether that was made, and all who try to make it exclude each other.
type once struct {
	*Type
	record recordkey.Key // where the request lies, as the token of an entry that does not exist
	name   string        // digest of the name
	digest string        // of the name and the request
	caller string        // this call
	nonce  string        // the call that began it
	prk    recordkey.Key
	age    time.Duration
}

// once finds the request of a name, or begins it.
func (t *Type) once(ctx context.Context, name, caller string, n NewEntry) (o once, err error) {
	if name == "" || len(name) > 1024 {
		return o, invalid(purposeOnce, "size", "a name has 1 to 1,024 bytes")
	}
	if err := t.db.loadSecret(ctx); err != nil {
		return o, err
	}
	name = t.Name() + "\x00" + name
	o = once{Type: t, name: t.db.digest("once-name", name), digest: t.db.digest("once-request", name+describeRequest(n)), caller: caller}
	if o.record, err = onceKey(o.name); err != nil {
		return o, err
	}
	if err = o.read(ctx); errors.Is(err, ErrNotFound) {
		err = o.begin(ctx, n.UID)
	}
	return o, err
}

// onceKey returns where a request lies, or that a call has left it.
func onceKey(name string) (recordkey.Key, error) {
	key, err := recordkey.PRK(purposeOnce, "name", name)
	return key.In(view.Reserved), err
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
func (o *once) begin(ctx context.Context, uid string) error {
	prk, err := o.place(ctx, uid)
	if err != nil {
		return err
	}
	err = o.view.Engine.Invite(ctx, store.Invitation{
		Token: store.Token{Hash: o.digest, Purpose: purposeOnce, Value: o.caller + " " + prk.Value()},
		PRK:   o.record, Life: onceLife, Now: o.view.StoreTime(),
	})
	if errors.Is(err, ErrDuplicate) {
		return invalid(purposeOnce, purposeOnce, "another request was made under this name")
	}
	if err == nil {
		err = o.read(ctx) // that of another caller, where it was before this one
	}
	return err
}

// token returns what lies at the UID that the entry will have. It is that of the name: one that was left there is in nobody's way but
// other names'.
func (o once) token() store.Token { return store.Token{Hash: o.name, Purpose: purposeOnce} }

// place lays the token at the UID that the entry will have.
func (o once) place(ctx context.Context, uid string) (prk recordkey.Key, err error) {
	if uid == "" {
		return o.inviteAt(ctx, o.db.options.NewUID, onceLife, func(string) (store.Token, error) { return o.token(), nil })
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
	err = o.view.Engine.Invite(ctx, store.Invitation{Token: o.token(), PRK: prk, Life: onceLife, Now: o.view.StoreTime()})
	if errors.Is(err, ErrDuplicate) {
		err = fmt.Errorf("another entry is being made at this UID: %w", ErrConflict)
	}
	return prk, err
}

// made is the entry, if the request has made it. waiting: not yet.
func (o once) made(ctx context.Context) (e Entry, waiting bool, err error) {
	_, _, err = o.view.Engine.Peek(ctx, o.prk, o.name, o.view.StoreTime())
	lies := err == nil
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Entry{}, false, err
	}
	// A server may have refused to remove the token of the change that spent it.
	r, err := o.view.FindOne(ctx, store.Lookup{PRK: o.prk})
	if lies && (errors.Is(err, ErrNotFound) || err == nil && !r.EndedToken(o.name)) {
		return Entry{}, true, nil
	}
	e, err = o.entry(r, err)
	return e, false, err
}

// create makes the entry, or returns it where that was done before.
func (o once) create(ctx context.Context, n NewEntry) (Entry, error) {
	if o.nonce != o.caller {
		e, waiting, err := o.made(ctx)
		if err != nil || !waiting {
			return e, err
		}
		if o.age < onceLease && !o.left(ctx) {
			return Entry{}, fmt.Errorf("an earlier request of the same name is not done yet: %w", ErrConflict)
		}
	}
	n.UID = o.prk.Value()
	e, err := o.createSpending(ctx, n, "", o.token())
	if errors.Is(err, ErrNotFound) || o.takenUID(err) {
		e, waiting, madeErr := o.made(ctx)
		if madeErr != nil || !waiting {
			return e, madeErr
		}
	}
	return e, err
}

// leave ends a call that failed: a request that was refused is forgotten, and any other is there for the next call at once.
func (o once) leave(ctx context.Context, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), onceEnd)
	defer cancel()
	switch {
	case isProblem(err):
		if o.prk.IsValid() {
			o.forget(ctx)
		}
	case o.nonce == "" || o.nonce == o.caller:
		if key, bad := onceKey(o.caller); bad == nil {
			_ = o.view.Engine.Invite(ctx, store.Invitation{Token: o.leaving(o.caller), PRK: key, Life: onceLease, Now: o.view.StoreTime()})
		}
	}
}

// leaving returns the token which says that a call has left its request.
func (once) leaving(caller string) store.Token {
	return store.Token{Hash: hashOf(caller), Purpose: purposeOnce}
}

// left reports whether the call that began the request has failed.
func (o once) left(ctx context.Context) bool {
	key, err := onceKey(o.nonce)
	if err == nil {
		_, _, err = o.view.Engine.Peek(ctx, key, o.leaving(o.nonce).Hash, o.view.StoreTime())
	}
	return err == nil
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

// forget lets the name be used for another request: first what is known of this one, then the token by which another
// call of it could still make the entry.
func (o once) forget(ctx context.Context) {
	for _, lies := range []struct {
		prk  recordkey.Key
		hash string
	}{{o.record, o.digest}, {o.prk, o.name}} {
		key, err := store.TokenKey(lies.prk)
		if err != nil {
			continue
		}
		found, err := store.Hashes(ctx, o.view.Engine, []string{key.String()})
		if err != nil || len(found[0].Fields) != 1 || found[0].Fields[lies.hash] == "" {
			continue
		}
		// What is left ends by itself, in a day.
		_, _ = o.view.Engine.Mend(ctx, store.Remove{Key: key.String(), Field: lies.hash, Value: found[0].Fields[lies.hash]})
	}
}
