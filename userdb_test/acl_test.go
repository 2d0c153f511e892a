package userdb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

func aclSchema() schema.Schema {
	s := wideSchema(schema.FoldCasefold)
	s.Types["user"].Fields["rank"] = schema.Field{Role: schema.RoleOrdered, Codec: schema.CodecNumber}
	order := s.Types["order"]
	order.Retire = true
	order.Fields["code"] = schema.Field{Role: schema.RoleSecondary, Hold: schema.Period(time.Hour)}
	s.Types["order"] = order
	return s
}

// callHolding calls the methods for held values and retired UIDs, and stops at the first error.
func callHolding(ctx context.Context, db *userdb.DB) error {
	orders, err := db.Type("order")
	if err != nil {
		return err
	}
	h := hints.UID("o")
	for _, method := range []func() error{
		func() error {
			_, err := orders.Create(ctx, userdb.NewEntry{UID: "o", Facets: schema.Texts("code", "a")})
			return err
		},
		func() error { return errOf(orders.Update(ctx, h, putText("code", "b"))) },
		func() error { return errOf(orders.Former(ctx, "code", "a")) },
		func() error { return orders.ReleaseHeld(ctx, "code", "a") },
		func() error { return orders.Delete(ctx, h) },
		func() error { return errOf(orders.FindHeld(ctx, "code", "b")) },
		func() error { return orders.ReleaseHeld(ctx, "code", "b") },
		func() error { return drain(orders.RetiredUIDs(ctx)) },
		func() error { return orders.ForgetUID(ctx, "o") },
	} {
		if err := method(); err != nil {
			return err
		}
	}
	return nil
}

// moveHeld imports a held value and a retired UID, and holds the value under another form, as a
// change of the schema does.
func moveHeld(ctx context.Context, db *userdb.DB) error {
	const lines = `{"type":"order","held":{"uid":"p","field":"code","value":"c","until":"2999-01-01T00:00:00Z"}}
{"type":"order","retired":{"uid":"p","at":"2026-01-01T00:00:00Z"}}
`
	text := strings.Replace(lines, "2999-01-01T00:00:00Z", time.Now().Add(time.Hour).UTC().Format(time.RFC3339), 1)
	report, err := transfer.Import(ctx, db, strings.NewReader(text), transfer.ImportOptions{})
	if err != nil || report.Held != 1 || report.Retired != 1 {
		return fmt.Errorf("the import reported %+v: %w", report, err)
	}
	prk, err := recordkey.PRK("order", "id", "p")
	if err != nil {
		return err
	}
	step := store.MoveHeld{Entry: prk, From: store.HeldValue{Field: "code", Canonical: "c"}, To: store.HeldValue{Field: "code", Canonical: "d"}}
	moved, err := view.Of(db).Engine.Repair(ctx, step)
	if err == nil && !moved {
		err = errors.New("no value was moved")
	}
	return err
}

