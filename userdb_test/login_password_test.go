package userdb_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestDisable checks that a disabled entry can be read, says that it is disabled, and cannot log in
// until it is enabled again.
func TestDisable(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		secret, err := g.users.Issue(ctx, uid("alice"), userdb.Token{Purpose: "login"})
		must(t, err)
		for range 2 { // the second call changes nothing
			must(t, g.users.Disable(ctx, uid("alice")))
		}
		e, err := g.users.Find(ctx, uid("alice"))
		must(t, err)
		if !e.Disabled() || e.Text("name") != "alice" {
			t.Errorf("got disabled %v, entry %v; want a disabled alice", e.Disabled(), e)
		}
		since := g.storedField("alice", "~disabled")
		wantErr(t, "login", g.logIn("alice", alicePassword, ""), userdb.ErrLogin)
		wantErr(t, "change", errOf(g.users.ChangePassword(ctx, uid("alice"), alicePassword, "another horse", userdb.Attempt{})), userdb.ErrLogin)
		must(t, errOf(g.users.SetPassword(ctx, uid("alice"), alicePassword)))
		wantErr(t, "login with a new password", g.logIn("alice", alicePassword, ""), userdb.ErrLogin)
		if got := g.storedField("alice", "~disabled"); got != since || since == "" {
			t.Errorf("disabled since %q, and then since %q; want the same time", since, got)
		}
		for range 2 {
			must(t, g.users.Enable(ctx, uid("alice")))
		}
		must(t, g.logIn("alice", alicePassword, ""))
		if _, _, err := g.users.Redeem(ctx, "login", secret); !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("a token from before the disable: got %v, want ErrNotFound", err)
		}
		for what, err := range map[string]error{
			"disable": g.users.Disable(ctx, uid("nobody")), "enable": g.users.Enable(ctx, uid("nobody")),
			"set": errOf(g.users.SetPassword(ctx, uid("nobody"), alicePassword)),
		} {
			wantErr(t, what, err, userdb.ErrNotFound)
		}
	})
}

// TestSetPassword sets the first password of one entry, replaces that of another three times, and
// checks the time of each change.
func TestSetPassword(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.add("bare", "")
		var last time.Time
		for _, name := range []string{"bare", "alice", "alice", "alice"} {
			must(t, errOf(g.users.SetPassword(t.Context(), uid(name), "battery staple "+name)))
			must(t, g.logIn(name, "battery staple "+name, ""))
			e, err := g.users.Find(t.Context(), uid(name))
			must(t, err)
			if name == "alice" && !e.PasswordChanged().After(last) {
				t.Errorf("changed at %v, want a time after the change before, at %v", e.PasswordChanged(), last)
			}
			if last = e.PasswordChanged(); last.IsZero() {
				t.Error("the time of the change is missing")
			}
		}
		wantErr(t, "the first password", g.logIn("alice", alicePassword, ""), userdb.ErrLogin)
		_, err := g.users.Update(t.Context(), uid("alice"), putText("job", "cook"))
		must(t, err)
		e, err := g.users.Find(t.Context(), uid("alice"))
		must(t, err)
		if !e.PasswordChanged().Equal(last) {
			t.Errorf("changing a facet moved the time of the password change from %v to %v", last, e.PasswordChanged())
		}
	})
}

// TestSpacesAndCase checks that passwords are neither trimmed nor folded, but are accepted in
// either Unicode form, whichever they were set in.
func TestSpacesAndCase(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		const composed = " Åsa's Horse\t"
		must(t, errOf(g.users.SetPassword(t.Context(), uid("alice"), composed)))
		for _, near := range []string{"Åsa's Horse", " åsa's horse\t", " Asa's Horse\t", composed + " "} {
			wantErr(t, near, g.logIn("alice", near, ""), userdb.ErrLogin)
		}
		const decomposed = " A\u030asa's Horse\t"
		must(t, g.logIn("alice", composed, ""))
		must(t, g.logIn("alice", decomposed, ""))
		must(t, errOf(g.users.ChangePassword(t.Context(), uid("alice"), decomposed, decomposed+"!", userdb.Attempt{})))
		must(t, g.logIn("alice", composed+"!", ""))
	})
}

