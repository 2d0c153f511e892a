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
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/recordkey"
)

// onceLife is how long CreateOnce remembers a request by its name.
const onceLife = 24 * time.Hour

// reservationLife is how long a reservation is stored. A reservation is made before the request
// that relies on it is stored, and must not expire before that request.
const reservationLife = onceLife + time.Minute

// onceLease is how long the call that began a request counts as running, unless it gives up. Other
// calls are refused until then.
const onceLease = 10 * time.Second

// onceGiveUpTimeout limits how long a failed call takes to give up its request.
const onceGiveUpTimeout = 2 * time.Second

const purposeOnce = "once"

// CreateOnce creates an entry like Create, for callers that repeat a request if they get no answer.
// All requests with the same name, from any process and within 24 hours, create one entry at one
// UID and return its current state. The caller chooses the name, which has at most 1,024 bytes. An
// embedded store keeps the newest 4,000 of these requests.
//
// A repeated request is not a login, because its password is not compared. If all sessions of the
// entry have ended since the first request, for example because of a new password, no session can
// start with the returned entry.
//
// The error is
//
//   - ErrConflict if an earlier request with the name is still running. Try again. A request whose
//     process has crashed counts as running for ten seconds; one that failed can be repeated at
//     once.
//   - ErrNotFound if the entry that the request created has been deleted since, even if another
//     entry has its UID now.
//   - a *FieldError with the rule "once" if the earlier request with the name was different. Only
//     the password may differ, as it is not stored.
//
// A request that is refused, because of an invalid or duplicate value, is forgotten.
func (t *Type) CreateOnce(ctx context.Context, name string, n NewEntry) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "CreateOnce", &err)
	defer v.end(&err)
	o, caller := onceRequest{}, rand.Text()[:16] // caller stays the same in all retries
	err = t.retryOnSchemaChange(ctx, func(t *Type) error {
		begun := o.begun
		o, err = t.openOnce(ctx, name, caller, n)
		if o.begun = o.begun || begun; err == nil {
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
// A reservation is a token at the key of the entry's future tokens. The change that creates the
// entry spends it, and stores the mark of the request in the entry as [store.FieldOnce]. So only
// one of the calls that try to create the entry can succeed, the token shows whether the entry was
// created, and the mark shows whether an entry at prk is the one that the request created.
type onceRequest struct {
	*Type
	record recordkey.Key // has the stored request, as the token of an entry that does not exist
	name   string        // digest of the name
	caller string        // identifies this call
	draft  *change.Draft // of this call's entry, if the call began the request
	begun  bool          // this call may have stored something

	storedRequest
}

// A storedRequest holds a request as stored.
type storedRequest struct {
	digest      string // digest of the name and the request
	beganBy     string // identifies the call that began the request
	reservation string // identifies the reservation of prk, which another call may have made
	prk         recordkey.Key
	age         time.Duration // by the server's clock, as the clocks of two programs may differ
}

// openOnce returns the stored request with a name. If there is none, it begins one, but only after
// it has checked the entry and hashed its password. A request that fails before that, for example
// because the queue for passwords is full, stores nothing.
func (t *Type) openOnce(ctx context.Context, name, caller string, n NewEntry) (o onceRequest, err error) {
	if name == "" || len(name) > 1024 {
		return o, invalid(purposeOnce, "size", "the name must have 1 to 1,024 bytes")
	}
	if err := t.db.loadSecret(ctx); err != nil {
		return o, err
	}
	name = t.Name() + "\x00" + name
	o = onceRequest{Type: t, name: t.db.digest("once-name", name), caller: caller}
	o.digest = t.db.digest("once-request", name+encodeRequest(n))
	if o.record, err = o.onceKey(o.name); err != nil {
		return o, err
	}
	if err = o.read(ctx); !errors.Is(err, ErrNotFound) {
		return o, err
	}
	d, err := t.newDraft(ctx, n)
	if err == nil {
		o.draft = &d
		err = o.begin(ctx, n.UID)
	}
	// Another call with this name may have begun the request or created the entry meanwhile.
	if isRefusal(err) || errors.Is(err, ErrConflict) {
		stored, failed := o.storedRequests(ctx)
		if failed == nil {
			failed = o.read(ctx)
		}
		switch {
		case !errors.Is(failed, ErrNotFound):
			return o, failed
		case len(stored) > 0:
			return o, errOtherRequest
		}
	}
	return o, publicError(err)
}

// errOtherRequest is the error for a name under which another request is stored.
var errOtherRequest = invalid(purposeOnce, purposeOnce, "the name belongs to another request")

// onceKey returns the key under which the request with a name is stored. With a caller in place of
// the name, it returns the key of the token that says that this caller has given up.
//
// The key names the namespace of t, or the end of a long one, so that an embedded store that must
// drop requests drops them from the namespace that has the most. Two namespaces never share a name,
// which is a digest made with the secret of the namespace.
func (t *Type) onceKey(name string) (recordkey.Key, error) {
	ns := t.view.NS.String()
	key, err := recordkey.PRK(purposeOnce, "name"+ns[max(0, len(ns)-1000):], name)
	return key.In(view.Reserved), err
}

// encodeRequest returns an unambiguous encoding of a request, without the password and
// RequirePassword.
func encodeRequest(n NewEntry) string {
	var b strings.Builder
	add := func(text string) { fmt.Fprintf(&b, "%d:%s", len(text), text) }
	add(n.UID)
	add(strconv.FormatBool(n.Disabled))
	if n.SelfRegistered {
		b.WriteString("self-registered ") // a field begins with its length
	}
	for _, field := range slices.Sorted(maps.Keys(n.Facets)) {
		add(field)
		add(string(n.Facets[field].Codec()))
		add(n.Facets[field].Wire())
	}
	add("")
	for _, tag := range distinct(n.Tags) {
		add(tag)
	}
	for _, set := range sortedKeys(n.Sets) {
		b.WriteString("set ") // a tag begins with its length
		add(set)
		for _, member := range distinct(n.Sets[set]) {
			add(member)
		}
	}
	for _, field := range slices.Sorted(maps.Keys(n.Values)) {
		b.WriteString("values ") // a tag begins with its length
		add(field)
		for _, text := range n.Values[field] {
			add(text)
		}
	}
	for _, field := range slices.Sorted(maps.Keys(n.Labels)) {
		b.WriteString("labels ")
		add(field)
		for _, text := range slices.Sorted(maps.Keys(n.Labels[field])) {
			add(text)
			add(n.Labels[field][text])
		}
	}
	return b.String()
}

// read loads the stored request.
func (o *onceRequest) read(ctx context.Context) error {
	tk, left, err := o.view.Engine.Peek(ctx, o.record, o.digest, o.view.StoreTime())
	if err != nil {
		return err
	}
	o.storedRequest, err = o.parse(tk)
	o.age = onceLife - left
	return err
}

// parse returns the request that a token of the record describes.
func (o onceRequest) parse(tk token.Token) (r storedRequest, err error) {
	words := strings.SplitN(tk.Value, " ", 3)
	if len(words) < 3 {
		return r, &store.CorruptError{Key: o.record.String(), Reason: "not a request"}
	}
	r.digest, r.beganBy, r.reservation = tk.Hash, words[0], words[1]
	r.prk, err = o.declared.PRK(words[2])
	return r, err
}

// requestToken returns the token that stores the request.
func (o onceRequest) requestToken(r storedRequest) token.Token {
	return token.Token{Hash: r.digest, Purpose: purposeOnce, Value: r.beganBy + " " + r.reservation + " " + r.prk.Value()}
}

// begin reserves the UID that the entry will have, and then stores the request. A crash in between
// leaves only the reservation, which later calls do not mistake for a request.
func (o *onceRequest) begin(ctx context.Context, uid string) error {
	o.begun = true
	r, err := o.reserveUID(ctx, uid)
	if err != nil {
		return err
	}
	_, err = o.view.Engine.Invite(ctx, token.Invitation{Token: o.requestToken(r), PRK: o.record, Life: onceLife, Now: o.view.StoreTime()})
	switch {
	case err == nil:
		if err = o.read(ctx); errors.Is(err, ErrNotFound) {
			err = errTakenOver
		}
	case errors.Is(err, ErrDuplicate):
		err = errOtherRequest
	}
	if errors.Is(err, errOtherRequest) || err == nil && o.reservation != r.reservation {
		o.release(ctx, r)
	}
	if err != nil || uid == "" || o.beganBy != o.caller {
		return err
	}
	// Another request may have taken over the reservation before it could see this one.
	_, _, err = o.findCreated(ctx)
	if errors.Is(err, ErrNotFound) {
		o.removeToken(ctx, o.record, o.requestToken(o.storedRequest))
		err = errTakenOver
	}
	return err
}

var errTakenOver = fmt.Errorf("another request has taken over the UID: %w", ErrConflict)

// release gives up a reservation that this call has made and that no stored request relies on.
func (o onceRequest) release(ctx context.Context, r storedRequest) {
	if r.reservation == o.caller {
		o.removeReservation(ctx, r)
	}
}

// removeReservation removes the reservation of r if no stored request relies on it.
func (o onceRequest) removeReservation(ctx context.Context, r storedRequest) {
	stored, err := o.storedRequests(ctx)
	if err != nil || slices.ContainsFunc(stored, func(s storedRequest) bool { return s.reservation == r.reservation && s.prk == r.prk }) {
		return
	}
	o.removeToken(ctx, r.prk, o.token(r.reservation))
}

// storedRequests returns the requests that are stored under the name. A request that cannot be read
// is an error.
func (o onceRequest) storedRequests(ctx context.Context) (stored []storedRequest, err error) {
	found, err := o.tokensAt(ctx, o.record)
	if err != nil {
		return nil, err
	}
	for hash, text := range found {
		tk, _ := token.Parse(hash, text)
		r, err := o.parse(tk.Token)
		if err != nil {
			return nil, err
		}
		stored = append(stored, r)
	}
	return stored, nil
}

// tokensAt returns the stored texts of the tokens at a PRK, by their hashes.
func (o onceRequest) tokensAt(ctx context.Context, prk recordkey.Key) (map[string]string, error) {
	key, err := token.Key(prk)
	if err != nil {
		return nil, err
	}
	found, err := store.Hashes(ctx, o.view.Engine, []string{key.String()})
	if err != nil {
		return nil, err
	}
	return found[0].Fields, nil
}

// token returns the token to store at the UID that the entry will have. Its hash depends only on
// the name of the request: if a crash leaves the token behind, it blocks the UID only for requests
// with other names. Its purpose names the reservation, so that a request whose reservation was
// spent cannot spend one that another call with the name makes later.
func (o onceRequest) token(reservation string) token.Token {
	return token.Token{Hash: o.name, Purpose: purposeOnce + "-" + reservation}
}

// reserveUID stores the token at the UID that the entry will have, and returns the request to
// store. If another call with the name has made the reservation, the request relies on that one.
func (o onceRequest) reserveUID(ctx context.Context, uid string) (r storedRequest, err error) {
	r.digest, r.beganBy = o.digest, o.caller
	if uid != "" {
		return o.reserveChosen(ctx, uid, r)
	}
	var tk token.Token
	r.prk, tk, err = o.inviteAt(ctx, o.db.options.NewUID, reservationLife, func(string) (token.Token, error) { return o.token(o.caller), nil })
	r.reservation = strings.TrimPrefix(tk.Purpose, purposeOnce+"-")
	return r, err
}

// reserveChosen reserves a UID that the caller has chosen, and completes the request r. If another
// request has the reservation, reserveChosen tries to take it over.
func (o onceRequest) reserveChosen(ctx context.Context, uid string, r storedRequest) (_ storedRequest, err error) {
	if r.prk, err = o.declared.PRK(uid); err != nil {
		return r, err
	}
	wanted := o.token(o.caller)
	wanted.Value = chosenUID
	for takenOver := false; ; takenOver = true {
		tk, err := o.view.Engine.Invite(ctx, token.Invitation{Token: wanted, PRK: r.prk, Life: reservationLife, Now: o.view.StoreTime()})
		reserved := err == nil
		if !reserved && !errors.Is(err, ErrDuplicate) {
			return r, err
		}
		r.reservation = strings.TrimPrefix(tk.Purpose, purposeOnce+"-")
		// Look for the entry only now: a call that creates it later must spend the token.
		found, err := o.view.FindOne(ctx, store.Lookup{PRK: r.prk})
		switch {
		case err == nil:
			o.release(ctx, r)
			if reservation, same := strings.CutSuffix(found.Fields[store.FieldOnce], o.digest[:16]); same {
				// This request created the entry, and was taken over afterwards.
				r.beganBy, r.reservation = reservation, reservation
				return r, nil
			}
			return r, store.DuplicateField(o.declared.Schema.Primary)
		case !errors.Is(err, ErrNotFound): // another call with the name may rely on the reservation
			return r, err
		case reserved:
			return r, nil
		case takenOver:
			return r, fmt.Errorf("another entry is being created with this UID: %w", ErrConflict)
		}
		if err := o.takeOver(ctx, r.prk); err != nil {
			return r, err
		}
	}
}

// chosenUID is the value of a reservation of a UID that the caller has chosen.
const chosenUID = "chosen"

// takeOver removes the reservations of a chosen UID whose calls have given up or are considered
// dead.
func (o onceRequest) takeOver(ctx context.Context, prk recordkey.Key) error {
	found, err := o.tokensAt(ctx, prk)
	if err != nil {
		return err
	}
	for name, text := range found {
		tk, _ := token.Parse(name, text)
		by, ok := strings.CutPrefix(tk.Purpose, purposeOnce+"-")
		if !ok || tk.Value != chosenUID {
			continue
		}
		other := onceRequest{Type: o.Type, name: name, storedRequest: storedRequest{beganBy: by, reservation: by, prk: prk}}
		if err := other.takeReservation(ctx); err != nil {
			return err
		}
	}
	return nil
}

// takeReservation removes the reservation of o for another request, unless the call that made it
// may still be running. It removes that call's request first. If the request is repeated, it begins
// again and is refused. If the call creates the entry meanwhile, the entry's mark shows that.
func (o onceRequest) takeReservation(ctx context.Context) (err error) {
	if o.record, err = o.onceKey(o.name); err != nil {
		return err
	}
	_, left, err := o.view.Engine.Peek(ctx, o.prk, o.name, o.view.StoreTime())
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if o.age = reservationLife - left; o.isRunning(ctx) {
		return nil
	}
	// The reservation is only removed after the requests that rely on it. A request that was
	// stored meanwhile is removed last; one that is stored later finds its reservation gone.
	if err := o.removeRequests(ctx); err != nil {
		return err
	}
	o.removeReservation(ctx, o.storedRequest)
	return o.removeRequests(ctx)
}

// removeRequests removes the stored requests that rely on the same reservation.
func (o onceRequest) removeRequests(ctx context.Context) error {
	stored, err := o.storedRequests(ctx)
	for _, r := range stored {
		if r.reservation == o.reservation && r.prk == o.prk {
			o.removeToken(ctx, o.record, o.requestToken(r))
		}
	}
	return err
}

// isRunning reports whether the call that began the request may still be running. A request whose
// beginning lies onceLease or more in the future was stored while the clock was wrong, and does not
// count as running.
func (o onceRequest) isRunning(ctx context.Context) bool {
	return o.age.Abs() < onceLease && !o.wasGivenUp(ctx)
}

// findCreated returns the entry that the request has created, or reports waiting if it has yet to
// create one. The error is ErrNotFound if that entry was deleted, even if another one has its UID,
// and errTakenOver if the request is no longer stored.
func (o onceRequest) findCreated(ctx context.Context) (e Entry, waiting bool, err error) {
	tk, _, err := o.view.Engine.Peek(ctx, o.prk, o.name, o.view.StoreTime())
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Entry{}, false, err
	}
	reserved := err == nil && tk.Purpose == o.token(o.reservation).Purpose
	r, err := o.view.FindOne(ctx, store.Lookup{PRK: o.prk})
	switch {
	case err != nil && !errors.Is(err, ErrNotFound):
		return Entry{}, false, err
	case err == nil && r.Fields[store.FieldOnce] == o.mark():
		e, err = o.entry(r, nil)
		e.ended = endedSessions(r)
		return e, false, err
	// The token may exist although it was spent, if the server refused to remove it.
	case reserved && (err != nil || !r.Tokens().Ended(o.name)):
		return Entry{}, true, nil
	case o.wasTakenOver(ctx):
		return Entry{}, false, errTakenOver
	}
	return Entry{}, false, ErrNotFound
}

// endedSessions reports whether all sessions of an entry have ended since it was created. The first
// epoch of an entry begins with a hyphen or, if the entry was created over a tombstone, is the rev
// of its create. In the second case, endedSessions also reports true once the entry has changed so
// often that ~rev no longer has that rev.
func endedSessions(r store.Record) bool {
	epoch := r.Fields[session.FieldEpoch]
	for rev := range slices.Chunk([]byte(r.Fields[store.FieldRev]), store.RevLen) {
		if string(rev) == epoch {
			return false
		}
	}
	return epoch != "" && !strings.HasPrefix(epoch, "-")
}

// wasTakenOver reports whether the request is no longer stored, so that a call that repeats it
// begins again.
func (o onceRequest) wasTakenOver(ctx context.Context) bool {
	now := onceRequest{Type: o.Type, record: o.record, storedRequest: storedRequest{digest: o.digest}}
	err := now.read(ctx)
	return errors.Is(err, ErrNotFound) || err == nil && now.reservation != o.reservation
}

// mark returns the mark of the entry that the request creates. It names the request as well as the
// reservation, since a corrected request may rely on the reservation of the refused one.
func (o onceRequest) mark() string { return o.reservation + o.digest[:16] }

// create creates the entry, or returns it if an earlier call has done so.
func (o onceRequest) create(ctx context.Context, n NewEntry) (Entry, error) {
	if o.beganBy != o.caller {
		e, waiting, err := o.findCreated(ctx)
		if err != nil || !waiting {
			return e, err
		}
		if o.isRunning(ctx) {
			return Entry{}, fmt.Errorf("an earlier request with this name is still running: %w", ErrConflict)
		}
	}
	n.UID = o.prk.Value()
	e, err := o.createReserved(ctx, n)
	if errors.Is(err, ErrNotFound) || o.isTakenUID(err) {
		e, waiting, findErr := o.findCreated(ctx)
		if findErr != nil || !waiting {
			return e, findErr
		}
	}
	return e, err
}

// createReserved creates the entry in the change that spends the reservation of its UID.
func (o onceRequest) createReserved(ctx context.Context, n NewEntry) (Entry, error) {
	if o.draft == nil {
		d, err := o.newDraft(ctx, n)
		if err != nil {
			return Entry{}, publicError(err)
		}
		o.draft = &d
	}
	d := *o.draft
	d.UID = n.UID
	d.Own = maps.Clone(d.Own)
	d.SetOwn(store.FieldOnce, o.mark())
	return o.createWithToken(ctx, d, o.token(o.reservation))
}

// giveUp ends a call that failed with err. A refused request is forgotten. Any other request that
// this call began can be taken over by the next call at once.
func (o onceRequest) giveUp(ctx context.Context, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), onceGiveUpTimeout)
	defer cancel()
	switch {
	case isRefusal(err):
		if o.prk.IsValid() {
			o.forget(ctx)
		}
	case o.begun && (o.beganBy == "" || o.beganBy == o.caller):
		if key, bad := o.onceKey(o.caller); bad == nil {
			_, _ = o.view.Engine.Invite(ctx, token.Invitation{Token: o.giveUpToken(o.caller), PRK: key, Life: onceLease, Now: o.view.StoreTime()})
		}
	}
}

