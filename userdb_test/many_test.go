package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// manySchema returns a schema with two fields that may have several values, one that may not, and
// an untyped field with several values.
func manySchema() schema.Schema {
	return schema.Schema{Types: map[string]schema.Type{"user": {
		Primary: "uid", Password: &schema.Password{},
		Fields: map[string]schema.Field{
			"email":   {Role: schema.RoleSecondary | schema.RoleOrdered, Many: 4},
			"invoice": {Role: schema.RoleSecondary | schema.RoleIndexed, Many: 5},
			"name":    {Role: schema.RoleSecondary},
			"ext":     {Role: schema.RoleSecondary | schema.RoleIndexed, Typed: new(false), Many: 3},
		},
	}}}
}

// manyLimits are the numbers of values that manySchema allows.
var manyLimits = map[string]int{"email": 4, "invoice": 5, "name": 1, "ext": 3}

// A manyModel holds the values that entries must have, by UID and field.
type manyModel map[string]map[string][]string

func canonicalOf(text string) string { return strings.ToLower(strings.Join(strings.Fields(text), " ")) }

func indexOfValue(texts []string, text string) int {
	return slices.IndexFunc(texts, func(other string) bool { return canonicalOf(other) == canonicalOf(text) })
}

// owner returns the UID of the entry that has a value: in ext if field is ext, otherwise in any
// other field. It returns "" if there is none.
func (m manyModel) owner(field, text string) string {
	for uid, fields := range m {
		for other, texts := range fields {
			if (other == "ext") == (field == "ext") && indexOfValue(texts, text) >= 0 {
				return uid
			}
		}
	}
	return ""
}

// refusal returns the error that an entry with these values must get, or nil.
func (m manyModel) refusal(uid string, fields map[string][]string) error {
	for field, texts := range fields {
		for i, text := range texts {
			if indexOfValue(texts, text) != i {
				return userdb.ErrInvalid
			}
		}
		if len(texts) > manyLimits[field] {
			return userdb.ErrInvalid
		}
	}
	for field, texts := range fields {
		for _, text := range texts {
			if other := m.owner(field, text); other != "" && other != uid {
				return userdb.ErrDuplicate
			}
		}
	}
	return nil
}

// manySteps makes random changes of few entries with few values, and compares each answer with the
// model.
type manySteps struct {
	*site
	users *userdb.Type
	model manyModel
	rnd   *rand.Rand
	count map[string]int // outcomes
}

func (m *manySteps) text() string {
	texts := []string{"a", "A", "b", "B", "c", "d", "e", "f f", "F  f", "g"}
	return texts[m.rnd.IntN(len(texts))]
}

func (m *manySteps) texts(most int) (texts []string) {
	for range m.rnd.IntN(most + 1) {
		texts = append(texts, m.text())
	}
	return texts
}

// edit makes the same random change to an entry and to its values in the model.
func (m *manySteps) edit(e *userdb.Entry, fields map[string][]string) {
	field := []string{"email", "email", "invoice", "name", "ext"}[m.rnd.IntN(5)]
	text, texts := m.text(), slices.Clone(fields[field])
	at := indexOfValue(texts, text)
	switch m.rnd.IntN(8) {
	case 0, 1:
		if e.AddText(field, text); at < 0 {
			texts = append(texts, text)
		}
	case 2:
		if e.DropText(field, text); at >= 0 {
			texts = slices.Delete(texts, at, at+1)
		}
	case 3, 4:
		e.PutFirst(field, text)
		if at >= 0 {
			text = texts[at]
			texts = slices.Delete(texts, at, at+1)
		}
		texts = append([]string{text}, texts...)
	case 5:
		texts = m.texts(4)
		e.SetTexts(field, texts...)
	case 6:
		e.Put(field, schema.Text(text))
		rest := texts[min(1, len(texts)):]
		if i := indexOfValue(rest, text); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
		}
		texts = append([]string{text}, rest...)
	case 7:
		e.Drop(field)
		texts = nil
	}
	fields[field] = texts
}

