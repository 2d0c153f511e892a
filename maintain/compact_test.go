package maintain_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// loose are the problems of entries that are not kept compact, in their order, and whatever else is found.
func (s *site) loose(t tester, o maintain.CheckOptions) (loose []maintain.Problem, others int) {
	t.Helper()
	for p, err := range maintain.Check(s.ctx, s.db, o) {
		switch {
		case err != nil:
			t.Fatal(err)
		case p.Code != "entry_not_compact":
			others++
		default:
			loose = append(loose, p)
		}
		if p.Code == "entry_not_compact" && (!p.Warning || p.Repaired || p.Invariant != 0) {
			t.Errorf("not a mere warning: %+v", p)
		}
	}
	return loose, others
}

// short is such a problem in few words: key field count/of.
func short(ps []maintain.Problem) []string {
	var all []string
	for _, p := range ps {
		all = append(all, fmt.Sprintf("%s %.20s %d/%d", p.Key, p.Field, p.Count, p.Of))
	}
	return all
}

func inOrder(t tester, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

const unlimited = " (by the usual limits of Redis; this server does not tell its own)"

func TestCheckNotCompact(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.clean(t)
		inOrder(t, "values as they usually are", short(first(s.loose(t, maintain.CheckOptions{}))), nil)
		for n := range 4 {
			s.user(t, n+1)
			s.do(t, "HSET", fmt.Sprintf("user/uid:u%d", n+1), "bio", strings.Repeat("é", 32), "note", strings.Repeat("x", 64+n))
		}
		s.do(t, "HSET", "firm/id:1", strings.Repeat("f", 70), "")
		s.do(t, "HSET", "user/uid:u2", "bio", strings.Repeat("é", 150))
		all, others := s.loose(t, maintain.CheckOptions{})
		inOrder(t, "all", short(all), []string{
			"firm/id:1 ffffffffffffffffffff 1/1",
			"user/uid:u2 bio 1/6",
			"user/uid:u2 note 3/6",
		})
		if others != 0 {
			t.Errorf("%d other problems", others)
		}
		tail := ""
		if strings.Contains(t.Name(), "embedded") {
			tail = unlimited
		}
		want := `"note" has more than 64 bytes, up to 67, in 3 of 6 entries of type "user"; such entries are not kept compact, and take more memory` + tail
		if got := all[2].Text; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		one, _ := s.loose(t, maintain.CheckOptions{Only: hints.UID("u4").Of("user")})
		inOrder(t, "of one", short(one), []string{"user/uid:u4 note 1/1"})
		none, _ := s.loose(t, maintain.CheckOptions{Only: hints.UID("u1").Of("user")})
		inOrder(t, "of one that is compact", short(none), nil)
	})
}

func first[A, B any](a A, _ B) A { return a }

// Entries are counted once, however often a damaged one is looked at and however many rounds a repair takes.
func TestCheckNotCompactDamaged(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.clean(t)
		s.user(t, 1)
		s.do(t, "HSET", "user/uid:u1", "bio", strings.Repeat("x", 65))
		s.do(t, "HSET", "user/uid:u1", "~prk", strings.Repeat("y", 65))
		s.do(t, "DEL", "user/name:name+_of+_u1/~prk")
		got, others := s.loose(t, maintain.CheckOptions{})
		inOrder(t, "damaged", short(got), []string{"user/uid:u1 bio 1/3", "user/uid:u1 ~prk 1/3"})
		if others != 2 {
			t.Errorf("%d other problems, want 2", others)
		}
		got, _ = s.loose(t, maintain.CheckOptions{Repair: true})
		inOrder(t, "as it was before its last step was made", short(got), []string{"user/uid:u1 bio 1/3", "user/uid:u1 ~prk 1/3"})
		got, _ = s.loose(t, maintain.CheckOptions{Repair: true})
		inOrder(t, "repaired", short(got), []string{"user/uid:u1 bio 1/3"})
	})
}

// TestCheckNotCompactAsServer holds what is said to what a server does.
func TestCheckNotCompactAsServer(t *testing.T) {
	s := open(t, redistest.Start(t, redistest.Config("hash-max-listpack-entries 20", "hash-max-listpack-value 40")).Client(), recordkey.Namespace{}, house())
	s.clean(t)
	for _, field := range []int{1, 39, 40, 41} {
		for _, value := range []int{0, 39, 40, 41, 4000} {
			for _, more := range []int{0, 10, 30} {
				s.looseAsServer(t, strings.Repeat("f", field), strings.Repeat("v", value), more)
			}
		}
	}
	for more := range 20 {
		s.looseAsServer(t, "f", "v", more)
	}
}

