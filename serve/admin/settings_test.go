package admin_test

import (
	"path/filepath"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// TestRequireFactors checks on each kind of store that all processes, and those of other
// namespaces, see what was set last.
func TestRequireFactors(t *testing.T) {
	for name, url := range map[string]string{
		"file": "file:" + filepath.Join(t.TempDir(), "store"), "redis": redistest.Start(t).URL(), "cluster": redistest.StartCluster(t).URL(),
	} {
		t.Run(name, func(t *testing.T) {
			// with calls do in another process.
			with := func(do func(db *userdb.DB)) {
				t.Helper()
				db, err := userdb.Open(t.Context(), url, userdb.Options{Schema: schema.User()})
				must(t, err)
				do(db)
				must(t, db.Close())
			}
			with(func(db *userdb.DB) { must(t, admin.RequireFactors(t.Context(), db, false)) })
			for _, want := range []bool{false, true, true, false, true} {
				with(func(db *userdb.DB) { must(t, admin.RequireFactors(t.Context(), db, want)) })
				with(func(db *userdb.DB) {
					ns, err := recordkey.ParseNamespace("a")
					must(t, err)
					inside, err := db.In(ns)
					must(t, err)
					for path, db := range map[string]*userdb.DB{"": db, "a": inside} {
						if got, err := admin.FactorsRequired(t.Context(), db); err != nil || got != want {
							t.Errorf("namespace %q: got %v, %v; want %v", path, got, err, want)
						}
					}
				})
			}
		})
	}
}
