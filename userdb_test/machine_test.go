package userdb_test

import (
	"context"
	"errors"
	"flag"
	"maps"
	"regexp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A machine runs the same methods on a store and a model.
type machine struct {
	s     *site
	ctx   context.Context
	users *userdb.Type
	db    *userdb.DB
	m     *model
	seen  []userdb.Entry // entries as they were read or written at any time
}

// TestRandomMethods runs random methods on every kind of store and on a model. The store must give
// the model's answers and, after every step, have exactly the model's records.
func TestRandomMethods(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.open(userdb.Options{})
		runs := 60
		if !s.has(cheapWrites) {
			runs = 8
		}
		withChecks(t, runs, func() {
			rapid.Check(t, func(rt *rapid.T) {
				s.wipe()
				x := newMachine(rt, s)
				siblings := x.addSiblings(rt)
				rt.Repeat(x.methods())
				s.inspect(rt)
				if diff := diffRecords(siblings, x.siblingRecords()); diff != "" {
					rt.Errorf("a method in namespace %q changed records outside it:\n%s", x.m.ns, diff)
				}
			})
		})
		s.wipe()
		clear(s.views)
	})
}

// withChecks calls do with the given number of runs for rapid.Check.
func withChecks(t *testing.T, runs int, do func()) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	if f.Value.String() != f.DefValue {
		do() // the command line sets the number
		return
	}
	must(t, f.Value.Set(itoa(runs)))
	must(t, flag.Set("rapid.nofailfile", "true")) // the printed seed is enough to repeat a failure
	defer func() { must(t, f.Value.Set(f.DefValue)) }()
	do()
}

// wipe deletes all records.
func (s *site) wipe() {
	s.t.Helper()
	ctx := context.Background()
	for keys := range slices.Chunk(s.keys(ctx), 500) {
		pipe := s.raw.Pipeline()
		for _, k := range keys {
			pipe.Unlink(ctx, k)
		}
		s.send(ctx, pipe)
	}
}

func newMachine(rt *rapid.T, s *site) *machine {
	path := rapid.SampledFrom([]string{"", "a", "a/b", "~a"}).Draw(rt, "namespace")
	fold := rapid.SampledFrom([]schema.Fold{schema.FoldExact, schema.FoldCasefold}).Draw(rt, "fold")
	ns := parseNamespace(rt, path)
	db, err := s.view(wideSchema(fold), ns)
	must(rt, err)
	clear(s.views)
	s.views[ns] = db
	return &machine{
		s: s, ctx: s.t.Context(), db: db, users: typeOf(rt, db, "user"),
		m: &model{ns: ns, fold: fold, accounts: map[string]*account{}},
	}
}

// addSiblings creates entries with the same values in other namespaces and in another type.
func (x *machine) addSiblings(rt *rapid.T) map[string]string {
	for _, path := range []string{"ab", "a/bc"} {
		db, err := x.db.In(parseNamespace(rt, path))
		must(rt, err)
		x.fill(rt, typeOf(rt, db, "user"))
	}
	orders := typeOf(rt, x.db, "order")
	_, err := orders.Create(x.ctx, userdb.NewEntry{UID: "u1", Facets: schema.Texts("code", "ann")})
	must(rt, err)
	return x.siblingRecords()
}

func (x *machine) fill(rt *rapid.T, users *userdb.Type) {
	for i, uid := range uids {
		f := schema.Texts("name", []string{"ann", "bob", "u1", "*"}[i], "job", jobs[0])
		_, err := users.Create(x.ctx, userdb.NewEntry{UID: uid, Facets: f, Tags: tags})
		must(rt, err)
	}
}

// siblingRecords returns all records that the machine does not own.
func (x *machine) siblingRecords() map[string]string {
	all := formatRecords(x.s.dump(x.ctx), "")
	own := x.m.ns.String()
	maps.DeleteFunc(all, func(key, _ string) bool {
		return regexp.MustCompile("^" + regexp.QuoteMeta(own) + "(user/|~/)").MatchString(key)
	})
	return all
}

