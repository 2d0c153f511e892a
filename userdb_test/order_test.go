package userdb_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// orderedSchema returns a schema with an ordered field of every codec that has an order.
func orderedSchema() schema.Schema {
	ordered := func(c schema.Codec) schema.Field { return schema.Field{Role: schema.RoleOrdered, Codec: c} }
	return schema.Schema{Types: map[string]schema.Type{"user": {
		Primary: "uid",
		Fields: map[string]schema.Field{
			"name": {Role: schema.RoleSecondary}, "job": {Role: schema.RoleIndexed},
			"last": ordered(schema.CodecText), "age": ordered(schema.CodecNumber),
			"born": ordered(schema.CodecDate), "active": ordered(schema.CodecBoolean),
		},
	}}}
}

// A row is an entry's UID and its value in one field.
type row struct {
	uid   string
	value schema.Value
}

// compareRows orders rows as the store does, but with other code. Among texts with the same
// canonical form, those that are written in that form come last.
func compareRows(a, b row) int {
	as, bs := a.value.Text(), b.value.Text()
	return cmp.Or(compareValues(a.value, b.value), boolInt(canonical(as) == as)-boolInt(canonical(bs) == bs), strings.Compare(as, bs),
		strings.Compare(a.uid, b.uid))
}

func canonical(text string) string { return schema.Type{Fold: schema.FoldCasefold}.Canonical(text) }

func compareValues(a, b schema.Value) int {
	if an, bn := a.IsNull(), b.IsNull(); an || bn {
		return cmp.Compare(boolInt(bn), boolInt(an))
	}
	if x, ok := a.Number(); ok {
		y, _ := b.Number()
		return cmp.Compare(x, y) // as in the store, NaN comes first
	}
	if x, ok := a.Time(); ok {
		y, _ := b.Time()
		return x.Compare(y)
	}
	if x, ok := a.Bool(); ok {
		y, _ := b.Bool()
		return cmp.Compare(boolInt(x), boolInt(y))
	}
	return strings.Compare(canonical(a.Text()), canonical(b.Text()))
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// inRange reports whether a value is in the range of a query.
func inRange(r userdb.Query, v schema.Value) bool {
	low, high := r.Start, r.End
	if r.Reverse {
		low, high = high, low
	}
	holds := func(bound *schema.Value, ok func(int) bool) bool { return bound == nil || ok(compareValues(v, *bound)) }
	return holds(r.GT, func(c int) bool { return c > 0 }) && holds(r.GTE, func(c int) bool { return c >= 0 }) &&
		holds(r.LT, func(c int) bool { return c < 0 }) && holds(r.LTE, func(c int) bool { return c <= 0 }) &&
		holds(low, func(c int) bool { return c >= 0 }) && holds(high, func(c int) bool { return c <= 0 }) &&
		(r.Prefix == "" || strings.HasPrefix(canonical(v.Text()), canonical(r.Prefix)))
}

// generators make values that are close to each other, and values at the limits.
var generators = map[string]*rapid.Generator[schema.Value]{
	"last": rapid.Map(rapid.OneOf(
		rapid.StringOfN(rapid.SampledFrom([]rune("ab\x00\x01\x02é\uffff\U0010ffff")), 0, 4, -1),
		rapid.SampledFrom([]string{"", "Smith", "Smithee", "smith", "SMITH", "ＳＭith", "Šmid", "a\x00", "a\x00\x01", "a"})), schema.Text),
	"age": rapid.Map(rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{
		0, math.Copysign(0, -1), 1, -1, 1.5, -1.5, math.Inf(1), math.Inf(-1), math.NaN(), 5e-324, -5e-324, math.MaxFloat64,
	})), schema.Number),
	"born": rapid.Map(rapid.Int64Range(-5, 5), func(n int64) schema.Value {
		return schema.Date(time.UnixMilli(n * 40_000_000_000))
	}),
	"active": rapid.OneOf(rapid.Map(rapid.Bool(), schema.Bool), rapid.Just(schema.Null())),
}