// policyCases lists passwords, the rule of the policy that each breaks, if any, and the error text.
var policyCases = []struct{ password, rule, text string }{
	{"", "min", "password refused: it is empty"},
	{"sevench", "min", "password refused: 7 characters are fewer than 8"},
	{"öäüößén", "min", "password refused: 7 characters are fewer than 8"},
	{"password1", "blocklist", "password refused: it is one of the most common passwords, which are tried first"},
	{"PassWord1", "blocklist", "password refused: it is one of the most common passwords, which are tried first"},
	{"carol.longname", "identifier", "password refused: it is a name, address or other identifier of its owner"},
	{"Carol.LongName@example.com", "identifier", "password refused: it is a name, address or other identifier of its owner"},
	{"uid-of-carol", "identifier", "password refused: it is a name, address or other identifier of its owner"},
	{"a very longname", "", ""},
	{"12341234567", "strength", "password refused: its strength 1 is less than 3: add another word or two, preferably unusual"},
	{"the quick brown fox jumps over thirteen lazy dogs while it rains, twice a day", "max", "password refused: over 72 bytes"},
}

// TestPolicy checks that Create, SetPassword and ChangePassword apply the same policy.
func TestPolicy(t *testing.T) {
	s := schema.User()
	s.Types["user"].Password.Strength = 3
	o := loginOptions()
	o.Schema = s
	eachLoginSite(t, o, func(t *testing.T, g *loginSite) {
		facets := schema.Texts("name", "carol.longname", "email", "carol.longname@example.com")
		for _, tt := range policyCases {
			if tt.password != "" {
				_, err := g.users.Create(t.Context(), userdb.NewEntry{UID: "uid-of-carol", Facets: facets, Password: tt.password})
				wantRule(t, "create", tt.password, err, tt.rule, tt.text)
				if err == nil {
					must(t, g.users.Delete(t.Context(), uid("uid-of-carol")))
				}
			}
		}
		_, err := g.users.Create(t.Context(), userdb.NewEntry{UID: "uid-of-carol", Facets: facets, Password: alicePassword})
		must(t, err)
		now := alicePassword
		for _, tt := range policyCases {
			err := errOf(g.users.SetPassword(t.Context(), uid("uid-of-carol"), tt.password))
			wantRule(t, "set", tt.password, err, tt.rule, tt.text)
			if err == nil {
				now = tt.password
			}
			err = errOf(g.users.ChangePassword(t.Context(), uid("uid-of-carol"), now, tt.password, userdb.Attempt{}))
			wantRule(t, "change", tt.password, err, tt.rule, tt.text)
		}
	})
}

func wantRule(t *testing.T, method, pw string, err error, rule, text string) {
	t.Helper()
	var got password.PolicyError
	if p := (*password.PolicyError)(nil); errors.As(err, &p) {
		got = *p
	}
	if got.Rule != rule || rule == "" && err != nil || rule != "" && err.Error() != text {
		t.Errorf("%s %q: rule %q, %v; want %q, %q", method, pw, got.Rule, err, rule, text)
	}
}

// TestPolicyOfOriginal checks that the options.json of the npm package coffeenode-userdb allows
// every password that is not empty and fits into bcrypt's 72 bytes.
func TestPolicyOfOriginal(t *testing.T) {
	o := loginOptions()
	o.Schema = originalSchema(t)
	eachLoginSite(t, o, func(t *testing.T, g *loginSite) {
		for _, pw := range []string{"a", "alice", "password", "12345678"} {
			must(t, errOf(g.users.SetPassword(t.Context(), uid("alice"), pw)))
			must(t, g.logIn("alice", pw, ""))
		}
		wantRule(t, "set", "", errOf(g.users.SetPassword(t.Context(), uid("alice"), "")), "min", "password refused: it is empty")
		err := errOf(g.users.SetPassword(t.Context(), uid("alice"), strings.Repeat("x", 73)))
		wantRule(t, "set", "73 bytes", err, "max", "password refused: over 72 bytes")
	})
}

// TestChangePassword checks that ChangePassword requires the old password, and throttles wrong ones
// as Login does.
func TestChangePassword(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		change := func(old, pw, origin string) error {
			return errOf(g.users.ChangePassword(t.Context(), uid("alice"), old, pw, userdb.Attempt{Origin: origin}))
		}
		must(t, change(alicePassword, "battery staple", "home"))
		must(t, g.logIn("alice", "battery staple", "home"))
		for range freeFailures {
			wantErr(t, "a wrong old password", change(alicePassword, "horse horse horse", ""), userdb.ErrLogin)
		}
		if wait, err := waitOf(change("battery staple", "horse horse horse", "")); wait == 0 {
			t.Errorf("after %d wrong passwords: got %v, want a wait", freeFailures, err)
		}
		if wait, err := waitOf(g.logIn("alice", "battery staple", "")); wait == 0 {
			t.Errorf("a login after the wrong passwords: got %v, want a wait", err)
		}
		must(t, change("battery staple", "horse horse horse", "home"))
		must(t, g.logIn("alice", "horse horse horse", ""))
		wantErr(t, "an unknown account", errOf(g.users.ChangePassword(t.Context(), uid("nobody"), "x", "y", userdb.Attempt{})), userdb.ErrNotFound)
	})
}

