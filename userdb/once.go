package userdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/recordkey"
)

// onceLife is how long CreateOnce remembers a request by its name.
const onceLife = 24 * time.Hour

// onceLease is how long other calls leave a request to the call that began it, which may still be
// running.
const onceLease = 10 * time.Second

// onceGiveUpTimeout limits how long a failed call takes to give up its request.
const onceGiveUpTimeout = 2 * time.Second

const purposeOnce = "once"

// CreateOnce creates an entry like Create, for callers that repeat a request if they get no answer.
// All requests with the same name, from any process and within 24 hours, create one entry at one
// UID and return its current state. The caller chooses the name, which has at most 1,024 bytes.
//
// The error is
//
//   - ErrConflict if an earlier request with the name is still running. Try again. A request whose
//     process has crashed counts as running for ten seconds; one that failed can be repeated at
//     once.
//   - ErrNotFound if the request created the entry, which has been deleted since.
//   - a *FieldError with the rule "once" if the earlier request was a different one. Only the
//     password may differ, as it is not stored.
//
// A request that is refused, because of an invalid or duplicate value, is forgotten.
func (t *Type) CreateOnce(ctx context.Context, name string, n NewEntry) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "CreateOnce", &err)
	defer v.end(&err)
	o, caller := onceRequest{}, rand.Text() // caller stays the same in all retries
	err = t.retryOnSchemaChange(ctx, func(t *Type) error {
		if o, err = t.openOnce(ctx, name, caller, n); err == nil {
			e, err = o.create(ctx, n)
		}
		return err
	})
	if o.caller == caller && !committed(err) {
		o.giveUp(ctx, err)
	}
	return e, err
}

// A onceRequest represents a request of CreateOnce for an entry at prk.
//
// The call that begins the request stores a token where the tokens of the entry will be, and the
// change that creates the entry spends that token. The token therefore shows at any time whether
// the entry was created, and only one of the calls that try to create the entry can succeed. The
// age is measured by the server's clock, as the clocks of two programs may differ.
type onceRequest struct {
	*Type
	record recordkey.Key // stores the request, as the token of an entry that does not exist
	name   string        // digest of the name
	digest string        // digest of the name and the request
	caller string        // identifies this call
	nonce  string        // identifies the call that began the request
	prk    recordkey.Key
	age    time.Duration
	draft  *change.Draft // of this call's entry, if the call began the request
	begun  bool          // this call may have stored something
}

// openOnce returns the stored request with a name. If there is none, it begins one, but only after
// it has checked the entry and hashed its password: what is refused stores nothing, however often
// somebody asks for it while the queue for passwords is full.
func (t *Type) openOnce(ctx context.Context, name, caller string, n NewEntry) (o onceRequest, err error) {
	if name == "" || len(name) > 1024 {
		return o, invalid(purposeOnce, "size", "the name must have 1 to 1,024 bytes")
	}
	if err := t.db.loadSecret(ctx); err != nil {
		return o, err
	}
	name = t.Name() + "\x00" + name
	o = onceRequest{Type: t, name: t.db.digest("once-name", name), digest: t.db.digest("once-request", name+encodeRequest(n)), caller: caller}
	if o.record, err = onceKey(o.name); err != nil {
		return o, err
	}
	if err = o.read(ctx); !errors.Is(err, ErrNotFound) {
		return o, err
	}
	d, err := t.newDraft(ctx, n)
	if err == nil {
		o.draft = &d
		return o, o.begin(ctx, n.UID)
	}
	if isRefusal(err) { // perhaps because the entry of another call with this name has the values
		switch uids, failed := o.reservedUIDs(ctx); {
		case failed != nil:
			return o, failed
		case o.read(ctx) == nil:
			return o, nil
		case len(uids) > 0:
			return o, errOtherRequest
		}
	}
	return o, publicError(err)
}

// errOtherRequest is the error for a name under which another request is stored.
var errOtherRequest = invalid(purposeOnce, purposeOnce, "the name belongs to another request")

// onceKey returns the key under which the request with a name is stored. With the caller of a
// request as the name, it returns the key of the mark that this call has given up the request.
func onceKey(name string) (recordkey.Key, error) {
	key, err := recordkey.PRK(purposeOnce, "name", name)
	return key.In(view.Reserved), err
}

