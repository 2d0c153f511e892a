package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// holdingSchema returns a schema that holds the values of two fields for a time.
func holdingSchema(hold time.Duration) schema.Schema {
	return schema.Schema{Types: map[string]schema.Type{"user": {
		Primary: "uid",
		Fields: map[string]schema.Field{
			"name":  {Role: schema.RoleSecondary, Many: 3, Hold: schema.Period(hold)},
			"email": {Role: schema.RoleSecondary, Kind: "email", Hold: schema.Period(hold)},
			"code":  {Role: schema.RoleSecondary},
		},
	}}}
}

// wantFree checks that an entry can be created with a value if free is true, and that the value is
// refused as held if free is false. A new entry stays.
func (s *site) wantFree(users *userdb.Type, free bool, field, text string) {
	s.t.Helper()
	_, err := users.Create(s.t.Context(), userdb.NewEntry{Facets: schema.Texts(field, text)})
	switch {
	case free && err != nil:
		s.t.Errorf("%s=%s: %v, want it to be free", field, text, err)
	case !free:
		wantField(s.t, field+"="+text, err, userdb.ErrDuplicate, field)
		if refused, ok := errors.AsType[*userdb.FieldError](err); ok && refused.Rule != "held" {
			s.t.Errorf("%s=%s: the rule is %q, want held", field, text, refused.Rule)
		}
	}
}

// TestHeld checks on every kind of store that values that an entry gives up by an edit, by Drop or
// by Delete are refused to other entries in every field, and that the entry can take them back at
// once.
func TestHeld(t *testing.T) {
	eachStoreAndRights(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		users := typeOf(t, s.open(userdb.Options{Schema: holdingSchema(time.Hour)}), "user")
		add(t, users, "a", "name", "Ada")
		edit := func(f func(*userdb.Entry)) {
			t.Helper()
			_, err := users.Update(ctx, hints.UID("a"), func(e *userdb.Entry) error { f(e); return nil })
			must(t, err)
		}
		edit(func(e *userdb.Entry) { e.AddText("name", "Countess") })
		edit(func(e *userdb.Entry) { e.Put("name", schema.Text("Augusta")) })
		s.wantFree(users, false, "name", "ADA")
		s.wantFree(users, false, "code", "ada")
		edit(func(e *userdb.Entry) { e.DropText("name", "Countess") })
		s.wantFree(users, false, "name", "countess")
		edit(func(e *userdb.Entry) { e.Put("name", schema.Text("ada")) })
		s.wantFree(users, false, "name", "Augusta")
		edit(func(e *userdb.Entry) { e.Drop("name") })
		s.wantFree(users, false, "code", "Ada")
		_, err := users.Find(ctx, hints.Any("Ada"))
		wantErr(t, "find by a held value", err, userdb.ErrNotFound)

		must(t, users.Delete(ctx, hints.UID("a")))
		for _, text := range []string{"Ada", "Augusta", "Countess"} {
			s.wantFree(users, false, "name", text)
		}
		// A new entry with the same UID counts as the entry that gave these values up.
		add(t, users, "a", "name", "Ada")
		s.wantFree(users, false, "name", "Augusta")
		h, err := users.FindHeld(ctx, "name", "AUGUSTA")
		if must(t, err); h.UID != "a" || time.Until(h.Until) < 50*time.Minute {
			t.Errorf("Augusta is held by %+v, want a for almost an hour", h)
		}
		must(t, users.ReleaseHeld(ctx, "name", "Augusta"))
		wantErr(t, "releasing again", users.ReleaseHeld(ctx, "name", "Augusta"), userdb.ErrNotFound)
		wantErr(t, "releasing what an entry has", users.ReleaseHeld(ctx, "name", "Ada"), userdb.ErrNotFound)
		s.wantFree(users, true, "name", "Augusta")
		must(t, users.Delete(ctx, hints.UID("a")))
		must(t, users.ReleaseHeld(ctx, "name", "ada"))
		s.wantFree(users, true, "code", "ada")
	})
}

