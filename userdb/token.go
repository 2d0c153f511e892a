package userdb

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/core"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A Token lets whoever has its secret do one thing once: prove that an address is his, set a new
// password, log in by a link. What the purposes are is up to the application, but for those that
// begin with PurposeChange.
type Token struct {
	Purpose string        // required, at most 256 bytes
	Value   string        // whatever it is bound to, such as an address; at most 4 KiB
	Life    time.Duration // zero: one hour; at most 30 days, at least a millisecond
}

// PurposeChange is how the purpose of a token begins that changes a secondary facet when it is
// redeemed: "change:email" sets the facet email to the token's Value. Only then the value is
// claimed, so that nobody can hold an address that he does not read.
const PurposeChange = "change:"

const (
	defaultLife = time.Hour
	longestLife = 30 * 24 * time.Hour
	maxPurpose  = 256
	maxValue    = 4 << 10
	secretBytes = 20
)

// secretText makes 32 letters and digits of a secret, none of which a mail or a shell takes for something else.
var secretText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// kept is what Redis has of a token; the secret is only in the record's key, as a hash.
type kept struct {
	PRK   string `json:"prk"`
	Key   string `json:"key"`
	Value []byte `json:"value,omitempty"` // whatever bytes they are
}

// Issue makes a single-use token for an entry and returns its secret, 160 random bits as 32 small
// letters and digits. A new password, Disable and Delete make all tokens of an entry void.
func (t *Type) Issue(ctx context.Context, h hints.Hint, tk Token) (string, error) {
	if err := t.checkToken(&tk); err != nil {
		return "", err
	}
	r, err := t.record(ctx, h)
	if err != nil {
		return "", err
	}
	bound, err := t.tokenKey(ctx, r)
	if err != nil {
		return "", err
	}
	var random [secretBytes]byte
	rand.Read(random[:]) // never fails, says its documentation
	secret := secretText.EncodeToString(random[:])
	text, err := json.Marshal(kept{PRK: r.Key.In(recordkey.Namespace{}).String(), Key: bound, Value: []byte(tk.Value)})
	if err != nil {
		return "", err
	}
	key, err := t.tokenRecord(tk.Purpose, secret)
	if err != nil {
		return "", err
	}
	if err := t.db.core.Engine.Keep(ctx, key, string(text), tk.Life); err != nil {
		return "", err
	}
	t.db.emit(ctx, Event{Kind: EventIssue, PRK: r.Key, Purpose: tk.Purpose})
	return secret, nil
}

func (t *Type) checkToken(tk *Token) error {
	if tk.Life == 0 {
		tk.Life = defaultLife
	}
	switch {
	case tk.Purpose == "" || len(tk.Purpose) > maxPurpose:
		return core.Invalid("purpose", "size", "empty or over 256 bytes")
	case len(tk.Value) > maxValue:
		return core.Invalid("value", "size", "over 4 KiB")
	case tk.Life < time.Millisecond || tk.Life > longestLife:
		return core.Invalid("life", "range", "not between a millisecond and 30 days")
	}
	field, changes := strings.CutPrefix(tk.Purpose, PurposeChange)
	switch {
	case !changes:
		return nil
	case !slices.Contains(t.t.Secondary, field):
		return core.Invalid("purpose", "change", "the schema has no secondary field of that name")
	}
	_, err := t.t.Encode(schema.Facets{field: schema.Text(tk.Value)}, nil)
	return err
}

// tokenRecord is where a token lies. The purpose is part of it: presented for another one, a secret
// finds nothing, and is not spent.
func (t *Type) tokenRecord(purpose, secret string) (recordkey.Key, error) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(purpose), purpose, secret))
	return t.t.Own("token", hex.EncodeToString(sum[:]))
}

// tokenKey is what an entry's tokens are bound to: made by the first one, gone with a new password.
func (t *Type) tokenKey(ctx context.Context, r store.Record) (string, error) {
	bound := r.Fields[store.FieldKey]
	if bound != "" {
		return bound, nil
	}
	fresh := store.NewToken()
	r, err := t.rewrite(ctx, r, func(now store.Record) (facets, own map[string]string, err error) {
		return core.Bare(now), map[string]string{store.FieldKey: cmp.Or(now.Fields[store.FieldKey], fresh)}, nil
	})
	if made(err) { // where a failover undoes this, it also undoes the tokens
		err = nil
	}
	return r.Fields[store.FieldKey], err
}

// Redeem spends a token: of any number of callers one gets the entry and what the token was bound
// to. ErrNotFound is the one answer to a secret that is spent, expired, void, of another purpose,
// made up, or of an entry that is disabled or gone. With a purpose of PurposeChange it also changes
// the facet, and ErrDuplicate says that somebody has the value by now; the token is spent then.
func (t *Type) Redeem(ctx context.Context, purpose, secret string) (Entry, Token, error) {
	r, k, err := t.redeem(ctx, purpose, secret)
	if field, changes := strings.CutPrefix(purpose, PurposeChange); changes && err == nil {
		r, err = t.redeemChange(ctx, r, k, field)
	}
	if !made(err) {
		if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrOutcomeUnknown) {
			t.db.emit(ctx, Event{Kind: EventRefuse, PRK: r.Key, Purpose: purpose})
		}
		return Entry{}, Token{}, err
	}
	t.db.emit(ctx, Event{Kind: EventRedeem, PRK: r.Key, Purpose: purpose})
	e, unreadable := t.entry(r)
	return e, Token{Purpose: purpose, Value: string(k.Value)}, cmp.Or(unreadable, err)
}

// redeem spends a token, and reads its entry.
func (t *Type) redeem(ctx context.Context, purpose, secret string) (r store.Record, k kept, err error) {
	if len(secret) > maxPurpose || len(purpose) > maxPurpose {
		return r, k, ErrNotFound
	}
	key, err := t.tokenRecord(purpose, secret)
	if err != nil {
		return r, k, err
	}
	text, err := t.db.core.Engine.Take(ctx, key)
	if err != nil {
		return r, k, err
	}
	if json.Unmarshal([]byte(text), &k) != nil {
		return r, k, ErrNotFound
	}
	prk, err := recordkey.Parse(k.PRK)
	if err != nil {
		return r, k, ErrNotFound
	}
	r, err = t.db.core.Read(ctx, store.Lookup{PRK: prk.In(t.db.core.NS)})
	if errors.Is(err, ErrCorrupt) || err == nil && !k.good(r) {
		err = ErrNotFound
	}
	return r, k, err
}

// good says whether nothing made the token void.
func (k kept) good(r store.Record) bool {
	return r.Fields[store.FieldKey] == k.Key && r.Fields[store.FieldDisabled] == ""
}

// redeemChange sets the secondary facet that a spent token is about, unless it becomes void meanwhile.
func (t *Type) redeemChange(ctx context.Context, r store.Record, k kept, field string) (store.Record, error) {
	return t.rewrite(ctx, r, func(now store.Record) (facets, own map[string]string, err error) {
		if !k.good(now) {
			return nil, nil, ErrNotFound
		}
		changed, err := t.t.Encode(schema.Facets{field: schema.Text(string(k.Value))}, now.Fields)
		facets = core.Bare(now)
		maps.Copy(facets, changed)
		return facets, nil, err
	})
}