// callApplicationMethods calls methods that an application uses, and stops at the first error.
func callApplicationMethods(ctx context.Context, db *userdb.DB) error {
	users, err := db.Type("user")
	if err != nil {
		return err
	}
	const pw, other = "correct horse battery", "staple under a willow"
	h := hints.UID("a")
	var token string
	for _, method := range []func() error{
		func() error {
			facets := schema.Texts("name", "Ann", "email", "ann@x.org", "job", "cook")
			facets["rank"] = schema.Number(3)
			_, err := users.Create(ctx, userdb.NewEntry{UID: "a", Facets: facets, Tags: []string{"t"}, Password: pw})
			return err
		},
		func() error { _, err := users.Find(ctx, h); return err },
		func() error { _, err := users.Find(ctx, hints.Any("ann")); return err },
		func() error { _, err := users.Exists(ctx, hints.Any("ann")); return err },
		func() error {
			_, err := users.Update(ctx, h, func(e *userdb.Entry) error {
				e.Put("name", schema.Text("Anna"))
				e.Put("job", schema.Text("boss"))
				return nil
			})
			return err
		},
		func() error { _, err := users.Login(ctx, "anna", pw, userdb.Attempt{Origin: "192.0.2.1"}); return err },
		func() error {
			return expectErr(errOf(users.ChangePassword(ctx, h, "wrong", other, userdb.Attempt{})), userdb.ErrLogin)
		},
		func() error { return errOf(users.SetPassword(ctx, h, other)) },
		func() error { return users.Disable(ctx, h) },
		func() error { return users.Enable(ctx, h) },
		func() (err error) { token, err = users.Issue(ctx, h, userdb.Token{Purpose: "p"}); return err },
		func() error { _, _, err := users.Redeem(ctx, "p", token); return err },
		func() error { _, err := users.Tags(h).Add(ctx, "u"); return err },
		func() error { _, err := users.Tags(h).Members(ctx); return err },
		func() error { _, err := users.Tags(h).Remove(ctx, "u"); return err },
		func() error { _, err := users.Count(ctx, userdb.Query{}); return err },
		func() error {
			_, err := users.Count(ctx, userdb.Query{Order: "rank", GTE: new(schema.Text("a"))})
			return err
		},
		func() error { return drain(users.All(ctx, userdb.Query{})) },
		func() error { return drain(users.All(ctx, userdb.Query{WithSets: []string{"tags"}})) },
		func() error { return drain(users.All(ctx, userdb.Query{Where: schema.Texts("job", "boss")})) },
		func() error { return drain(users.All(ctx, userdb.Query{Order: "rank"})) },
		func() error { return drain(users.All(ctx, userdb.Query{Order: "rank", Reverse: true})) },
		func() error { return drain(users.FindAll(ctx, h, hints.Any("anna"))) },
		func() error { return errOf(users.History(ctx, h)) },
		func() error { return errOf(db.Events(ctx, userdb.EventQuery{})) },
		func() error { return errOf(db.Events(ctx, userdb.EventQuery{After: userdb.EventsEnd})) },
		func() error { return users.Delete(ctx, h) },
		func() error { return callHolding(ctx, db) },
	} {
		if err := method(); err != nil {
			return err
		}
	}
	return nil
}

// callMaintenance uses the maintenance packages, and stops at the first error.
func callMaintenance(ctx context.Context, db *userdb.DB) error {
	var lines bytes.Buffer
	one, err := recordkey.ParseNamespace("one")
	if err != nil {
		return err
	}
	copied, err := recordkey.ParseNamespace("copy")
	if err != nil {
		return err
	}
	users, err := db.Type("user")
	if err != nil {
		return err
	}
	raw := clientOf(db)
	for _, method := range []func() error{
		func() error {
			facets := schema.Texts("name", "Ann", "job", "cook")
			facets["rank"] = schema.Number(3)
			_, err := users.Create(ctx, userdb.NewEntry{UID: "a", Facets: facets, Tags: []string{"t"}})
			return err
		},
		func() error { return drain(check.Run(ctx, db, check.Options{})) },
		func() error { _, err := transfer.Export(ctx, db, &lines, transfer.ExportOptions{}); return err },
		func() error {
			return inspect.Dump(ctx, db, &lines, inspect.Options{Pattern: "user*", Format: "long"})
		},
		func() error { _, err := migrate.Namespaces(ctx, db); return err },
		func() error { return checkStatus(ctx, db) },
		func() error {
			in, err := db.In(one)
			if err != nil {
				return err
			}
			users, err := in.Type("user")
			if err == nil {
				_, err = users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "Ann"), Tags: []string{"t"}})
			}
			return err
		},
		func() error { _, err := migrate.CopyNamespace(ctx, db, one, copied); return err },
		func() error { _, err := migrate.DropNamespace(ctx, db, copied); return err },
		func() error { return raw.Set(ctx, "user/name:ghost/~prk", "user/uid:ghost", 0).Err() },
		func() error { return raw.SAdd(ctx, "user/job:x/~prks", "user/uid:ghost").Err() },
		func() error { return drain(check.Run(ctx, db, check.Options{Repair: true})) },
		func() error { _, err := inspect.RemoveKeys(ctx, db, "user/uid:*"); return err },
		func() error { return moveHeld(ctx, db) },
	} {
		if err := method(); err != nil {
			return err
		}
	}
	return nil
}

// checkStatus returns an error if part of the status could not be determined. Settings that the
// server refuses to report do not count.
func checkStatus(ctx context.Context, db *userdb.DB) error {
	st, err := inspect.StatusOf(ctx, db, nil)
	for _, w := range st.Warnings {
		if w.Code == "not_learned" {
			err = errors.Join(err, errors.New(w.Text))
		}
	}
	return err
}

