package cluster

import (
	"testing"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
)

// TestScriptsInOpenSlot sends scripts to real nodes while the slot of their key is being migrated: what they write
// is there afterwards, though what they remove would have to be written at another node.
func TestScriptsInOpenSlot(t *testing.T) {
	c := redistest.StartCluster(t)
	e, ctx := New(c.Client(), Options{}), t.Context()
	defer e.Close()

	g := people.Guard()
	state := func(fingerprint string, more ...store.Facet) []store.Facet {
		return append([]store.Facet{{Field: "fingerprint", Wire: fingerprint}, {Field: "schema", Wire: "{}"}}, more...)
	}
	if is, err := e.Mend(ctx, store.Restate{Guard: g, Seen: "", State: state("f1", store.Facet{Field: "next", Wire: "x"})}); !is || err != nil {
		t.Fatal(is, err)
	}
	slot := c.OpenSlot(g.Key.String())
	if is, err := e.Mend(ctx, store.Restate{Guard: g, Seen: "f1", State: state("f2")}); !is || err != nil {
		t.Errorf("restating: %v, %v", is, err)
	}
	if now := e.client.HGetAll(ctx, g.Key.String()).Val(); len(now) != 2 || now["fingerprint"] != "f2" {
		t.Errorf("stored is %q", now)
	}
	slot.Finish()

	for kind, values := range map[string][]string{
		"set": {"a", "b"}, "list": {"a", "a", "b"}, "zset": {"1", "a", "2", "b"}, "hash": {"a", "b"}, "string": {"a"},
	} {
		a := newAttempt(e, store.Change{Key: parsed(t, "user/uid:"+kind)})
		m := store.Members{Key: parsed(t, "user/uid:"+kind+"/tags"), Kind: kind, Values: values}
		lay := func() {
			t.Helper()
			if err := a.layReady(ctx, m); err != nil {
				t.Errorf("%s: laying ready: %v", kind, err)
			}
		}
		lay()
		before := e.client.Dump(ctx, store.StageKey(m.Key, a.token)).Val()
		slot := c.OpenSlot(m.Key.String())
		lay() // once more, as after a lost answer
		if after := e.client.Dump(ctx, store.StageKey(m.Key, a.token)).Val(); after != before {
			t.Errorf("%s: laid ready twice, it is another", kind)
		}
		slot.Finish()
		if err := e.promote(ctx, store.FillPart{Set: m.Key, Replaces: true}, a.token); err != nil {
			t.Errorf("%s: promoting: %v", kind, err)
		}
		key := m.Key.String()
		if is, ends := e.client.Type(ctx, key).Val(), e.client.TTL(ctx, key).Val(); is != kind || ends != -1 {
			t.Errorf("%s: in its place is a %s that lives %v", kind, is, ends)
		}
	}
}