// step makes one change and compares its outcome with the model.
func (m *manySteps) step(ctx context.Context) {
	uid := fmt.Sprint("u", m.rnd.IntN(4))
	was, exists := m.model[uid]
	fields := map[string][]string{}
	maps.Copy(fields, was)
	switch {
	case exists && m.rnd.IntN(8) == 0:
		must(m.t, m.users.Delete(ctx, hints.UID(uid)))
		delete(m.model, uid)
	case exists:
		edits := m.rnd.Uint64()
		_, err := m.users.Update(ctx, hints.UID(uid), func(e *userdb.Entry) error {
			maps.Copy(fields, was)
			m.rnd = rand.New(rand.NewPCG(edits, 1)) // the same edits whenever it is called
			for range 1 + m.rnd.IntN(2) {
				m.edit(e, fields)
			}
			for field := range manyLimits {
				if got := e.Texts(field); !slices.Equal(got, fields[field]) {
					m.t.Errorf("the edited %s of %s is %q, want %q", field, uid, got, fields[field])
				}
			}
			return nil
		})
		m.judge("update", uid, fields, err)
	default:
		fields = map[string][]string{"email": m.texts(3), "invoice": m.texts(2), "ext": m.texts(2)}
		if m.rnd.IntN(2) == 0 {
			fields["name"] = []string{m.text()}
		}
		n := userdb.NewEntry{UID: uid, Values: fields}
		_, err := m.users.Create(ctx, n)
		m.judge("create", uid, fields, err)
	}
}

// judge compares the outcome of a change with the model, and makes the change in the model.
func (m *manySteps) judge(what, uid string, fields map[string][]string, err error) {
	want := m.model.refusal(uid, fields)
	if !errors.Is(err, want) {
		m.t.Fatalf("%s %s %q, with %q: got %v, want %v", what, uid, fields, m.model, err, want)
	}
	m.count[fmt.Sprint(what, " ", want)]++
	if want == nil {
		m.model[uid] = fields
	}
}

// compare compares all entries and all lookups with the model.
func (m *manySteps) compare(ctx context.Context) {
	for uid, fields := range m.model {
		e, err := m.users.Find(ctx, hints.UID(uid))
		must(m.t, err)
		for field := range manyLimits {
			if got := e.Texts(field); !slices.Equal(got, fields[field]) {
				m.t.Errorf("%s of %s is %q, want %q", field, uid, got, fields[field])
			}
		}
	}
	for _, text := range []string{"a", "b", "c", "d", "e", "F F", "g"} {
		e, err := m.users.Find(ctx, hints.Any(text))
		if owner := m.model.owner("", text); owner == "" && !errors.Is(err, userdb.ErrNotFound) || owner != "" && (err != nil || e.UID() != owner) {
			m.t.Errorf("%q leads to %q, %v; want %q", text, e.UID(), err, owner)
		}
		for field := range manyLimits {
			found := map[string]bool{}
			for e, err := range m.users.All(ctx, userdb.Query{Where: schema.Texts(field, text)}) {
				must(m.t, err)
				found[e.UID()] = true
			}
			if e, err := m.users.Find(ctx, hints.Field(field, text)); len(found) > 0 && (err != nil || !found[e.UID()]) || len(found) == 0 && !errors.Is(err, userdb.ErrNotFound) {
				m.t.Errorf("%s=%q leads to %q, %v; want one of %v", field, text, e.UID(), err, found)
			}
			want := map[string]bool{}
			for uid, fields := range m.model {
				if indexOfValue(fields[field], text) >= 0 {
					want[uid] = true
				}
			}
			if !maps.Equal(found, want) {
				m.t.Errorf("%s=%q selects %v, want %v", field, text, found, want)
			}
		}
	}
}

// TestManyValues makes random changes of entries with several values in a field, and compares them
// with a model. All invariants are also checked on the raw records.
func TestManyValues(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		steps := 200
		if !s.has(cheapWrites) {
			steps = 100
		}
		m := &manySteps{site: s, model: manyModel{}, rnd: rand.New(rand.NewPCG(1, 2)), count: map[string]int{}}
		m.users = typeOf(t, s.open(userdb.Options{Schema: manySchema()}), "user")
		for i := range steps {
			m.step(t.Context())
			if i%50 == 49 {
				m.compare(t.Context())
				s.inspect(t)
			}
		}
		for _, what := range []string{"update <nil>", "update taken", "update invalid value", "create <nil>", "create taken"} {
			if m.count[what] == 0 {
				t.Errorf("never happened: %s; there were %v", what, m.count)
			}
		}
	})
}

