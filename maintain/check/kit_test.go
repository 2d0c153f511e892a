package check_test

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }

// A site is a store, with what the tests here do to it.
type site struct{ *testdb.Site }

func eachStore(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	testdb.EachStore(t, func(t *testing.T, s *testdb.Site) { test(t, &site{s}) })
}

// eachEngine, as twoEngines, is for tests in which nobody writes while a check runs; others set s.Ctx.
func eachEngine(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) { test(t, alone(s)) })
}

func alone(s *testdb.Site) *site {
	s.Ctx = store.Alone(s.Ctx)
	return &site{s}
}

func twoEngines(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) { test(t, alone(s)) })
}

func open(t *testing.T, raw *redis.Client, ns recordkey.Namespace, sch schema.Schema) *site {
	t.Helper()
	return &site{testdb.Open(t, raw, ns, sch)}
}

// Under is the same store with another schema.
func (s *site) Under(t *testing.T, sch schema.Schema) *site { return alone(s.Site.Under(t, sch)) }