// giveUpToken returns the token that marks a request as given up by its call.
func (onceRequest) giveUpToken(caller string) token.Token {
	return token.Token{Hash: hashSecret(caller), Purpose: purposeOnce}
}

// wasGivenUp reports whether the call that began the request has given it up.
func (o onceRequest) wasGivenUp(ctx context.Context) bool {
	key, err := o.onceKey(o.beganBy)
	if err == nil {
		_, _, err = o.view.Engine.Peek(ctx, key, o.giveUpToken(o.beganBy).Hash, o.view.StoreTime())
	}
	return err == nil
}

// isRefusal reports whether err says that the request was refused, and not that the store failed.
func isRefusal(err error) bool {
	return (errors.Is(err, ErrDuplicate) || errors.Is(err, ErrInvalid) || errors.Is(err, password.ErrPolicy)) && !errors.Is(err, ErrUnavailable)
}

// forget allows the name to be used for another request. It removes the stored request first, then
// the reservation with which another call could still create the entry, unless another request
// relies on it by now.
func (o onceRequest) forget(ctx context.Context) {
	o.removeToken(ctx, o.record, o.requestToken(o.storedRequest))
	o.removeReservation(ctx, o.storedRequest)
}

// removeToken removes tk from prk if it is the only token there. If tk has no value, any value
// matches. If the removal fails, the token stays until it expires.
func (o onceRequest) removeToken(ctx context.Context, prk recordkey.Key, tk token.Token) {
	key, err := token.Key(prk)
	if err != nil {
		return
	}
	found, err := o.tokensAt(ctx, prk)
	if err != nil || len(found) != 1 {
		return
	}
	text := found[tk.Hash]
	if stored, ok := token.Parse(tk.Hash, text); ok && stored.Purpose == tk.Purpose && (tk.Value == "" || stored.Value == tk.Value) {
		_, _ = o.view.Engine.Repair(ctx, store.Remove{Key: key.String(), Field: tk.Hash, Value: text})
	}
}