// TestManyRaces lets many callers add, move and drop the same values in two entries. No invariant
// may be broken afterward.
func TestManyRaces(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := typeOf(t, s.open(userdb.Options{Schema: manySchema()}), "user")
		for _, uid := range []string{"p", "q"} {
			_, err := users.Create(t.Context(), userdb.NewEntry{UID: uid, Values: map[string][]string{"email": {uid, uid + "2"}}})
			must(t, err)
		}
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), 7))
				for range 6 {
					uid, text := []string{"p", "q"}[rnd.IntN(2)], []string{"x", "y", "z"}[rnd.IntN(3)]
					_, err := users.Update(t.Context(), hints.UID(uid), func(e *userdb.Entry) error {
						switch rnd.IntN(4) {
						case 0:
							e.DropText("email", text)
						case 1:
							e.PutFirst("email", text)
						case 2:
							e.Put("name", schema.Text(text))
						default:
							e.AddText("email", text)
						}
						return nil
					})
					if err != nil && !errors.Is(err, userdb.ErrDuplicate) && !errors.Is(err, userdb.ErrInvalid) && !errors.Is(err, userdb.ErrConflict) {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
	})
}

// TestManyWanted lets 64 callers compete for one value, as the first or a further value of new and
// of existing entries, in two fields. Exactly one must get it. Readers must find only an entry that
// has the value, and must find it once the caller that got the value has the answer.
func TestManyWanted(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		users := typeOf(t, s.open(userdb.Options{Schema: manySchema()}), "user")
		const callers, wanted = 64, "wanted"
		for i := range callers / 2 {
			_, err := users.Create(ctx, userdb.NewEntry{UID: fmt.Sprint("old", i), Values: map[string][]string{"email": {fmt.Sprint("o", i)}}})
			must(t, err)
		}
		var won atomic.Int64
		done := make(chan struct{})
		var readers, writers sync.WaitGroup
		for range 2 {
			readers.Go(func() {
				for {
					wonBefore := won.Load()
					e, err := users.Find(ctx, hints.Any(wanted))
					switch {
					case err == nil && !slices.Contains(e.Texts("email"), wanted) && e.Text("name") != wanted:
						t.Errorf("found %s, which does not have the value", e.UID())
					case err != nil && (wonBefore > 0 || !errors.Is(err, userdb.ErrNotFound)):
						t.Errorf("looking for a value that an entry has: %v", err)
					}
					select {
					case <-done:
						return
					default:
					}
				}
			})
		}
		for i := range callers {
			writers.Go(func() {
				var err error
				switch old := hints.UID(fmt.Sprint("old", i/2)); i % 4 {
				case 0:
					_, err = users.Update(ctx, old, func(e *userdb.Entry) error { e.AddText("email", wanted); return nil })
				case 1:
					_, err = users.Create(ctx, userdb.NewEntry{Values: map[string][]string{"email": {wanted, fmt.Sprint("n", i)}}})
				case 2:
					_, err = users.Update(ctx, old, func(e *userdb.Entry) error { e.PutFirst("email", wanted); return nil })
				case 3:
					_, err = users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", wanted)})
				}
				if err == nil {
					won.Add(1)
				} else if !errors.Is(err, userdb.ErrDuplicate) {
					t.Error(err)
				}
			})
		}
		writers.Wait()
		close(done)
		readers.Wait()
		if n := won.Load(); n != 1 {
			t.Errorf("%d callers got the value, want 1", n)
		}
	})
}

