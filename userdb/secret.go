package userdb

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// A secret keys the hashes under which identifiers that nobody has, and origins, are counted and
// logged: visitors type passwords into the wrong box. It is made once for each namespace, and lies
// in the database as ~/secret.
type secret struct{ key atomic.Pointer[string] }

// digest is 128 bits of a keyed hash of some kind of text, as text; loadSecret comes first.
func (s *secret) digest(kind, text string) string {
	mac := hmac.New(sha256.New, []byte(*s.key.Load()))
	mac.Write([]byte(kind + "\x00" + text))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// loadSecret reads the secret of the view's namespace, or makes it.
func (db *DB) loadSecret(ctx context.Context) error {
	if db.secret.key.Load() != nil {
		return nil
	}
	key, err := recordkey.Own("secret")
	if err != nil {
		return err
	}
	var fresh [32]byte
	rand.Read(fresh[:]) // never fails, says its documentation
	key = key.In(db.view.NS)
	text, err := db.view.Engine.Secret(ctx, key, hex.EncodeToString(fresh[:]))
	if raw, bad := hex.DecodeString(text); err == nil && (bad != nil || len(raw) != len(fresh)) {
		err = &store.CorruptError{Key: key.String(), Reason: "not the 64 hexadecimal digits that were made"}
	}
	if err != nil {
		return curable(err)
	}
	db.secret.key.Store(&text)
	return nil
}

// curable names what mends a record of the store's own: without it nobody logs in.
func curable(err error) error {
	if errors.Is(err, ErrCorrupt) {
		return fmt.Errorf("%w; 'userdb check --repair' mends it", err)
	}
	return err
}