func (s *site) looseAsServer(t *testing.T, field, value string, more int) {
	t.Helper()
	s.raw.Del(s.ctx, "firm/id:x")
	s.do(t, "HSET", "firm/id:x", "~isa", "firm", "~prk", "firm/id:x", "id", "x", field, value)
	for i := range more {
		s.do(t, "HSET", "firm/id:x", fmt.Sprint("m", i), "")
	}
	encoding, err := s.raw.ObjectEncoding(s.ctx, "firm/id:x").Result()
	if err != nil {
		t.Fatal(err)
	}
	got, _ := s.loose(t, maintain.CheckOptions{Only: hints.UID("x").Of("firm")})
	if (encoding != "listpack") != (len(got) > 0) {
		t.Errorf("a field of %d bytes, a value of %d, %d more fields: the server says %s, Check %q", len(field), len(value), more, encoding, short(got))
	}
}

var limited = []struct {
	name string
	opt  redistest.Option
	want []string
	text string
}{
	{"usual", redistest.Config(), []string{"user/uid:u0 bio 1/2"}, `"bio" has more than 64 bytes, up to 65, in 1 of 2 entries of type "user"`},
	{"more bytes", redistest.Config("hash-max-listpack-value 128"), nil, ""},
	{
		"few fields", redistest.Config("hash-max-listpack-entries 10", "hash-max-listpack-value 128"),
		[]string{"user/uid:u0  1/2"},
		`more than 10 fields, up to 15, in 1 of 2 entries of type "user"`,
	},
	{
		"CONFIG is forbidden", redistest.Config("hash-max-listpack-value 128", "user default on nopass ~* &* +@all -config"),
		[]string{"user/uid:u0 bio 1/2"},
		unlimited,
	},
	{
		"CONFIG is renamed away", redistest.Config("hash-max-listpack-value 128", `rename-command CONFIG ""`),
		[]string{"user/uid:u0 bio 1/2"},
		unlimited,
	},
}

// TestCheckNotCompactLimits: the server's own limits count, if it tells them.
func TestCheckNotCompactLimits(t *testing.T) {
	for _, tt := range limited {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t, redistest.Start(t, tt.opt).Client(), recordkey.Namespace{}, house())
			s.clean(t)
			s.do(t, "HSET", "user/uid:u0", "bio", strings.Repeat("x", 65))
			got, _ := s.loose(t, maintain.CheckOptions{})
			inOrder(t, "reported", short(got), tt.want)
			if len(got) > 0 && !strings.Contains(got[0].Text, tt.text) {
				t.Errorf("got %s, want %s", got[0].Text, tt.text)
			}
			if len(got) > 0 && strings.Contains(got[0].Text, unlimited) != (tt.text == unlimited) {
				t.Errorf("whose limits: %s", got[0].Text)
			}
		})
	}
}

// counting counts commands, but for those that begin a connection.
type counting struct{ n *atomic.Int64 }

func (counting) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}

func (c counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.count(cmds...)
		return next(ctx, cmds)
	}
}

func (c counting) count(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if !slices.Contains([]string{"hello", "auth", "client", "select"}, cmd.Name()) {
			c.n.Add(1)
		}
	}
}

// TestCheckNotCompactMany: memory does not grow with the names of fields, and nothing is asked for an entry.
func TestCheckNotCompactMany(t *testing.T) {
	s := open(t, embeddedClient(t), recordkey.Namespace{}, house())
	s.clean(t)
	const entries = 70
	for i := range entries {
		uid := fmt.Sprintf("u%02d", i)
		s.do(t, "HSET", "firm/id:"+uid, "~isa", "firm", "~prk", "firm/id:"+uid, "id", uid, "a"+uid, "", "b"+uid, "")
	}
	var asked atomic.Int64
	s.raw.AddHook(counting{&asked})
	s.check(t, maintain.CheckOptions{})
	before := asked.Load()
	for i := range entries {
		uid := fmt.Sprintf("u%02d", i)
		s.do(t, "HSET", "firm/id:"+uid, "a"+uid, strings.Repeat("a", 65+i), "b"+uid, strings.Repeat("b", 165+i))
	}
	asked.Store(0)
	got, _ := s.loose(t, maintain.CheckOptions{})
	if after := asked.Load(); after != before {
		t.Errorf("%d commands for entries that are not compact, and %d for those that are", after, before)
	}
	if len(got) != 65 {
		t.Fatalf("%d problems, want 64 and one for all others", len(got))
	}
	for _, p := range got[:64] {
		if p.Count != 1 || p.Of != entries+1 || p.Field == "" {
			t.Errorf("%+v", p)
		}
	}
	// 140 fields are too long, two of each entry; 64 of them have a name here.
	if last := got[64]; last.Field != "" || last.Count < entries-64 || last.Count > entries || !strings.Contains(last.Text, " in further fields, in ") {
		t.Errorf("%+v", last)
	}
}