func expectErr(err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	if err == nil {
		return fmt.Errorf("it succeeded, want %v", want)
	}
	return err
}

func drain[T any](seq func(func(T, error) bool)) (err error) {
	seq(func(_ T, e error) bool { err = e; return e == nil })
	return err
}

// commandOf returns the name of the command that an ACL rule allows.
func commandOf(right string) string {
	command, _, _ := strings.Cut(strings.TrimPrefix(right, "+"), "|")
	return command
}

// TestLeastACL calls the methods of an application and of an operator with exactly the rights that
// are documented for each, on a single real server and on a cluster of one node. Without -short it
// then removes one right at a time. Some method must then fail, unless scripts call the command:
// they call some commands only after crashes or for batches. The error must be ErrUnavailable,
// ErrOutcomeUnknown if a script had begun to write, or ErrUnconfirmed after a commit. The error or
// the server's ACL LOG must name the command.
func TestLeastACL(t *testing.T) {
	app, operator := redistest.Rights(t)
	scripted := scriptCommands(t)
	for command := range scripted {
		if !slices.ContainsFunc(app, func(right string) bool { return commandOf(right) == command }) {
			t.Errorf("the rights of the application lack %s, which a script calls", command)
		}
	}
	for _, role := range []struct {
		name  string
		rules []string
		work  func(context.Context, *userdb.DB) error
	}{{"app", app, callApplicationMethods}, {"operator", operator, callMaintenance}} {
		t.Run(role.name, func(t *testing.T) {
			var needed sync.Map
			t.Cleanup(func() {
				if testing.Short() {
					return
				}
				for _, right := range role.rules {
					_, found := needed.Load(right)
					if !found && !scripted[commandOf(right)] && (role.name == "app" || !slices.Contains(app, right)) {
						t.Errorf("%s does not need %s", role.name, right)
					}
				}
			})
			for _, clustered := range []bool{false, true} {
				t.Run(fmt.Sprint("cluster ", clustered), func(t *testing.T) {
					t.Parallel()
					w := newACLServer(t, clustered)
					must(t, w.runFresh(role.name, role.rules, role.work))
					if testing.Short() {
						return
					}
					for i, right := range role.rules {
						less := slices.Delete(slices.Clone(role.rules), i, i+1)
						if err := w.runFresh(role.name, less, role.work); err != nil {
							needed.Store(right, true)
							w.wantRefusal(right, err)
						}
					}
				})
			}
		})
	}
}

// TestIndexRefused makes a cluster refuse index members, which are written after the commit. The
// call must return ErrUnconfirmed, the entry must exist, and a repair must complete its indexes.
func TestIndexRefused(t *testing.T) {
	app, operator := redistest.Rights(t)
	w := newACLServer(t, true)
	facets := schema.Texts("name", "Ann", "job", "cook")
	less := slices.Concat(app, []string{"resetkeys", "~user/uid:*", "~user/name:*", "~user/email:*", "~user/nick:*", "~~*"})
	for name, method := range map[string]func(context.Context, *userdb.DB, *userdb.Type) error{
		"create": func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			e, err := users.Create(ctx, userdb.NewEntry{UID: "a", Facets: facets})
			if e.UID() != "a" {
				t.Errorf("create returned the entry %v, want a", e)
			}
			return err
		},
		"import": func(ctx context.Context, db *userdb.DB, _ *userdb.Type) error {
			line := strings.NewReader(`{"type":"user","facets":{"uid":"a","name":"Ann","job":"cook"}}`)
			_, err := transfer.Import(ctx, db, line, transfer.ImportOptions{})
			return err
		},
	} {
		err := w.runFresh("app", less, func(ctx context.Context, db *userdb.DB) error {
			users, err := db.Type("user")
			must(t, err)
			err = method(ctx, db, users)
			_, findErr := users.Find(ctx, hints.UID("a"))
			must(t, findErr)
			return err
		})
		wantErr(t, name, err, userdb.ErrUnconfirmed, "NOPERM")
		if errors.Is(err, userdb.ErrUnavailable) {
			t.Errorf("%s: got %v, want no ErrUnavailable, which claims that nothing was written", name, err)
		}
		must(t, w.runAs("operator", operator, func(ctx context.Context, db *userdb.DB) error {
			return drain(check.Run(ctx, db, check.Options{Repair: true}))
		}))
		if members := w.admin.SMembers(t.Context(), "user/job:cook/~prks").Val(); len(members) != 1 {
			t.Errorf("%s: after the repair the index has the members %q, want one", name, members)
		}
	}
}