// TestUntypedValues checks that nobody can log in with an untyped value, and that a search without
// a field ignores such values, even if another entry has the same text in a typed field.
func TestUntypedValues(t *testing.T) {
	o := loginOptions()
	o.Schema.Types["user"].Fields["ext"] = schema.Field{Role: schema.RoleSecondary | schema.RoleOrdered, Typed: new(false), Many: 3}
	eachLoginSite(t, o, func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		g.add("bob", alicePassword)
		_, err := g.users.Update(ctx, uid("bob"), func(e *userdb.Entry) error {
			e.SetTexts("ext", "alice@example.com", "id-7")
			return nil
		})
		must(t, err)
		for _, h := range []hints.Hint{hints.Field("ext", "alice@example.com"), hints.Field("ext", "ID-7")} {
			if e, err := g.users.Find(ctx, h); err != nil || e.UID() != "bob" {
				t.Errorf("%v leads to %q, %v; want bob", h, e.UID(), err)
			}
		}
		if e, err := g.users.Find(ctx, hints.Any("alice@example.com")); err != nil || e.UID() != "alice" {
			t.Errorf("a search in any field leads to %q, %v; want alice", e.UID(), err)
		}
		for _, find := range []func(context.Context, hints.Hint) (userdb.Entry, error){g.users.Find, g.users.FindExhaustive} {
			if e, err := find(ctx, hints.Any("id-7")); !errors.Is(err, userdb.ErrNotFound) {
				t.Errorf("a search in any field leads to %q, %v; want ErrNotFound", e.UID(), err)
			}
		}
		if err := g.logIn("id-7", alicePassword, ""); !errors.Is(err, userdb.ErrLogin) {
			t.Errorf("logging in with a value that nobody types: %v, want ErrLogin", err)
		}
		must(t, g.logIn("alice@example.com", alicePassword, ""))
		_, address, err := g.users.IssueForVisitor(ctx, "email", "id-7", userdb.Token{Purpose: "reset"}, userdb.Attempt{})
		if !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("a token for a visitor goes to %q, %v; want ErrNotFound", address, err)
		}
		if s, err := g.users.LoginStatus(ctx, uid("bob")); err != nil || s.Identifiers != 2 {
			t.Errorf("bob has %d identifiers, %v; want 2", s.Identifiers, err)
		}
		_, err = g.users.Create(ctx, userdb.NewEntry{UID: "eve", Facets: schema.Texts("ext", "Id-7")})
		wantField(t, "a value that another entry has in the field", err, userdb.ErrDuplicate, "ext")
		_, err = g.users.Create(ctx, userdb.NewEntry{UID: "id-7", Facets: schema.Texts("ext", "bob@example.com", "name", "id-7")})
		must(t, err)
	})
}

// manyLogins returns the options of a store whose users may have several addresses and invoices.
func manyLogins() userdb.Options {
	o := loginOptions()
	fields := o.Schema.Types["user"].Fields
	fields["email"] = schema.Field{Role: schema.RoleSecondary, Kind: "email", Many: 4}
	fields["invoice"] = schema.Field{Role: schema.RoleSecondary, Many: 4}
	return o
}

// TestManySignIn checks with which of several values an entry can log in, and to which of them
// secrets are sent.
func TestManySignIn(t *testing.T) {
	eachLoginSite(t, manyLogins(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		edit := func(f func(e *userdb.Entry)) userdb.Entry {
			t.Helper()
			e, err := g.users.Update(ctx, uid("alice"), func(e *userdb.Entry) error { f(e); return nil })
			must(t, err)
			return e
		}
		e := edit(func(e *userdb.Entry) {
			e.AddText("email", "alice@work.example")
			e.AddText("invoice", "2026-1")
			e.AddText("invoice", "2026-2")
		})
		if e.VerifiedText("email", "alice@work.example") {
			t.Error("a value is verified although nobody has proved it")
		}
		signsIn := func(why string, want map[string]bool) {
			t.Helper()
			for identifier, signs := range want {
				own, other := g.countHashes(func() {
					err := g.logIn(identifier, alicePassword, "")
					if signs != (err == nil) || !signs && !errors.Is(err, userdb.ErrLogin) {
						t.Errorf("%s: logging in as %s: %v, want success: %v", why, identifier, err, signs)
					}
				})
				if own+other != 1 {
					t.Errorf("%s: logging in as %s computed %d and %d hashes, want one", why, identifier, own, other)
				}
			}
		}
		signsIn("before", map[string]bool{"alice@example.com": true, "Alice@WORK.example": false, "2026-1": true, "2026-2": true, "alice": true})
		sentTo := func(entered, want string) string {
			t.Helper()
			secret, address, err := g.users.IssueForVisitor(ctx, "email", entered, userdb.Token{Purpose: "reset " + entered}, userdb.Attempt{})
			must(t, err)
			if address != want {
				t.Errorf("the secret of %s is sent to %s, want %s", entered, address, want)
			}
			return secret
		}
		sentTo("alice@work.example", "alice@example.com")

		// The value that a token adds is verified by the mail.
		added, err := g.users.Issue(ctx, uid("alice"), userdb.Token{Purpose: userdb.PurposeAdd + "email", Value: " Alice@work.example "})
		must(t, err)
		e, _, err = g.users.Redeem(ctx, userdb.PurposeAdd+"email", added)
		must(t, err)
		if texts := e.Texts("email"); !slices.Equal(texts, []string{"alice@example.com", "Alice@work.example"}) || !e.VerifiedText("email", "alice@work.example") || e.Verified("email") {
			t.Errorf("after adding: got %q, the added value is verified: %v, the first one: %v; want both values, true, false",
				texts, e.VerifiedText("email", "alice@work.example"), e.Verified("email"))
		}
		signsIn("once verified", map[string]bool{"alice@example.com": true, "alice@work.example": true})
		reset := sentTo("ALICE@work.example", "Alice@work.example")
		first := sentTo("alice", "alice@example.com")

		// Another order ends no token, and the marks move with the values.
		e = edit(func(e *userdb.Entry) { e.PutFirst("email", "alice@work.example") })
		if !e.Verified("email") || e.VerifiedText("email", "alice@example.com") {
			t.Error("the mark of the value that was put first has not moved along")
		}
		must(t, errOf(g.users.ResetPassword(ctx, "reset ALICE@work.example", reset, alicePassword)))
		g.wantVoid("the password was set", "reset alice", first)

		// A token becomes invalid when the entry loses the value that the token was sent to.
		first = sentTo("alice@example.com", "Alice@work.example") // not verified, so the first
		edit(func(e *userdb.Entry) { e.DropText("email", "alice@work.example") })
		g.wantVoid("the address is gone", "reset alice@example.com", first)
		signsIn("in the end", map[string]bool{"alice@example.com": false, "alice@work.example": false, "alice": true})
	})
}

