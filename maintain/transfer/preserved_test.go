package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// keepingSchema returns a schema that holds the values of two fields, and retires UIDs.
func keepingSchema() schema.Schema {
	hour := schema.Period(time.Hour)
	return schema.Schema{Types: map[string]schema.Type{"user": {
		Primary: "uid", Retire: true,
		Fields: map[string]schema.Field{
			"name": {Role: schema.RoleSecondary, Many: 3, Hold: hour},
			"nick": {Role: schema.RoleSecondary, Hold: hour},
			"code": {Role: schema.RoleSecondary},
		},
	}}}
}

// add creates a user with one facet.
func (s *site) add(t *testing.T, uid, field, text string) error {
	t.Helper()
	_, err := s.Type(t, "user").Create(s.Ctx, userdb.NewEntry{UID: uid, Facets: schema.Texts(field, text)})
	return err
}

// wantRule creates a user with one facet, and checks the rule of the error.
func (s *site) wantRule(t *testing.T, rule, uid, field, text string) {
	t.Helper()
	err := s.add(t, uid, field, text)
	refused, ok := errors.AsType[*userdb.FieldError](err)
	if !ok || !errors.Is(err, userdb.ErrDuplicate) || refused.Rule != rule {
		t.Errorf("a create of %s with %s=%s returned %v, want the rule %s", uid, field, text, err, rule)
	}
}

// wantOnlyMissing fails the test if a check finds anything but missing identifiers.
func (s *site) wantOnlyMissing(t *testing.T) {
	t.Helper()
	for _, found := range s.Check(t, check.Options{}) {
		if !strings.HasPrefix(found, "field_missing ") {
			t.Errorf("a check found %s", found)
		}
	}
}

