package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestCreateOnceForbidden sends a request while one command is forbidden, so that the request may
// fail in the middle. With all rights, the same request must then succeed. The test deletes the
// entry in the same way, after which the request must return ErrNotFound.
func TestCreateOnceForbidden(t *testing.T) {
	t.Parallel()
	app, _ := redistest.Rights(t)
	n := userdb.NewEntry{UID: "u", Facets: schema.Texts("name", "n")}
	once := func(ctx context.Context, db *userdb.DB) error {
		return errOf(typeOf(t, db, "user").CreateOnce(ctx, "one", n))
	}
	remove := func(ctx context.Context, db *userdb.DB) error {
		return typeOf(t, db, "user").Delete(ctx, hints.UID("u"))
	}
	for i := range 4 {
		clustered := i%2 == 1
		if i == 2 { // an entry with tags begins with other commands
			n.Tags = []string{"admin"}
		}
		w := newACLServer(t, clustered)
		for _, command := range strings.Fields("unlink hdel pexpire expire persist sadd set hsetnx hset xadd rename") {
			what := fmt.Sprintf("%s, cluster %v, tags %v", command, clustered, n.Tags)
			must(t, w.admin.FlushAll(t.Context()).Err())
			must(t, w.runAs("app", app, func(_ context.Context, db *userdb.DB) error {
				add(t, typeOf(t, db, "user"), "first", "name", "first")
				return nil
			}))
			first := w.runWithout(app, command, once)
			if err := w.runAs("app", app, once); err != nil {
				t.Errorf("%s: create: got %v without the command, then %v with it", what, first, err)
				continue
			}
			if refused := w.runWithout(app, command, remove); refused != nil {
				err := w.runAs("app", app, remove)
				if err != nil && !errors.Is(err, userdb.ErrNotFound) {
					t.Errorf("%s: delete: got %v without the command, then %v with it", what, refused, err)
				}
			}
			wantErr(t, what+": create again after the delete", w.runAs("app", app, once), userdb.ErrNotFound)
		}
	}
}