// TestHeldAmongProblems checks that a form with several mistakes reports a held value in the same
// way as a value in use. Otherwise such a form would tell visitors that the value is held.
func TestHeldAmongProblems(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		users := typeOf(t, s.open(userdb.Options{Schema: holdingSchema(time.Hour)}), "user")
		add(t, users, "a", "name", "Ada")
		add(t, users, "b", "name", "Bob")
		must(t, users.Delete(ctx, hints.UID("a")))
		want := func(what string, err error, fields ...string) {
			t.Helper()
			got := problemsOf(err)
			if slices.Sort(got); !slices.Equal(got, fields) {
				t.Errorf("%s: the problems are %q, want %q", what, got, fields)
			}
		}
		for _, name := range []string{"ADA", "BOB"} {
			_, err := users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("code", name, "email", "no address")})
			want("create with "+name, err, "code taken", "email email")
		}
		_, err := users.Create(ctx, userdb.NewEntry{Values: map[string][]string{"name": {"new", "Ada"}}})
		refused, ok := errors.AsType[*userdb.FieldError](err)
		if !ok || refused.Rule != "held" || refused.Reason != "value 2" {
			t.Errorf("create with a held value behind another: %v, want that value 2 is held", err)
		}
		e, err := users.Find(ctx, hints.UID("b"))
		must(t, err)
		e.Put("code", schema.Text("ada"))
		wantField(t, "check", users.Check(ctx, e), userdb.ErrDuplicate, "code")
		_, err = users.Create(ctx, userdb.NewEntry{UID: "a", Facets: schema.Texts("name", "Ada", "email", "no address")})
		want("create of the entry that holds the value", err, "email email")
	})
}

// TestHeldAddress checks that a mail address is held only if it was verified.
func TestHeldAddress(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		users := typeOf(t, s.open(userdb.Options{Schema: holdingSchema(time.Hour)}), "user")
		add(t, users, "a", "email", "a@x.org")
		add(t, users, "b", "email", "b@x.org")
		secret, _, err := users.IssueFor(ctx, hints.UID("a"), "email", userdb.Token{Purpose: "verify", Lifetime: time.Hour})
		must(t, err)
		_, _, err = users.Redeem(ctx, "verify", secret)
		must(t, err)
		for _, uid := range []string{"a", "b"} {
			_, err := users.Update(ctx, hints.UID(uid), func(e *userdb.Entry) error { e.Drop("email"); return nil })
			must(t, err)
		}
		s.wantFree(users, false, "email", "A@x.org")
		s.wantFree(users, true, "email", "b@x.org")
	})
}

// TestHeldEnds checks that a held value is free after its time, without a change of the entry that
// held it, that the records of the hold expire, and that the next change drops a hold that ended.
func TestHeldEnds(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		users := typeOf(t, s.open(userdb.Options{Schema: holdingSchema(time.Second)}), "user")
		add(t, users, "a", "name", "Ada")
		add(t, users, "b", "name", "Bob")
		_, err := users.Update(ctx, hints.UID("a"), putText("name", "Augusta"))
		must(t, err)
		must(t, users.Delete(ctx, hints.UID("b")))
		for key, most := range map[string]time.Duration{
			"user/name:ada/~prk": time.Second + store.HeldMargin, "user/name:bob/~prk": time.Second + store.HeldMargin, "user/uid:b": 24 * time.Hour,
		} {
			if life := s.raw.PTTL(ctx, key).Val(); life <= 0 || life > most+time.Second {
				t.Errorf("%s lives %v, want at most %v", key, life, most)
			}
		}
		for _, text := range []string{"Ada", "Bob"} {
			eventually(t, text+" is free", func() bool {
				_, err := users.Create(ctx, userdb.NewEntry{UID: "of" + text, Facets: schema.Texts("code", text)})
				if err != nil && !errors.Is(err, userdb.ErrDuplicate) {
					t.Fatal(err)
				}
				return err == nil
			})
		}
		e, err := users.Update(ctx, hints.UID("a"), putText("name", "Ann"))
		if must(t, err); len(e.HeldValues()) != 1 {
			t.Errorf("the entry holds %v, want only Augusta", e.HeldValues())
		}
	})
}

// TestDeleteRelease checks that the release of a held value is in the history of the entry, and
// that a delete with ReleaseAtOnce leaves no value of the entry held, not even one that was held
// before.
func TestDeleteRelease(t *testing.T) {
	eachStoreAndRights(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		users := typeOf(t, s.open(userdb.Options{Schema: holdingSchema(time.Hour), History: true}), "user")
		add(t, users, "a", "name", "Ada")
		for _, name := range []string{"Augusta", "Countess"} {
			_, err := users.Update(ctx, hints.UID("a"), putText("name", name))
			must(t, err)
		}
		must(t, users.ReleaseHeld(ctx, "name", "Augusta"))
		history, err := users.History(ctx, hints.UID("a"))
		if must(t, err); history[0].Kind != userdb.EventRelease || !slices.Equal(history[0].Fields, []string{"name"}) {
			t.Errorf("the last event after a release is %+v, want a release of name", history[0])
		}
		must(t, users.Delete(ctx, hints.UID("a")))
		add(t, users, "a", "name", "Countess") // the tombstone held it
		must(t, users.Delete(ctx, hints.UID("a"), userdb.ReleaseAtOnce()))
		for _, text := range []string{"Ada", "Augusta", "Countess"} {
			_, err := users.FindHeld(ctx, "name", text)
			wantErr(t, text+" after the delete", err, userdb.ErrNotFound)
			s.wantFree(users, true, "name", text)
		}
	})
}