// TestPasswordsDoNotAge checks that a password stays valid however old it is.
func TestPasswordsDoNotAge(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.advance(30 * 365 * 24 * time.Hour)
		must(t, g.logIn("alice", alicePassword, "home"))
	})
}

// TestNoAccountsByDefault checks that a new store has no accounts, and that a schema can reserve
// names.
func TestNoAccountsByDefault(t *testing.T) {
	s := schema.User()
	name := s.Types["user"].Fields["name"]
	name.Reserved = []string{"admin"}
	s.Types["user"].Fields["name"] = name
	eachStore(t, func(t *testing.T, site *site) {
		users := typeOf(t, site.open(userdb.Options{Schema: s}), "user")
		n, err := users.Count(t.Context(), userdb.Query{})
		must(t, err)
		if n.Entries != 0 {
			t.Errorf("a new store has %d entries, want none", n.Entries)
		}
		_, err = users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", "Admin"), Password: alicePassword})
		wantField(t, "a reserved name", err, userdb.ErrInvalid, "name")
	})
}

// TestParallelChanges changes a password many times at once. Exactly one change must succeed.
func TestParallelChanges(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		for round := range 5 {
			old := g.current(round)
			var wg sync.WaitGroup
			var mu sync.Mutex
			var won []string
			for i := range 6 {
				next := g.current(round+1) + strings.Repeat("!", i)
				wg.Go(func() {
					err := errOf(g.users.ChangePassword(t.Context(), uid("alice"), old, next, userdb.Attempt{Origin: "home"}))
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						won = append(won, next)
					} else if !errors.Is(err, userdb.ErrConflict) && !errors.Is(err, userdb.ErrLogin) {
						t.Errorf("a concurrent change: %v", err)
					}
				})
			}
			wg.Wait()
			if len(won) != 1 {
				t.Fatalf("%d changes succeeded, want one", len(won))
			}
			must(t, g.logIn("alice", won[0], "home"))
			must(t, errOf(g.users.SetPassword(t.Context(), uid("alice"), g.current(round+1))))
		}
	})
}

// current returns alice's password in a round.
func (g *loginSite) current(round int) string {
	if round == 0 {
		return alicePassword
	}
	return "battery staple " + strings.Repeat("x", round)
}

// TestUnconfirmed checks that changes that no replica confirms in time are still made and reported
// as events.
func TestUnconfirmed(t *testing.T) {
	o := loginOptions()
	o.Replicas, o.ReplicaTimeout = 1000, time.Millisecond
	eachStore(t, func(t *testing.T, s *site) {
		s.needs(ownProcess)
		g := newLoginSite(s, o)
		_, err := g.users.Create(t.Context(), userdb.NewEntry{UID: "alice", Facets: schema.Texts("name", "alice"), Password: alicePassword})
		if !errors.Is(err, userdb.ErrUnconfirmed) {
			t.Fatalf("create: got error %v, want ErrUnconfirmed", err)
		}
		g.storeField("alice", "password", "bcrypt$"+bcryptOf(t, "b", 4, alicePassword))
		must(t, g.logIn("alice", alicePassword, ""))
		secret := g.issue(userdb.Token{Purpose: "change:email", Value: "new@example.com"})
		e, _, err := g.users.Redeem(t.Context(), "change:email", secret)
		wantErr(t, "redeem", err, userdb.ErrUnconfirmed)
		if e.Text("email") != "new@example.com" {
			t.Errorf("Redeem returned %v, want the new address", e)
		}
		wantErr(t, "set", errOf(g.users.SetPassword(t.Context(), uid("alice"), "brand new horse")), userdb.ErrUnconfirmed)
		must(t, g.logIn("alice", "brand new horse", ""))
		wantErr(t, "disable", g.users.Disable(t.Context(), uid("alice")), userdb.ErrUnconfirmed)
		var got []string
		for _, e := range g.takeEvents() {
			got = append(got, string(e.Kind))
		}
		if want := "create login issue update identifier redeem password login disable"; strings.Join(got, " ") != want {
			t.Errorf("events %q, want %s", got, want)
		}
	})
}

