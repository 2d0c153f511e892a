package userdb_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestClusterDeletesInOpenSlot deletes an entry whose slot is being migrated. It leaves a tombstone there, so
// that the account that is made anew under its UID has nothing of the old one, nor anybody two accounts.
func TestClusterDeletesInOpenSlot(t *testing.T) {
	c := redistest.StartCluster(t)
	db, err := userdb.Open(t.Context(), c.URL(), userdb.Options{})
	must(t, err)
	defer db.Close()
	users, raw := typeOf(t, db, "user"), clientOf(db).(*redis.ClusterClient)
	for i := range 3 {
		uid, key := fmt.Sprint("u", i), fmt.Sprint("user/uid:u", i)
		_, err := users.Create(t.Context(), userdb.NewEntry{UID: uid, Facets: schema.Texts("name", "n"+uid, "job", "j"), Tags: []string{"admin"}})
		must(t, err)
		slot := c.OpenSlot(key)
		must(t, users.Delete(t.Context(), hints.UID(uid)))
		fields := raw.HGetAll(t.Context(), key).Val()
		if life := raw.TTL(t.Context(), key).Val(); len(fields) != 1 || len(fields["~rev"]) < 24 || life <= 0 {
			t.Errorf("the tombstone is %q and lives %v", fields, life)
		}
		if i == 1 {
			slot.Finish()
		}
		_, err = users.Create(t.Context(), userdb.NewEntry{UID: uid, Facets: schema.Texts("name", "n"+uid)})
		must(t, err)
		if _, err := users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("email", "n"+uid)}); !errors.Is(err, userdb.ErrInvalid) && !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("a second owner of a name: %v", err)
		}
		if i == 2 {
			slot.Finish()
		}
		if tags, err := users.Tags(hints.UID(uid)).Members(t.Context()); err != nil || len(tags) > 0 {
			t.Errorf("the new account has the tags %q, %v", tags, err)
		}
		if i == 0 {
			slot.Finish()
		}
	}
	mended(t, db, never)
}