// TestReleaseHeldOnce checks that if many callers release a value of a deleted entry, exactly one
// of them succeeds.
func TestReleaseHeldOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := typeOf(t, s.open(userdb.Options{Schema: holdingSchema(time.Hour)}), "user")
		for round := range 10 {
			uid := fmt.Sprint("u", round)
			add(t, users, uid, "name", uid)
			must(t, users.Delete(t.Context(), hints.UID(uid)))
			const callers = 16
			results := make(chan error, callers)
			for range callers {
				go func() { results <- users.ReleaseHeld(t.Context(), "name", uid) }()
			}
			released := 0
			for range callers {
				if err := <-results; err == nil {
					released++
				} else {
					wantErr(t, "releasing what another one released", err, userdb.ErrNotFound)
				}
			}
			if released != 1 {
				t.Errorf("%d of %d callers released the value, want 1", released, callers)
			}
		}
	})
}

// TestReleaseHeldMeanwhile checks that a release frees the value even if, between its steps, the
// entry that holds the value is deleted or created again.
func TestReleaseHeldMeanwhile(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		users := typeOf(t, s.open(userdb.Options{Schema: holdingSchema(time.Hour)}), "user")
		add(t, users, "a", "name", "Ada")
		_, err := users.Update(ctx, hints.UID("a"), putText("name", "Augusta"))
		must(t, err)
		remove := func() { must(t, users.Delete(ctx, hints.UID("a"))) }
		create := func() { add(t, users, "a", "name", "Ann") }
		for _, step := range []struct {
			name      string
			meanwhile func()
		}{{"Ada", remove}, {"Augusta", create}} {
			s.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				if isWrite(cmds) {
					s.tap.set(nil)
					step.meanwhile()
				}
				return send()
			})
			must(t, users.ReleaseHeld(ctx, "name", step.name))
			s.tap.set(nil)
			s.wantFree(users, true, "name", step.name)
		}
	})
}

// TestReleaseHeldRefused checks that a release succeeds once it has freed the value, even if later
// writes of the call fail: ErrUnavailable would promise that nothing has changed.
func TestReleaseHeldRefused(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		users := typeOf(t, s.open(userdb.Options{Schema: holdingSchema(time.Hour)}), "user")
		add(t, users, "a", "name", "Ada")
		must(t, users.Delete(ctx, hints.UID("a")))
		freed, refused := false, 0
		s.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			name := strings.ToLower(cmds[0].Name())
			if freed && (name == "evalsha" || name == "eval") {
				refused++
				err := errors.New("NOPERM no right to this command")
				cmds[0].SetErr(err)
				return err
			}
			err := send()
			last := cmds[0].Args()[len(cmds[0].Args())-1]
			freed = freed || err == nil && argument(last) == "~held:name:ada"
			return err
		})
		must(t, users.ReleaseHeld(ctx, "name", "Ada"))
		s.tap.set(nil)
		if refused == 0 {
			t.Error("nothing was refused after the value was freed")
		}
		s.wantFree(users, true, "name", "ada")
	})
}

// TestHeldMany renames an entry in a loop, and checks that only its last 16 names are held. The
// names sort in the order of the changes, because holds that end in the same millisecond are
// dropped in the order of their names.
func TestHeldMany(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		users := typeOf(t, s.open(userdb.Options{Schema: holdingSchema(time.Hour)}), "user")
		add(t, users, "a", "name", "n10")
		for i := range 20 {
			_, err := users.Update(ctx, hints.UID("a"), putText("name", fmt.Sprint("n", i+11)))
			must(t, err)
		}
		e, err := users.Find(ctx, hints.UID("a"))
		must(t, err)
		var held []string
		for _, h := range e.HeldValues() {
			held = append(held, h.Value)
		}
		slices.Sort(held)
		if len(held) != 16 || slices.Contains(held, "n13") || !slices.Contains(held, "n14") {
			t.Errorf("%d values are held, want the last 16: %q", len(held), held)
		}
		s.wantFree(users, true, "code", "n13")
		s.wantFree(users, false, "code", "n14")
	})
}

// A heldModel says which values entries must have, and which must be held. Only names are held.
type heldModel struct {
	names map[string][]string // by UID
	codes map[string]string   // by UID
	held  map[string]string   // the UID that holds a name
}

// mayHave reports whether an entry may have a value in some field.
func (m heldModel) mayHave(uid, text string) bool {
	if by := m.held[text]; by != "" && by != uid {
		return false
	}
	for other, names := range m.names {
		if other != uid && (slices.Contains(names, text) || m.codes[other] == text) {
			return false
		}
	}
	return true
}

// setValues replaces the values of an entry with names and code.
func (m heldModel) setValues(uid string, names []string, code string) {
	before := m.names[uid]
	m.names[uid], m.codes[uid] = names, code
	for _, text := range names {
		if !slices.Contains(before, text) {
			delete(m.held, text)
		}
	}
	for _, text := range before {
		if !slices.Contains(names, text) && code != text {
			m.held[text] = uid
		}
	}
}