func drawRange(t *rapid.T, field string) userdb.Query {
	r := userdb.Query{Order: field, Reverse: rapid.Bool().Draw(t, "reverse")}
	for _, bound := range []**schema.Value{&r.GT, &r.GTE, &r.LT, &r.LTE, &r.Start, &r.End} {
		if rapid.IntRange(0, 3).Draw(t, "bounded") == 0 {
			*bound = new(generators[field].Draw(t, "bound"))
		}
	}
	if field == "last" && rapid.IntRange(0, 3).Draw(t, "prefixed") == 0 {
		r.Prefix = rapid.StringOfN(rapid.SampledFrom([]rune("ab\x00S\U0010ffff")), 0, 2, -1).Draw(t, "prefix")
	}
	return r
}

// TestOrderedListing checks that ordered listings have the order of a sorted slice, whatever their
// range, direction and pages.
func TestOrderedListing(t *testing.T) {
	eachStoreAndRights(t, func(t *testing.T, s *site) {
		for round, name := range []string{"last", "age", "born", "active"} {
			typ := typeOf(t, s.open(userdb.Options{Schema: orderedSchema(), Namespace: parseNamespace(t, fmt.Sprint("n", round))}), "user")
			rows := rapid.Custom(func(t *rapid.T) (rows []row) {
				for i := range 40 {
					rows = append(rows, row{fmt.Sprintf("%s%d", name, i), generators[name].Draw(t, "value")})
				}
				return rows
			}).Example(round + 1)
			for _, r := range rows {
				facets := schema.Facets{name: r.value, "name": schema.Text(r.uid)}
				if _, err := typ.Create(t.Context(), userdb.NewEntry{UID: r.uid, Facets: facets}); err != nil {
					t.Fatalf("%v: %v", r, err)
				}
			}
			add(t, typ, unset, "name", "nobody")
			slices.SortFunc(rows, compareRows)
			rapid.Check(t, func(rt *rapid.T) { compareListing(rt, t, typ, name, rows) })
		}
	})
}

// unset is the UID of an entry without a value. It comes first in every ascending order.
const unset = "without a value"

func compareListing(rt *rapid.T, t *testing.T, typ *userdb.Type, field string, rows []row) {
	q := drawRange(rt, field)
	want := []string{}
	if q.GT == nil && q.GTE == nil && q.LT == nil && q.LTE == nil && q.Start == nil && q.End == nil && q.Prefix == "" {
		want = append(want, unset)
	}
	for _, r := range rows {
		if inRange(q, r.value) {
			want = append(want, r.uid)
		}
	}
	if q.Reverse {
		slices.Reverse(want)
	}
	got := []string{}
	for e, err := range typ.All(t.Context(), q) {
		if err != nil {
			rt.Fatal(err)
		}
		got = append(got, e.UID())
	}
	if !slices.Equal(got, want) {
		rt.Fatalf("all: got %q, want %q", got, want)
	}
	q.Limit = rapid.IntRange(1, 12).Draw(rt, "limit")
	got = got[:0]
	var page userdb.Page
	for more := true; more; more = q.After != "" {
		var err error
		page, err = typ.Page(t.Context(), q)
		if err != nil || len(page.Entries) > q.Limit || len(page.Entries) < q.Limit && page.Next != "" {
			rt.Fatalf("a page has %d entries, next %q, error %v; want %d, or fewer on the last page", len(page.Entries), page.Next, err, q.Limit)
		}
		for _, e := range page.Entries {
			got = append(got, e.UID())
		}
		if q.After = page.Next; q.After != "" && len(got) == len(want) {
			rt.Fatalf("pages of %d: the last page leads to another one", q.Limit)
		}
	}
	if !slices.Equal(got, want) {
		rt.Fatalf("pages of %d: got %q, want %q", q.Limit, got, want)
	}
	wantBack(rt, t, typ, q, page, want)
}