// methods returns the machine's actions. rapid calls the unnamed one after each of the others.
func (x *machine) methods() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":       x.compare,
		"create": x.create, "update": x.update, "save": x.save, "delete": x.delete,
		"find": x.find, "find all": x.findAll, "list": x.list, "page": x.page,
		"tags": x.tags, "notes": x.notes, "scores": x.scores, "settings": x.settings, "bio": x.bio,
		"keys": x.keys, "remove keys": x.removeKeys,
	}
}

func (x *machine) compare(t *rapid.T) {
	if diff := diffRecords(x.m.records(), formatLikeModel(x.s.dump(x.ctx), x.m.ns)); diff != "" {
		// The entry of type order and its SRK are not in the model: see addSiblings.
		lines := slices.DeleteFunc(splitLines(diff), func(l string) bool {
			return regexp.MustCompile("^new: " + regexp.QuoteMeta(x.m.ns.String()) + "order/").MatchString(l)
		})
		if len(lines) > 0 {
			t.Fatalf("records differ from the model:\n%q", lines)
		}
	}
}

// facets draws some facets.
func facets(t *rapid.T) map[string]string {
	some := map[string]string{}
	for _, f := range secondaries {
		if rapid.Bool().Draw(t, "has "+f) {
			some[f] = rapid.SampledFrom(values).Draw(t, f)
		}
	}
	if rapid.Bool().Draw(t, "has job") {
		some["job"] = rapid.SampledFrom(jobs).Draw(t, "job")
	}
	return some
}

func asFacets(texts map[string]string) schema.Facets {
	f := schema.Facets{}
	for field, text := range texts {
		f[field] = schema.Text(text)
	}
	return f
}

func (x *machine) create(t *rapid.T) {
	uid := rapid.SampledFrom(append([]string{""}, uids...)).Draw(t, "uid")
	f := facets(t)
	some := rapid.SliceOfN(rapid.SampledFrom(tags), 0, 3).Draw(t, "tags")
	e, err := x.users.Create(x.ctx, userdb.NewEntry{UID: uid, Facets: asFacets(f), Tags: some})
	switch taken := x.m.takenFields(uid, f); {
	case uid != "" && x.m.accounts[uid] != nil:
		wantField(t, "create", err, userdb.ErrDuplicate, "uid")
	case len(taken) > 0:
		x.wantTaken(t, "create", err, taken)
	case err != nil:
		t.Fatalf("create %q %q: %v", uid, f, err)
	default:
		if uid == "" && !regexp.MustCompile(`^[0-9a-f]{12}$`).MatchString(e.UID()) {
			t.Fatalf("got the generated UID %q, want 12 hexadecimal digits", e.UID())
		}
		f["uid"] = e.UID()
		a := &account{facets: f, tags: map[string]bool{}, scores: map[string]float64{}, settings: map[string]string{}}
		for _, tag := range some {
			a.tags[tag] = true
		}
		x.m.accounts[e.UID()] = a
		x.recordWrite(t, a, e)
	}
}

// wantTaken checks that err reports a duplicate in one of the fields.
func (x *machine) wantTaken(t *rapid.T, what string, err error, fields []string) {
	var fe *userdb.FieldError
	if !errors.Is(err, userdb.ErrDuplicate) || !errors.As(err, &fe) || !slices.Contains(fields, fe.Field) {
		t.Fatalf("%s: got %v, want a duplicate in one of %q", what, err, fields)
	}
}

// recordWrite records the revision of a written entry, which must be new, and keeps the entry.
func (x *machine) recordWrite(t *rapid.T, a *account, e userdb.Entry) {
	if e.Rev() == "" || e.Rev() == a.rev {
		t.Fatalf("after a write the revision is %q, before it was %q; want a new one", e.Rev(), a.rev)
	}
	a.rev = e.Rev()
	x.wantEntry(t, e, a.facets["uid"])
	x.seen = append(x.seen, e)
}