// TestHeldLaws makes random changes of few entries with few values, and compares each answer with a
// model: no value that an entry has or holds is given to another one, until the hold ends or is
// released.
func TestHeldLaws(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx, rnd := t.Context(), rand.New(rand.NewPCG(3, uint64(len(s.url))))
		users := typeOf(t, s.open(userdb.Options{Schema: holdingSchema(time.Hour)}), "user")
		m := heldModel{map[string][]string{}, map[string]string{}, map[string]string{}}
		texts, counts := []string{"a", "b", "c", "d", "e", "f"}, map[string]int{}
		steps := 400
		if !s.has(cheapWrites) || testing.Short() {
			steps = 100
		}
		for step := range steps {
			uid, text := []string{"u", "v", "w"}[rnd.IntN(3)], texts[rnd.IntN(len(texts))]
			names, lives := m.names[uid]
			code := m.codes[uid]
			what, err, want := "", error(nil), error(nil)
			switch rnd.IntN(9) {
			case 8:
				what = "end of " + text
				if by := m.held[text]; by != "" { // as if the time had passed
					s.command("hset", "user/uid:"+by, "~held:name:"+text, "1")
					delete(m.held, text)
				}
			case 0, 1:
				what = "create " + text
				n := userdb.NewEntry{UID: uid, Facets: schema.Texts("name", text)}
				_, err = users.Create(ctx, n)
				if want = userdb.ErrDuplicate; !lives && m.mayHave(uid, text) {
					want = nil
					m.setValues(uid, []string{text}, "")
				}
			case 2:
				what = "delete"
				err = users.Delete(ctx, hints.UID(uid))
				if want = userdb.ErrNotFound; lives {
					want = nil
					m.setValues(uid, nil, "")
					delete(m.names, uid)
					delete(m.codes, uid)
				}
			case 3:
				what = "release " + text
				err = users.ReleaseHeld(ctx, "name", text)
				if want = userdb.ErrNotFound; m.held[text] != "" {
					want = nil
					delete(m.held, text)
				}
			default:
				next, nextCode := slices.Clone(names), code
				at, other := slices.Index(names, text), texts[rnd.IntN(len(texts))]
				how := rnd.IntN(7)
				what = fmt.Sprint("edit ", how, " ", text)
				_, err = users.Update(ctx, hints.UID(uid), func(e *userdb.Entry) error {
					switch how {
					case 0:
						e.AddText("name", text)
					case 1:
						e.DropText("name", text)
					case 2:
						e.PutFirst("name", text)
					case 3:
						e.Put("code", schema.Text(text))
					case 4:
						e.Drop("code")
					case 5: // the first name is replaced
						e.Put("name", schema.Text(text))
					case 6: // one name is exchanged for another
						e.DropText("name", other)
						e.AddText("name", text)
					}
					return nil
				})
				switch {
				case how == 5:
					rest := slices.DeleteFunc(next[min(1, len(next)):], func(name string) bool { return name == text })
					next = append([]string{text}, rest...)
				case how == 6:
					next = slices.DeleteFunc(next, func(name string) bool { return name == other })
					if !slices.Contains(next, text) {
						next = append(next, text)
					}
				case how == 0 && at < 0:
					next = append(next, text)
				case how == 1 && at >= 0:
					next = slices.Delete(next, at, at+1)
				case how == 2:
					if at >= 0 {
						next = slices.Delete(next, at, at+1)
					}
					next = append([]string{text}, next...)
				case how == 3:
					nextCode = text
				case how == 4:
					nextCode = ""
				}
				switch {
				case !lives:
					want = userdb.ErrNotFound
				case len(next) > 3:
					want = userdb.ErrInvalid
				case how != 1 && how != 4 && !m.mayHave(uid, text):
					want = userdb.ErrDuplicate
				default:
					m.setValues(uid, next, nextCode)
				}
			}
			if !errors.Is(err, want) {
				t.Fatalf("step %d, %s of %s: got %v, want %v; %+v", step, what, uid, err, want, m)
			}
			counts[fmt.Sprint(want)]++
		}
		t.Logf("%v", counts)
		s.inspect(t)
		held := map[string]string{}
		for key, r := range s.dump(ctx) {
			for name, end := range r.fields {
				text, ok := strings.CutPrefix(name, "~held:name:")
				uid := strings.TrimPrefix(key, "user/uid:")
				// An entry that was created again may have the value again.
				if ok && end != "1" && !slices.Contains(m.names[uid], text) {
					held[text] += uid
				}
			}
		}
		if !maps.Equal(held, m.held) {
			t.Errorf("the store holds %v, want %v", held, m.held)
		}
	})
}