// TestDisableOfMovedIdentifier moves an identifier to another entry after Disable has read the
// entry that had it before. Disable must still disable the entry that it read.
func TestDisableOfMovedIdentifier(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		_, err := g.users.Update(t.Context(), uid("alice"), putText("email", "a@example.com"))
		must(t, err)
		g.onClock = func() {
			g.onClock = nil
			_, err := g.users.Update(t.Context(), uid("alice"), putText("email", "b@example.com"))
			must(t, err)
			_, err = g.users.Create(t.Context(), userdb.NewEntry{UID: "bob", Facets: schema.Texts("email", "a@example.com")})
			must(t, err)
		}
		must(t, g.users.Disable(t.Context(), hints.Field("email", "a@example.com")))
		for id, want := range map[string]bool{"alice": true, "bob": false} {
			e, err := g.users.Find(t.Context(), uid(id))
			must(t, err)
			if e.Disabled() != want {
				t.Errorf("%s is disabled: %v, want %v", id, e.Disabled(), want)
			}
		}
	})
}

// TestDisabledInJSONAndQueries checks that the JSON of a disabled entry says so, and that every
// kind of query can select disabled entries.
func TestDisabledInJSONAndQueries(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		sch := schema.User()
		sch.Types["user"].Fields["age"] = schema.Field{Role: schema.RoleOrdered, Codec: schema.CodecNumber}
		sch.Types["user"].Fields["job"] = schema.Field{Role: schema.RoleIndexed}
		typ := typeOf(t, s.open(userdb.Options{Schema: sch}), "user")
		var on, off []string
		for i := range 20 {
			id := fmt.Sprintf("u%02d", i)
			_, err := typ.Create(t.Context(), userdb.NewEntry{UID: id, Tags: []string{"t"}, Facets: schema.Facets{
				"name": schema.Text(id), "age": schema.Number(float64(i)), "job": schema.Text("cook"),
			}})
			must(t, err)
			if i%3 > 0 {
				on = append(on, id)
				continue
			}
			off = append(off, id)
			must(t, typ.Disable(t.Context(), uid(id)))
		}
		for name, q := range map[string]userdb.Query{
			"all": {}, "by index": {Where: schema.Texts("job", "cook")}, "by tag": {Tags: []string{"t"}},
			"ordered": {Order: "age"}, "reversed": {Order: "age", Reverse: true},
		} {
			for disabled, want := range map[bool][]string{false: on, true: off} {
				q.Disabled, q.Limit, q.After = &disabled, 0, ""
				if got := allAndPaged(t, typ, q); !slices.Equal(got, want) {
					t.Errorf("%s, disabled %v: %q, want %q", name, disabled, got, want)
				}
			}
		}
		for id, want := range map[string]bool{"u00": true, "u01": false} {
			e, err := typ.Find(t.Context(), uid(id))
			must(t, err)
			text, err := json.Marshal(e)
			must(t, err)
			var flat map[string]any
			must(t, json.Unmarshal(text, &flat))
			if got, ok := flat["~disabled"]; ok != want || want && got != true || flat["name"] != id {
				t.Errorf("got JSON %s, want ~disabled %v and name %s", text, want, id)
			}
			disabled := true
			if got := allAndPaged(t, typ, userdb.Query{Where: schema.Texts("name", id), Disabled: &disabled}); len(got) == 1 != want {
				t.Errorf("disabled entries named %s: got %q, want it listed: %v", id, got, want)
			}
		}
	})
}

// allAndPaged returns the UIDs that All yields, sorted and without duplicates, and checks that
// pages of three have the same.
func allAndPaged(t *testing.T, typ *userdb.Type, q userdb.Query) []string {
	t.Helper()
	var all, paged []string
	for e, err := range typ.All(t.Context(), q) {
		must(t, err)
		all = append(all, e.UID())
	}
	q.Limit = 3
	for more := true; more; more = q.After != "" {
		page, err := typ.Page(t.Context(), q)
		must(t, err)
		for _, e := range page.Entries {
			paged = append(paged, e.UID())
		}
		q.After = page.Next
	}
	slices.Sort(all)
	slices.Sort(paged)
	// A listing can return an entry twice if the server's hash tables grow meanwhile.
	all, paged = slices.Compact(all), slices.Compact(paged)
	if !slices.Equal(all, paged) {
		t.Errorf("All yields %q, pages have %q; want the same", all, paged)
	}
	return all
}