// encodeRequest returns an unambiguous encoding of a request, without its password and whether one
// is required.
func encodeRequest(n NewEntry) string {
	var b strings.Builder
	add := func(text string) { fmt.Fprintf(&b, "%d:%s", len(text), text) }
	add(n.UID)
	add(strconv.FormatBool(n.Disabled))
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

// read loads the stored request.
func (o *onceRequest) read(ctx context.Context) error {
	tk, left, err := o.view.Engine.Peek(ctx, o.record, o.digest, o.view.StoreTime())
	if err != nil {
		return err
	}
	nonce, uid, ok := strings.Cut(tk.Value, " ")
	if !ok {
		return &store.CorruptError{Key: o.record.String(), Reason: "not a request"}
	}
	o.age, o.nonce = onceLife-left, nonce
	o.prk, err = o.declared.PRK(uid)
	return err
}

// begin reserves the UID that the entry will have, and then stores the request. A crash in between
// leaves only the reservation, which no later call takes for a request.
func (o *onceRequest) begin(ctx context.Context, uid string) error {
	prk, err := o.reserveUID(ctx, uid)
	if err != nil {
		return err
	}
	o.begun = true
	err = o.view.Engine.Invite(ctx, token.Invitation{
		Token: token.Token{Hash: o.digest, Purpose: purposeOnce, Value: o.caller + " " + prk.Value()},
		PRK:   o.record, Life: onceLife, Now: o.view.StoreTime(),
	})
	if errors.Is(err, ErrDuplicate) {
		o.release(ctx, prk)
		return errOtherRequest
	}
	if err == nil {
		err = o.read(ctx)
	}
	if err == nil && o.prk != prk { // another caller stored the request first
		o.removeToken(ctx, prk, o.name)
	}
	return err
}

// release gives up the reservation at prk of a request that is not stored, because its name belongs
// to another one. It does nothing if that one may have reserved the same UID.
func (o onceRequest) release(ctx context.Context, prk recordkey.Key) {
	if uids, err := o.reservedUIDs(ctx); err == nil && !slices.Contains(uids, prk.Value()) {
		o.removeToken(ctx, prk, o.name)
	}
}

// reservedUIDs returns the UIDs that requests with the name have reserved. A request that cannot be
// read is an error.
func (o onceRequest) reservedUIDs(ctx context.Context) (uids []string, err error) {
	key, err := token.Key(o.record)
	if err != nil {
		return nil, err
	}
	found, err := store.Hashes(ctx, o.view.Engine, []string{key.String()})
	if err != nil {
		return nil, err
	}
	for hash, text := range found[0].Fields {
		tk, ok := token.Parse(hash, text)
		_, uid, named := strings.Cut(tk.Value, " ")
		if !ok || !named {
			return nil, &store.CorruptError{Key: key.String(), Reason: "not a request"}
		}
		uids = append(uids, uid)
	}
	return uids, nil
}

// token returns the token to store at the UID that the entry will have. It depends only on the name
// of the request. If a crash leaves it behind, it blocks the UID only for requests with other
// names.
func (o onceRequest) token() token.Token { return token.Token{Hash: o.name, Purpose: purposeOnce} }

// reserveUID stores the token at the UID that the entry will have, and returns the PRK.
func (o onceRequest) reserveUID(ctx context.Context, uid string) (prk recordkey.Key, err error) {
	if uid == "" {
		return o.inviteAt(ctx, o.db.options.NewUID, onceLife, func(string) (token.Token, error) { return o.token(), nil })
	}
	if prk, err = o.declared.PRK(uid); err != nil {
		return prk, err
	}
	err = o.view.Engine.Invite(ctx, token.Invitation{Token: o.token(), PRK: prk, Life: onceLife, Now: o.view.StoreTime()})
	reserved := err == nil
	if !reserved && !errors.Is(err, ErrDuplicate) {
		return prk, err
	}
	// Look for the entry afterwards: one that another call creates from now on spends the token.
	_, err = o.view.FindOne(ctx, store.Lookup{PRK: prk})
	if reserved && !errors.Is(err, ErrNotFound) {
		o.removeToken(ctx, prk, o.name)
	}
	switch {
	case err == nil:
		return prk, store.DuplicateField(o.declared.Schema.Primary)
	case !errors.Is(err, ErrNotFound):
		return prk, err
	case !reserved:
		return prk, fmt.Errorf("another entry is being created with this UID: %w", ErrConflict)
	}
	return prk, nil
}

// findCreated returns the entry if the request has created it. waiting reports whether the request
// has yet to create it.
func (o onceRequest) findCreated(ctx context.Context) (e Entry, waiting bool, err error) {
	_, _, err = o.view.Engine.Peek(ctx, o.prk, o.name, o.view.StoreTime())
	pending := err == nil
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Entry{}, false, err
	}
	// The token may exist although it was spent, if the server refused to remove it.
	r, err := o.view.FindOne(ctx, store.Lookup{PRK: o.prk})
	if pending && (errors.Is(err, ErrNotFound) || err == nil && !r.Tokens().Ended(o.name)) {
		return Entry{}, true, nil
	}
	e, err = o.entry(r, err)
	return e, false, err
}