// createHolders creates users, some of which give up values that are then held, and deletes three,
// whose UIDs are retired.
func (s *site) createHolders(t *testing.T) {
	t.Helper()
	users := s.Type(t, "user")
	for _, err := range []error{s.add(t, "a", "name", "Ada"), s.add(t, "b", "name", "Bob"), s.add(t, "c", "name", "Cy"), s.add(t, "ü", "code", "dee")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	edit := func(uid string, f func(*userdb.Entry)) {
		if _, err := users.Update(s.Ctx, hints.UID(uid), func(e *userdb.Entry) error { f(e); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	edit("a", func(e *userdb.Entry) { e.Put("nick", schema.Text("Count")) })
	edit("a", func(e *userdb.Entry) { e.Put("nick", schema.Text("Countess")) })
	edit("b", func(e *userdb.Entry) { e.Put("name", schema.Text("Bert")) })
	for _, err := range []error{users.Delete(s.Ctx, hints.UID("b")), users.Delete(s.Ctx, hints.UID("c")), users.Delete(s.Ctx, hints.UID("ü"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := users.ReleaseHeld(s.Ctx, "name", "Cy"); err != nil {
		t.Fatal(err)
	}
}

// TestExportPreserves checks that a store made from an export gives neither a held value nor a
// retired UID to anybody else, and that the lines may come in any order and more than once.
func TestExportPreserves(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, keepingSchema())
		s.createHolders(t)
		out := s.export(t, transfer.ExportOptions{})
		if n := strings.Count(out, "\n"); n != 7 {
			t.Fatalf("the export has %d lines, want one entry, three held values and three retired UIDs:\n%s", n, out)
		}
		lines := strings.SplitAfter(strings.TrimPrefix(out, "\n"), "\n")
		slices.Reverse(lines)
		for name, in := range map[string]string{"same": out, "reversed": strings.Join(lines, "")} {
			to := s.subNamespace(t, name)
			kept := transfer.Report{Read: 7, Created: 1, Held: 3, Retired: 3, NoPassword: 1}
			to.importText(t, in, transfer.ImportOptions{DryRun: true}, kept)
			to.importText(t, in, transfer.ImportOptions{}, kept)
			kept.Created, kept.NoPassword, kept.Skipped = 0, 0, 1
			to.importText(t, in, transfer.ImportOptions{OnDuplicate: transfer.DuplicateSkip}, kept)
			for _, uid := range []string{"b", "c", "ü"} {
				to.wantRule(t, "retired", uid, "code", "new")
			}
			for _, value := range []string{"COUNT", "bob", "Bert"} {
				to.wantRule(t, "held", "", "name", value)
				to.wantRule(t, "held", "", "code", value)
			}
			to.wantRule(t, "", "", "nick", "countess")
			if again := to.export(t, transfer.ExportOptions{}); again != out {
				t.Errorf("the export of the copy is\n%s\nwant\n%s", again, out)
			}
			to.wantOnlyMissing(t)
			if err := to.add(t, "", "code", "Cy"); err != nil {
				t.Errorf("a value that is no longer held: %v", err)
			}
			users := to.Type(t, "user")
			if _, err := users.Update(to.Ctx, hints.UID("a"), func(e *userdb.Entry) error { e.Put("nick", schema.Text("count")); return nil }); err != nil {
				t.Errorf("the entry does not get back what it holds: %v", err)
			}
		}
	})
}

// TestExportOnePreserves checks that an export of one entry has the values that this entry holds,
// and nothing of others.
func TestExportOnePreserves(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, keepingSchema())
		s.createHolders(t)
		out := s.export(t, transfer.ExportOptions{Only: hints.UID("a"), Type: "user"})
		if strings.Count(out, "\n") != 2 || !strings.Contains(out, `"held":{"uid":"a","field":"nick","value":"count","until":"`) {
			t.Errorf("the export is\n%s\nwant the entry and one held value", out)
		}
	})
}

// TestImportPreservesOnlyFree checks that an import does not hold values that another entry has or
// holds, does not retire UIDs that are in use, and refuses lines that the schema does not allow.
func TestImportPreservesOnlyFree(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, keepingSchema())
		s.createHolders(t)
		until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		held := func(uid, field, value, until string) string {
			return fmt.Sprintf(`{"held":{"uid":%q,"field":%q,"value":%q,"until":%q}}`+"\n", uid, field, value, until)
		}
		refused := transfer.Report{Read: 1, Refused: 1}
		for _, in := range []string{
			held("x", "nick", "ADA", until), held("x", "name", "ada", until), held("a", "name", "Bob", until), held("x", "nick", "bert", until),
			held("x", "code", "free", until), held("x", "none", "free", until), held("", "name", "free", until), held("x", "name", "", until),
			held("x", "name", "free", "2990-01-01T00:00:00Z"), held("x", "name", "free", "soon"),
			`{"retired":{"uid":"a","at":"2026-01-01T00:00:00Z"}}` + "\n", `{"retired":{"uid":"x"}}` + "\n", `{"retired":{"uid":"x","at":"2026-01-01T00:00:00Z","by":"me"}}` + "\n",
			`{"retired":{"uid":"x","at":"2026-01-01T00:00:00Z"},"facets":{"uid":"y"}}` + "\n", `{"retired":null}` + "\n",
		} {
			for _, dry := range []bool{true, false} {
				s.importText(t, in, transfer.ImportOptions{DryRun: dry}, refused)
			}
		}
		// A line of an entry cannot take a held value or a retired UID either.
		for _, in := range []string{
			`{"facets":{"uid":"y","name":"BOB"}}`, `{"facets":{"uid":"y","code":"bert"}}`, `{"facets":{"uid":"c","code":"y"}}`,
			`{"facets":{"uid":"y"},"values":{"name":["y","Bob"]}}`,
		} {
			for _, dry := range []bool{true, false} {
				s.importText(t, in+"\n", transfer.ImportOptions{DryRun: dry, OnDuplicate: transfer.DuplicateUpdate}, refused)
			}
		}
		skipped := transfer.Report{Read: 1, Skipped: 1}
		s.importText(t, held("a", "name", "Ada", until), transfer.ImportOptions{}, skipped)
		s.importText(t, held("x", "name", "free", "2020-01-01T00:00:00Z"), transfer.ImportOptions{}, skipped)
		if err := s.add(t, "x", "name", "free"); err != nil {
			t.Error(err)
		}
		s.wantOnlyMissing(t)
		// The later of two ends is kept.
		later := time.Now().Add(2 * time.Hour).Truncate(time.Second)
		for _, until := range []time.Time{later, time.Now().Add(time.Minute)} {
			s.importText(t, held("b", "name", "Bob", until.UTC().Format(time.RFC3339)), transfer.ImportOptions{}, transfer.Report{Read: 1, Held: 1})
		}
		if h, err := s.Type(t, "user").FindHeld(s.Ctx, "name", "bob"); err != nil || !h.Until.Equal(later) {
			t.Errorf("bob is held until %v (%v), want %v", h.Until, err, later)
		}
	})
}