// TestManyAdd checks the issue and the redemption of tokens that add a value.
func TestManyAdd(t *testing.T) {
	eachLoginSite(t, manyLogins(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		_, err := g.users.Issue(ctx, uid("alice"), userdb.Token{Purpose: userdb.PurposeAdd + "name", Value: "al"})
		wantErr(t, "a field with one value", err, userdb.ErrInvalid)
		_, err = g.users.Issue(ctx, uid("alice"), userdb.Token{Purpose: userdb.PurposeAdd + "email", Value: "al"})
		wantField(t, "not an address", err, userdb.ErrInvalid, "email")
		taken, err := g.users.Issue(ctx, uid("alice"), userdb.Token{Purpose: userdb.PurposeAdd + "email", Value: "bob@example.com"})
		must(t, err)
		g.add("bob", alicePassword)
		_, _, err = g.users.Redeem(ctx, userdb.PurposeAdd+"email", taken)
		wantField(t, "an address that another has", err, userdb.ErrDuplicate, "email")
		secret, err := g.users.Issue(ctx, uid("alice"), userdb.Token{Purpose: userdb.PurposeAdd + "email", Value: "alice@example.com"})
		must(t, err)
		e, _, err := g.users.Redeem(ctx, userdb.PurposeAdd+"email", secret)
		must(t, err)
		if texts := e.Texts("email"); len(texts) != 1 || !e.Verified("email") {
			t.Errorf("after adding the address that she has: got %q, verified: %v; want it alone, true", texts, e.Verified("email"))
		}
		_, err = g.users.ResetPassword(ctx, userdb.PurposeAdd+"email", secret, alicePassword)
		wantErr(t, "a password for a token that adds a value", err, userdb.ErrInvalid)
	})
}

// TestManyEvents checks that every change of the values of a field, and of their labels, emits the
// same two events.
func TestManyEvents(t *testing.T) {
	eachLoginSite(t, manyLogins(), func(t *testing.T, g *loginSite) {
		for what, edit := range map[string]func(e *userdb.Entry){
			"added":     func(e *userdb.Entry) { e.AddText("email", "alice@work.example") },
			"put first": func(e *userdb.Entry) { e.PutFirst("email", "alice@work.example") },
			"dropped":   func(e *userdb.Entry) { e.DropText("email", "alice@home.example") },
			"labelled":  func(e *userdb.Entry) { e.SetLabel("email", "alice@example.com", "work") },
		} {
			e, err := g.users.Update(t.Context(), uid("alice"), func(e *userdb.Entry) error {
				e.SetTexts("email", "alice@example.com", "alice@home.example")
				if what == "put first" {
					e.AddText("email", "alice@work.example")
				}
				return nil
			})
			must(t, err)
			g.takeEvents()
			edit(&e)
			must(t, errOf(g.users.Save(t.Context(), e)))
			var got []string
			for _, e := range g.takeEvents() {
				got = append(got, fmt.Sprint(e.Kind, e.Fields))
			}
			if want := []string{"update[email]", "identifier[email]"}; !slices.Equal(got, want) {
				t.Errorf("a value is %s: got the events %q, want %q", what, got, want)
			}
		}
	})
}