// wantBack goes back from the last page to the first. From each page it also goes forward to the
// next one, to check that page's cursor.
func wantBack(rt *rapid.T, t *testing.T, typ *userdb.Type, q userdb.Query, page userdb.Page, want []string) {
	at := len(want) - len(page.Entries)
	for page.Prev != "" {
		q.After, q.Before = "", page.Prev
		before, err := typ.Page(t.Context(), q)
		var got []string
		for _, e := range before.Entries {
			got = append(got, e.UID())
		}
		if from := at - len(got); err != nil || from < 0 || !slices.Equal(got, want[from:at]) || from == 0 && before.Prev != "" {
			rt.Fatalf("going back in pages of %d: got %q before index %d of %q, then %q: %v", q.Limit, got, at, want, before.Prev, err)
		}
		q.After, q.Before = before.Next, ""
		after, err := typ.Page(t.Context(), q)
		if err != nil || at < len(want) && (len(after.Entries) == 0 || after.Entries[0].UID() != want[at]) {
			rt.Fatalf("forward again: got %v, %v; want %q from index %d", after, err, want, at)
		}
		at, page = at-len(got), before
	}
	if at != 0 {
		rt.Fatalf("the way back ended at index %d of %q", at, want)
	}
}

// TestCountByOrder checks that entries are counted by an ordered index, without a scan: with one
// command, or with two if the index has none. On a cluster such a count is an estimate, so a query
// without an order scans all entries there.
func TestCountByOrder(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		typ := typeOf(t, s.open(userdb.Options{Schema: orderedSchema()}), "user")
		for _, uid := range []string{"u1", "u2", "u3"} {
			add(t, typ, uid, "name", "name of "+uid)
		}
		_, err := typ.Update(ctx, hints.UID("u3"), putText("last", "Zorn"))
		must(t, err)
		for _, c := range []struct {
			q       userdb.Query
			command string
			want    int64
		}{
			{userdb.Query{}, "zcard", 3},
			{userdb.Query{Limit: 1}, "zcard", 3},
			{userdb.Query{Order: "last"}, "zcard", 3},
			{userdb.Query{Order: "last", Prefix: "zo"}, "zlexcount", 1},
			{userdb.Query{Order: "last", LT: new(schema.Text("a"))}, "zlexcount", 0},
		} {
			var commands []string
			s.tap.set(func(_ context.Context, sent []redis.Cmder, send func() error) error {
				for _, cmd := range sent {
					commands = append(commands, cmd.Name())
				}
				return send()
			})
			total, err := typ.Count(ctx, c.q)
			s.tap.set(nil)
			must(t, err)
			scans := !s.has(oneScript) && c.q.Order == ""
			if want := (userdb.Total{Entries: c.want, Estimate: !s.has(oneScript) && !scans}); total != want {
				t.Errorf("%+v: got %+v, want %+v", c.q, total, want)
			}
			sent := []string{c.command}
			if c.want == 0 { // the index may have been removed
				sent = append(sent, "hgetall")
			}
			if !scans && !slices.Equal(commands, sent) {
				t.Errorf("%+v: sent %q, want %q", c.q, commands, sent)
			}
		}
	})
}

