package admin_test

import (
	"bytes"
	"encoding/base32"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/totp"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// TestFactorKeysMissing checks, on each kind of store, that FactorKeysMissing reports true if there
// are second factors and the keys open none of them, and false otherwise. FindLostFactors must find
// exactly the factors that no key opens.
func TestFactorKeysMissing(t *testing.T) {
	key := func(letter string) []byte { return bytes.Repeat([]byte(letter), 32) }
	for name, url := range map[string]string{
		"file": "file:" + filepath.Join(t.TempDir(), "store"), "redis": redistest.Start(t).URL(), "cluster": redistest.StartCluster(t).URL(),
	} {
		t.Run(name, func(t *testing.T) {
			with := func(do func(db *userdb.DB), keys ...[]byte) {
				t.Helper()
				sc := schema.User()
				user := sc.Types["user"]
				user.Factors = true
				sc.Types["user"] = user
				db, err := userdb.Open(t.Context(), url, userdb.Options{Schema: sc, Keys: keys})
				must(t, err)
				do(db)
				must(t, db.Close())
			}
			want := func(what string, missing bool, keys ...[]byte) {
				t.Helper()
				with(func(db *userdb.DB) {
					if got, err := admin.FactorKeysMissing(t.Context(), db); err != nil || got != missing {
						t.Errorf("%s: got %v, %v; want %v", what, got, err, missing)
					}
				}, keys...)
			}
			want("an empty store", false)
			with(func(db *userdb.DB) {
				users, err := db.Type("user")
				must(t, err)
				for i := range 600 { // more than one step
					_, err := users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", fmt.Sprint("user", i))})
					must(t, err)
				}
			}, key("a"))
			want("entries without factors", false)

			with(func(db *userdb.DB) {
				_, err := admin.AddOperator(t.Context(), db, "Olga", goodPassword)
				must(t, err)
				operators, err := admin.Operators(db)
				must(t, err)
				must(t, enrol(t, operators, "olga"))
			}, key("a"))
			want("the key of an operator", false, key("a"))
			want("no key, and an operator has a factor", true)
			with(func(db *userdb.DB) {
				operators, err := admin.Operators(db)
				must(t, err)
				_, err = operators.ResetFactors(t.Context(), hints.Any("olga"))
				must(t, err)
			})
			want("a factor that was removed", false)

			with(func(db *userdb.DB) {
				users, err := db.Type("user")
				must(t, err)
				e, err := users.Find(t.Context(), hints.Any("user7"))
				must(t, err)
				_, session, err := users.StartSession(t.Context(), e, userdb.SessionOptions{})
				must(t, err)
				app, err := users.EnrolTOTP(t.Context(), session, userdb.TOTPOptions{})
				must(t, err)
				secret, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(app.Secret)
				must(t, err)
				_, err = users.ConfirmTOTP(t.Context(), session, app.ID, totp.Code(secret, totp.Step(time.Now())), userdb.SessionOptions{})
				must(t, err)
			}, key("a"))
			want("no key", true)
			want("another key", true, key("b"))
			want("the key", false, key("a"))
			want("the key, and a new one before it", false, key("b"), key("a"))

			lost := func(what string, want, wantKept int, keys ...[]byte) {
				t.Helper()
				with(func(db *userdb.DB) {
					users, err := db.Type("user")
					must(t, err)
					n, kept := 0, 0
					for f, err := range admin.FindLostFactors(t.Context(), db, users) {
						must(t, err)
						n, kept = n+len(f.IDs), kept+f.Kept
						if len(f.IDs) > 0 {
							_, err = users.ResetFactors(t.Context(), hints.Key(f.Entry.Key()), f.IDs...)
							must(t, err)
						}
					}
					if n != want || kept != wantKept {
						t.Errorf("%s: removed %d factors and kept %d, want %d and %d", what, n, kept, want, wantKept)
					}
				}, keys...)
			}
			lost("the key, and a new one before it", 0, 2, key("b"), key("a"))
			lost("another key", 2, 0, key("b"))
			want("another key after the lost factors were removed", false, key("b"))
		})
	}
}

// TestFindLostFactorsBesideDamage checks that lost factors are found beside entries that cannot be
// read.
func TestFindLostFactorsBesideDamage(t *testing.T) {
	server := redistest.Start(t)
	sc := schema.User()
	user := sc.Types["user"]
	user.Factors = true
	sc.Types["user"] = user
	open := func(letter string) (*userdb.DB, *userdb.Type) {
		db, err := userdb.Open(t.Context(), server.URL(), userdb.Options{Schema: sc, Keys: [][]byte{bytes.Repeat([]byte(letter), 32)}})
		must(t, err)
		t.Cleanup(func() { must(t, db.Close()) })
		users, err := db.Type("user")
		must(t, err)
		return db, users
	}
	_, users := open("a")
	_, err := users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", "Alice"), Password: goodPassword})
	must(t, err)
	must(t, enrol(t, users, "Alice"))
	for i := range 3 {
		must(t, server.Client().HSet(t.Context(), fmt.Sprint("user/uid:damaged", i), "~isa", "another type").Err())
	}
	damaged, lost := 0, 0
	db, users := open("b")
	for f, err := range admin.FindLostFactors(t.Context(), db, users) {
		if errors.Is(err, userdb.ErrCorrupt) {
			damaged++
			continue
		}
		must(t, err)
		lost += len(f.IDs)
	}
	if damaged != 3 || lost != 2 {
		t.Errorf("found %d entries that cannot be read and %d lost factors, want 3 and 2", damaged, lost)
	}
}