// TestImportHeldKeepsClaims checks that a line with a held value neither removes an SRK of the
// value that names the entry of the line, nor gives it a time to live. The entry may have taken the
// value back since the import read it.
func TestImportHeldKeepsClaims(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, keepingSchema())
		if err := s.add(t, "a", "name", "ada"); err != nil {
			t.Fatal(err)
		}
		key, claim := s.Key("user/name:back/~prk"), "user/uid:a"
		if err := s.Raw.Set(s.Ctx, key, claim, 0).Err(); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf(`{"held":{"uid":"a","field":"name","value":"back","until":%q}}`+"\n", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		s.importText(t, line, transfer.ImportOptions{}, transfer.Report{Read: 1, Held: 1})
		if got, life := s.Raw.Get(s.Ctx, key).Val(), s.Raw.TTL(s.Ctx, key).Val(); got != claim || life != -1 {
			t.Errorf("the claim is %q and lives %v, want %q without end", got, life, claim)
		}
	})
}

// A beforeCommit is a hook that calls do, once, before it sends a script whose first key is key and
// whose arguments include arg.
type beforeCommit struct {
	key, arg string
	do       func()
}

func (*beforeCommit) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *beforeCommit) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.runBefore(cmd)
		return next(ctx, cmd)
	}
}

func (h *beforeCommit) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			h.runBefore(cmd)
		}
		return next(ctx, cmds)
	}
}

func (h *beforeCommit) runBefore(cmd redis.Cmder) {
	var args []string
	for _, arg := range cmd.Args() {
		if text, ok := arg.(*string); ok {
			arg = *text
		}
		args = append(args, fmt.Sprint(arg))
	}
	if do := h.do; do != nil && len(args) > 3 && args[3] == h.key && slices.Contains(args, h.arg) {
		h.do = nil
		do()
	}
}

// TestImportHeldDuringCreate begins to create an entry with a value in the field nick. The create
// finds no holder of the value. Just before it commits, an import holds the same value in the field
// name. The create must then be refused.
func TestImportHeldDuringCreate(t *testing.T) {
	s := newSite(testdb.AsCluster(t, keepingSchema()))
	if err := s.add(t, "first", "code", "any"); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(s.Raw.Options())
	defer client.Close()
	line := fmt.Sprintf(`{"held":{"uid":"gone","field":"name","value":"wanted","until":%q}}`+"\n", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	hook := &beforeCommit{key: "user/uid:x", arg: "create", do: func() {
		s.importText(t, line, transfer.ImportOptions{}, transfer.Report{Read: 1, Held: 1})
	}}
	client.AddHook(hook)
	db, err := view.Reconfigure(s.DB, func(c *view.Config) { c.Engine = testdb.FakeClockEngine(client) })
	if err != nil {
		t.Fatal(err)
	}
	users, err := db.Type("user")
	if err != nil {
		t.Fatal(err)
	}
	_, err = users.Create(s.Ctx, userdb.NewEntry{UID: "x", Facets: schema.Texts("nick", "wanted")})
	if hook.do != nil {
		t.Fatal("the create has sent no commit")
	}
	if refused, ok := errors.AsType[*userdb.FieldError](err); !ok || refused.Rule != "held" {
		t.Errorf("the create returned %v, want a FieldError of the rule held", err)
	}
	s.wantRule(t, "held", "y", "code", "wanted")
	s.wantOnlyMissing(t)
}