// TestOrderedChanges checks that an ordered index follows the changes of its entries.
func TestOrderedChanges(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		typ := typeOf(t, s.open(userdb.Options{Schema: orderedSchema()}), "user")
		ctx := t.Context()
		add(t, typ, "u1", "name", "ann", "last", "Adams", "job", "cook")
		add(t, typ, "u2", "name", "ben", "last", "Brown", "job", "smith")
		add(t, typ, "u3", "name", "cid", "last", "Clark", "job", "cook")
		listed := func(q userdb.Query) string {
			q.Order = "last"
			var uids []string
			for e, err := range typ.All(ctx, q) {
				must(t, err)
				uids = append(uids, e.UID())
			}
			return strings.Join(uids, " ")
		}
		want := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: got %s, want %s", what, got, want)
			}
		}
		want("as created", listed(userdb.Query{}), "u1 u2 u3")
		want("with a condition", listed(userdb.Query{Where: schema.Texts("job", "cook"), Reverse: true}), "u3 u1")
		want("a limit", listed(userdb.Query{Limit: 2}), "u1 u2")
		_, err := typ.Update(ctx, hints.UID("u1"), putText("last", "Zorn"))
		must(t, err)
		want("after a change", listed(userdb.Query{}), "u2 u3 u1")
		_, err = typ.Update(ctx, hints.UID("u3"), func(e *userdb.Entry) error { e.Drop("last"); return nil })
		must(t, err)
		want("without a value", listed(userdb.Query{}), "u3 u2 u1")
		want("without a value, reverse", listed(userdb.Query{Reverse: true}), "u1 u2 u3")
		want("without a value, bounded", listed(userdb.Query{LTE: new(schema.Text("z"))}), "u2")
		for _, q := range []userdb.Query{
			{LTE: new(schema.Text("z"))},
			{GT: new(schema.Text("zorn"))},
			{Prefix: "z"},
			{Prefix: "zo", Reverse: true},
			{GTE: new(schema.Text("z")), LT: new(schema.Text("a"))},
		} {
			names := strings.Fields(listed(q))
			q.Order = "last"
			if total, err := typ.Count(ctx, q); err != nil || total.Entries != int64(len(names)) {
				t.Errorf("%+v: counted %+v, %v; want %d", q, total, err, len(names))
			}
		}
		want("after two", listed(userdb.Query{Skip: 2}), "u1")
		want("after two, reverse", listed(userdb.Query{Skip: 2, Reverse: true}), "u3")
		want("after all", listed(userdb.Query{Skip: 3}), "")
		total, err := typ.Count(ctx, userdb.Query{Order: "last"})
		if must(t, err); total.Entries != 3 {
			t.Errorf("%d entries are in the order, want 3", total.Entries)
		}
		page, err := typ.Page(ctx, userdb.Query{Order: "last", Skip: 1, Limit: 1})
		if must(t, err); len(page.Entries) != 1 || page.Entries[0].UID() != "u2" {
			t.Errorf("a page after one entry: got %v, want u2", page)
		}
		page, err = typ.Page(ctx, userdb.Query{Order: "last", After: page.Next})
		if must(t, err); len(page.Entries) != 1 || page.Entries[0].UID() != "u1" || page.Next != "" {
			t.Errorf("the page after that: got %v, want u1, and no page after it", page)
		}
		want("a prefix in another case", listed(userdb.Query{Prefix: "zO"}), "u1")
		want("a prefix with a space", listed(userdb.Query{Prefix: "zorn "}), "")
		// These values have the same canonical form, so the range includes every spelling.
		for _, last := range []string{"ZORN", "Zorn", "zorn", "ZORN"} {
			_, err = typ.Update(ctx, hints.UID("u1"), putText("last", last))
			must(t, err)
			want(last, listed(userdb.Query{GTE: new(schema.Text("zorn")), LTE: new(schema.Text("ZORN"))}), "u1")
			s.inspect(t)
		}
		must(t, typ.Delete(ctx, hints.UID("u2")))
		want("after a delete", listed(userdb.Query{}), "u3 u1")
		_, err = typ.Create(ctx, userdb.NewEntry{Facets: schema.Texts("last", strings.Repeat("x", 1025))})
		wantField(t, "a value that is too long to order", err, userdb.ErrInvalid, "last")
		for _, q := range []userdb.Query{
			{Order: "job"},
			{Order: "nosuch"},
			{Reverse: true},
			{Skip: 1},
			{Order: "last", Skip: 1, Prefix: "a"},
			{Order: "last", Skip: 1, GT: new(schema.Text("a"))},
			{Order: "age", Prefix: "1"},
			{Order: "age", GT: new(schema.Text(strings.Repeat("9", 1025)))},
		} {
			_, err := typ.Page(ctx, q)
			wantErr(t, fmt.Sprint(q), err, userdb.ErrInvalid)
		}
		_, err = typ.Page(ctx, userdb.Query{Order: "last", After: "0.x."})
		wantErr(t, "a cursor of another listing", err, userdb.ErrCursor)
		page, err = typ.Page(ctx, userdb.Query{Order: "last", Limit: 1})
		must(t, err)
		_, err = typ.Page(ctx, userdb.Query{Order: "last", After: page.Next})
		must(t, err)
		_, err = typ.Page(ctx, userdb.Query{Order: "last", After: page.Next, Skip: 1})
		wantErr(t, "a continuation with Skip", err, userdb.ErrInvalid)
		_, err = typ.Page(ctx, userdb.Query{Order: "age", After: page.Next})
		wantErr(t, "a cursor of another order", err, userdb.ErrCursor)
		_, err = typ.Page(ctx, userdb.Query{After: "b.eA."})
		wantErr(t, "back without an order", err, userdb.ErrCursor)
		for _, err := range typ.All(ctx, userdb.Query{Order: "last", After: "b.eA."}) {
			wantErr(t, "All with a cursor for going back", err, userdb.ErrCursor)
		}
	})
}