// wantEntry checks that an entry equals the model's account with the UID.
func (x *machine) wantEntry(t *rapid.T, e userdb.Entry, uid string) {
	a := x.m.accounts[uid]
	got := map[string]string{}
	for f := range e.Fields() {
		got[f] = e.Text(f)
	}
	prk, _ := recordkey.PRK("user", "uid", uid)
	if a == nil || !maps.Equal(got, a.facets) || e.Rev() != a.rev || e.Key() != prk || e.UID() != uid {
		t.Fatalf("got entry %v at %q, want account %q: %+v", e, e.Rev(), uid, a)
	}
}

// edit makes the same random change to an entry and to a copy of an account's facets, and returns
// the copy.
func edit(t *rapid.T, e *userdb.Entry, now map[string]string) map[string]string {
	next := maps.Clone(now)
	for f, v := range facets(t) {
		next[f] = v
		e.Put(f, schema.Text(v))
	}
	for _, f := range append([]string{"job"}, secondaries...) {
		if rapid.IntRange(0, 4).Draw(t, "drop "+f) == 0 {
			delete(next, f)
			e.Drop(f)
		}
	}
	return next
}

func (x *machine) update(t *rapid.T) {
	h, uid := x.hint(t)
	a := x.m.accounts[uid]
	var next map[string]string
	e, err := x.users.Update(x.ctx, h, func(e *userdb.Entry) error {
		next = edit(t, e, a.facets)
		return nil
	})
	if a == nil {
		wantErr(t, "update", err, userdb.ErrNotFound)
		return
	}
	x.checkUpdate(t, a, next, e, err)
}

// checkUpdate checks the answer to a change of an account's facets.
func (x *machine) checkUpdate(t *rapid.T, a *account, next map[string]string, e userdb.Entry, err error) {
	uid := a.facets["uid"]
	if taken := x.m.takenFields(uid, next); len(taken) > 0 {
		x.wantTaken(t, "update", err, taken)
		return
	}
	if err != nil {
		t.Fatalf("update %q to %q: %v", uid, next, err)
	}
	changed := !maps.Equal(a.facets, next)
	a.facets = next
	if changed {
		x.recordWrite(t, a, e)
		return
	}
	x.wantEntry(t, e, uid)
}

// save saves an entry that was read or written at any earlier time. A stale one must change nothing
// (I6).
func (x *machine) save(t *rapid.T) {
	if len(x.seen) == 0 {
		t.Skip("nothing was read")
	}
	e := rapid.SampledFrom(x.seen).Draw(t, "entry")
	a := x.m.accounts[e.UID()]
	stale := a == nil || a.rev != e.Rev()
	now := map[string]string{}
	if !stale {
		now = a.facets
	}
	next := edit(t, &e, now)
	got, err := x.users.Save(x.ctx, e)
	switch {
	case a == nil:
		wantErr(t, "save", err, userdb.ErrNotFound)
	case stale:
		wantErr(t, "save", err, userdb.ErrConflict)
	default:
		x.checkUpdate(t, a, next, got, err)
	}
}

func (x *machine) delete(t *rapid.T) {
	h, uid := x.hint(t)
	err := x.users.Delete(x.ctx, h)
	if uid == "" {
		wantErr(t, "delete", err, userdb.ErrNotFound)
		return
	}
	must(t, err)
	delete(x.m.accounts, uid)
}

// hint draws a hint in any form, and returns it with the UID of the account that it identifies, or
// "" if it identifies none.
func (x *machine) hint(t *rapid.T) (hints.Hint, string) {
	forms := x.forms(t)
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(forms))).Draw(t, "form")
	h, uid, err := forms[name]()
	must(t, err)
	if x.m.accounts[uid] == nil {
		uid = ""
	}
	return h, uid
}