// wantRefusal checks that err is the error of a method without a right, and that the error or the
// server's ACL LOG names the command.
func (w *aclServer) wantRefusal(right string, err error) {
	w.t.Helper()
	if !isUnavailable(err) && !errors.Is(err, userdb.ErrUnconfirmed) {
		w.t.Errorf("without %s: got %v, want ErrUnavailable, ErrOutcomeUnknown or ErrUnconfirmed", right, err)
	}
	if command := strings.TrimPrefix(right, "+"); !strings.Contains(err.Error(), "'"+command+"'") && !w.deniedInLog(command) {
		w.t.Errorf("without %s: neither ACL LOG nor the error names it: %v", right, err)
	}
}

// scriptCommands returns the commands that scripts call.
func scriptCommands(t *testing.T) map[string]bool {
	t.Helper()
	var files []string
	for _, pattern := range []string{"../internal/store/*/*.lua", "../internal/store/*/scripts/*.lua"} {
		some, err := filepath.Glob(pattern)
		must(t, err)
		files = append(files, some...)
	}
	commands := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		for _, call := range regexp.MustCompile(`\b(?:p?call|write)\('([A-Z]+)'`).FindAllStringSubmatch(string(text), -1) {
			commands[strings.ToLower(call[1])] = true
		}
	}
	if len(commands) < 20 {
		t.Fatalf("found %d commands in scripts, want at least 20", len(commands))
	}
	return commands
}

// An aclServer is a server on which the test defines users and their rights.
type aclServer struct {
	t         *testing.T
	server    *redistest.Server
	admin     *redis.Client
	clustered bool
}

func newACLServer(t *testing.T, clustered bool) *aclServer {
	t.Helper()
	var opts []redistest.Option
	if clustered {
		opts = append(opts, redistest.SingleNodeCluster)
	}
	w := &aclServer{t: t, server: redistest.Start(t, opts...), clustered: clustered}
	if clustered {
		w.server.TakeAllSlots()
	}
	w.admin = w.server.Client()
	return w
}

// runFresh empties the server, then calls work as a user with the given rights.
func (w *aclServer) runFresh(name string, rights []string, work func(context.Context, *userdb.DB) error) error {
	ctx := w.t.Context()
	must(w.t, errors.Join(
		w.admin.FlushAll(ctx).Err(),
		w.admin.ScriptFlush(ctx).Err(),
		w.admin.Do(ctx, "acl", "log", "reset").Err(),
	))
	return w.runAs(name, rights, work)
}

// runAs calls work as a user with the given rights.
func (w *aclServer) runAs(name string, rights []string, work func(context.Context, *userdb.DB) error) error {
	ctx := w.t.Context()
	args := []any{"acl", "setuser", name, "reset", "on", ">secret", "~*", "resetchannels", "-@all"}
	for _, r := range rights {
		args = append(args, r)
	}
	must(w.t, w.admin.Do(ctx, args...).Err())
	scheme := "redis"
	if w.clustered {
		scheme = "redis+cluster"
	}
	url := fmt.Sprintf("%s://%s:secret@%s?max_retries=-1", scheme, name, w.server.Addr())
	db, err := userdb.Open(ctx, url, userdb.Options{Schema: aclSchema(), History: true})
	if err != nil {
		return err
	}
	defer db.Close()
	return work(store.WithoutOtherWriters(ctx), db)
}

// deniedInLog reports whether the server's ACL LOG says that it refused a command.
func (w *aclServer) deniedInLog(command string) bool {
	entries, err := w.admin.ACLLog(w.t.Context(), 100).Result()
	must(w.t, err)
	return slices.ContainsFunc(entries, func(e *redis.ACLLogEntry) bool { return strings.EqualFold(e.Object, command) })
}