// create creates the entry, or returns it if an earlier call has done so.
func (o onceRequest) create(ctx context.Context, n NewEntry) (Entry, error) {
	if o.nonce != o.caller {
		e, waiting, err := o.findCreated(ctx)
		if err != nil || !waiting {
			return e, err
		}
		if o.age < onceLease && !o.wasGivenUp(ctx) {
			return Entry{}, fmt.Errorf("an earlier request with this name is still running: %w", ErrConflict)
		}
	}
	n.UID = o.prk.Value()
	e, err := o.createWithToken(ctx, n, o.draft, "", o.token())
	if errors.Is(err, ErrNotFound) || o.isTakenUID(err) {
		e, waiting, findErr := o.findCreated(ctx)
		if findErr != nil || !waiting {
			return e, findErr
		}
	}
	return e, err
}

// giveUp ends a call that failed with err. A request that was refused is forgotten; any other can
// be taken over by the next call at once.
func (o onceRequest) giveUp(ctx context.Context, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), onceGiveUpTimeout)
	defer cancel()
	switch {
	case isRefusal(err):
		if o.prk.IsValid() {
			o.forget(ctx)
		}
	case o.begun && (o.nonce == "" || o.nonce == o.caller):
		if key, bad := onceKey(o.caller); bad == nil {
			_ = o.view.Engine.Invite(ctx, token.Invitation{Token: o.giveUpToken(o.caller), PRK: key, Life: onceLease, Now: o.view.StoreTime()})
		}
	}
}

// giveUpToken returns the token that marks a request as given up by its call.
func (onceRequest) giveUpToken(caller string) token.Token {
	return token.Token{Hash: hashSecret(caller), Purpose: purposeOnce}
}

// wasGivenUp reports whether the call that began the request has given it up.
func (o onceRequest) wasGivenUp(ctx context.Context) bool {
	key, err := onceKey(o.nonce)
	if err == nil {
		_, _, err = o.view.Engine.Peek(ctx, key, o.giveUpToken(o.nonce).Hash, o.view.StoreTime())
	}
	return err == nil
}

// isRefusal reports whether err only says that the request is refused.
func isRefusal(err error) bool {
	return (errors.Is(err, ErrDuplicate) || errors.Is(err, ErrInvalid) || errors.Is(err, password.ErrPolicy)) && !errors.Is(err, ErrUnavailable)
}

// isTakenUID reports whether a create was refused because its UID is taken.
func (t *Type) isTakenUID(err error) bool {
	taken, is := errors.AsType[*FieldError](err)
	return is && errors.Is(taken, ErrDuplicate) && taken.Field == t.current().declared.Schema.Primary
}

// forget allows the name to be used for another request. It removes the stored request first, then
// the token with which another call could still create the entry.
func (o onceRequest) forget(ctx context.Context) {
	o.removeToken(ctx, o.record, o.digest)
	o.removeToken(ctx, o.prk, o.name)
}

// removeToken removes the token with a hash at prk, if it is the only one there. If that fails, the
// token expires within a day.
func (o onceRequest) removeToken(ctx context.Context, prk recordkey.Key, hash string) {
	key, err := token.Key(prk)
	if err != nil {
		return
	}
	found, err := store.Hashes(ctx, o.view.Engine, []string{key.String()})
	if err != nil || len(found[0].Fields) != 1 || found[0].Fields[hash] == "" {
		return
	}
	_, _ = o.view.Engine.Repair(ctx, store.Remove{Key: key.String(), Field: hash, Value: found[0].Fields[hash]})
}