// fields are as many fields as that, declared alike.
func fields(n int, f schema.Field) map[string]schema.Field {
	all := map[string]schema.Field{}
	for i := range n {
		all[fmt.Sprintf("f%d", i)] = f
	}
	return all
}

// longName is too long where ~skv: stands before it.
var longName = strings.Repeat("n", 60)

// Besides its fields every entry can have 8, and a folded secondary field is kept twice.
var told = []struct {
	what, typ string
	t         schema.Type
	want      []string
}{
	{"the built-in one", "user", schema.User().Types["user"], nil},
	{"many fields", "user", schema.Type{Primary: "id", Fields: fields(505, schema.Field{})}, []string{`: an entry of type "user" with all its fields has 513, more than 512`}},
	{"not quite as many", "user", schema.Type{Primary: "id", Fields: fields(504, schema.Field{})}, nil},
	{"many secondary fields", "user", schema.Type{Primary: "id", Fields: fields(253, secondary)}, []string{`: an entry of type "user" with all its fields has 514, more than 512`}},
	{"many secondary fields that are kept as they are", "user", schema.Type{Primary: "id", Fold: schema.FoldExact, Fields: fields(253, secondary)}, nil},
	{
		"long names", "user",
		schema.Type{Primary: "id", Fields: map[string]schema.Field{longName: secondary, longName + "12345": {}, longName + "1234": {}}},
		[]string{
			longName + "12345: the name of the field \"" + longName + "12345\" has 65 bytes, more than 64",
			"~skv:" + longName + ": the name of the field \"~skv:" + longName + "\" has 65 bytes, more than 64",
		},
	},
	{"a type with room for the usual UID", strings.Repeat("t", 48), schema.Type{Primary: "id"}, nil},
	{
		"a type without", strings.Repeat("t", 47) + " ",
		schema.Type{Primary: "id"},
		[]string{`~prk: ~prk of type "` + strings.Repeat("t", 47) + ` " has more than 64 bytes with a UID of more than 11; those that are made here have 12`},
	},
	{
		"a type that is too long itself", strings.Repeat("t", 80),
		schema.Type{Primary: "id"},
		[]string{`~prk: ~prk of type "` + strings.Repeat("t", 80) + `" has more than 64 bytes with a UID of more than 0; those that are made here have 12`},
	},
}

func TestNotCompact(t *testing.T) {
	const tail = "; such entries are not kept compact, and take more memory (by the usual limits of Redis)"
	for _, tt := range told {
		t.Run(tt.what, func(t *testing.T) {
			var got []string
			for _, p := range maintain.NotCompact(schema.Schema{Types: map[string]schema.Type{tt.typ: tt.t}}) {
				text, known := strings.CutSuffix(p.Text, tail)
				got = append(got, p.Field+": "+text)
				key := "~/schema/" + recordkey.Escape(tt.typ)
				if !known || !p.Warning || p.Code != "entry_not_compact" || p.Key != key {
					t.Errorf("%+v", p)
				}
			}
			inOrder(t, "told", got, tt.want)
		})
	}
}

// TestNotCompactTrue: of a type just short enough, an entry with the usual UID is compact, and of the next it is not.
func TestNotCompactTrue(t *testing.T) {
	for n, want := range map[int]string{48: "listpack", 49: "hashtable"} {
		typ := strings.Repeat("t", n)
		sch := schema.Schema{Types: map[string]schema.Type{typ: {Primary: "id"}}}
		s := open(t, serverClient(t), recordkey.Namespace{}, sch)
		e, err := s.typ(t, typ).Create(s.ctx, userdb.NewEntry{})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.raw.ObjectEncoding(s.ctx, e.Key().String()).Val(); got != want {
			t.Errorf("a type of %d bytes: %s, want %s", n, got, want)
		}
		if told := len(maintain.NotCompact(sch)) > 0; told != (want != "listpack") {
			t.Errorf("a type of %d bytes: told %v", n, told)
		}
		if got, _ := s.loose(t, maintain.CheckOptions{}); (len(got) > 0) != (want != "listpack") {
			t.Errorf("a type of %d bytes: Check says %q", n, short(got))
		}
	}
}