// TestFieldsOfSeveralRoles checks that one field can be secondary, indexed and ordered at the same
// time.
func TestFieldsOfSeveralRoles(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		sch := schema.Schema{Types: map[string]schema.Type{"user": {Primary: "uid", Fields: map[string]schema.Field{
			"name": {Role: schema.RoleSecondary | schema.RoleOrdered},
			"job":  {Role: schema.RoleIndexed | schema.RoleOrdered},
			"mail": {Role: schema.RoleSecondary | schema.RoleIndexed | schema.RoleOrdered},
		}}}}
		typ, ctx := typeOf(t, s.open(userdb.Options{Schema: sch}), "user"), t.Context()
		add(t, typ, "u1", "name", "cid", "job", "cook", "mail", "c@x.org")
		add(t, typ, "u2", "name", "ann", "job", "baker", "mail", "a@x.org")
		add(t, typ, "u3", "name", "ben", "job", "cook", "mail", "B@x.org")
		want := func(what, want string, q userdb.Query) {
			t.Helper()
			var uids []string
			for e, err := range typ.All(ctx, q) {
				must(t, err)
				uids = append(uids, e.UID())
			}
			if q.Order == "" {
				slices.Sort(uids)
			}
			if got := strings.Join(uids, " "); got != want {
				t.Errorf("%s: got %s, want %s", what, got, want)
			}
		}
		want("by name", "u2 u3 u1", userdb.Query{Order: "name"})
		want("by job", "u2 u1 u3", userdb.Query{Order: "job"})
		want("cooks by name", "u3 u1", userdb.Query{Order: "name", Where: schema.Texts("job", "cook")})
		want("cooks", "u1 u3", userdb.Query{Where: schema.Texts("job", "cook")})
		want("one name", "u1", userdb.Query{Where: schema.Texts("name", "CID")})
		_, err := typ.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "ANN")})
		wantField(t, "a taken name", err, userdb.ErrDuplicate, "name")
		_, err = typ.Update(ctx, hints.Field("mail", "b@x.org"), func(e *userdb.Entry) error {
			e.Put("name", schema.Text("zoe"))
			e.Put("mail", schema.Text("z@x.org"))
			e.Drop("job")
			return nil
		})
		must(t, err)
		want("by name, changed", "u2 u1 u3", userdb.Query{Order: "name"})
		want("by job, changed", "u3 u2 u1", userdb.Query{Order: "job"})
		want("by mail, changed", "u2 u1 u3", userdb.Query{Order: "mail"})
		s.inspect(t)
		must(t, typ.Delete(ctx, hints.Field("name", "zoe")))
		must(t, typ.Delete(ctx, hints.Field("name", "ann")))
		want("deleted", "u1", userdb.Query{Order: "mail"})
		s.inspect(t)
	})
}
