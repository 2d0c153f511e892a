package scim

import (
	"context"
	"errors"
	"slices"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// purposeTakeOver is the purpose of the tokens by which a directory takes over users.
const purposeTakeOver = "directory"

// takeOver ends the access of the visitor who registered a user without verifying an address,
// before the directory changes the user or gives it a tag: the directory means the owner of the
// address, who may be somebody else. It removes the password and ends all sessions and tokens. The
// address then counts as verified, because the directory vouches for it. A disabled user is left
// alone, because nobody can sign in to it.
func (r *collection) takeOver(ctx context.Context, uid string) error {
	e, err := r.users.Find(ctx, hints.UID(uid))
	if errors.Is(err, userdb.ErrCorrupt) { // nobody can sign in to it either
		return nil
	}
	if err != nil || !e.Unproven() || e.Disabled() {
		return err
	}
	secret, _, err := r.users.IssueFor(ctx, hints.Key(e.Key()), r.provingField(e), userdb.Token{Purpose: purposeTakeOver})
	if err == nil {
		_, _, err = r.users.Redeem(ctx, purposeTakeOver, secret)
	}
	return err
}

// takeOverAll calls takeOver for each of the users that needs it. It reads no other user.
func (r *collection) takeOverAll(ctx context.Context, uids []string) error {
	v := view.Of(r.db)
	t, err := v.Type(r.users.Name())
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(uids, memberBatch) {
		keys := make([]recordkey.Key, len(batch))
		for i, uid := range batch {
			if keys[i], err = t.PRK(uid); err != nil {
				return err
			}
		}
		if keys, err = v.KeysWithField(ctx, keys, store.FieldUnproven); err != nil {
			return err
		}
		unproven := make([]string, len(keys))
		for i, key := range keys {
			unproven[i] = key.Value()
		}
		if err := forEach(ctx, unproven, func(uid string) error { return r.takeOver(ctx, uid) }); err != nil {
			return err
		}
	}
	return nil
}

// provingField returns the field of a user's address or, if the user has none, that of userName.
func (r *collection) provingField(e userdb.Entry) string {
	all := r.schema.Secondary()
	at := slices.IndexFunc(all, func(field string) bool { return r.schema.Fields[field].HasAddresses() && e.Text(field) != "" })
	if at < 0 {
		return r.fields["username"]
	}
	return all[at]
}
