package userdb_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// editAlice changes alice.
func (g *loginSite) editAlice(edit func(e *userdb.Entry)) userdb.Entry {
	g.t.Helper()
	e, err := g.users.Update(g.t.Context(), uid("alice"), func(e *userdb.Entry) error { edit(e); return nil })
	must(g.t, err)
	return e
}

// verify adds an address to alice, or marks it as verified, as its owner does.
func (g *loginSite) verify(address string) {
	g.t.Helper()
	secret := g.issue(userdb.Token{Purpose: userdb.PurposeAdd + "email", Value: address})
	must(g.t, errOf3(g.users.Redeem(g.t.Context(), userdb.PurposeAdd+"email", secret)))
}

// wantEmails checks the addresses of alice.
func (g *loginSite) wantEmails(why string, want ...string) {
	g.t.Helper()
	if texts := g.find("alice").Texts("email"); !slices.Equal(texts, want) {
		g.t.Errorf("%s: alice has %q, want %q", why, texts, want)
	}
}

// wantLogin checks that alice can log in with an identifier, or that she cannot if want is false.
// Either way, one hash must be computed.
func (g *loginSite) wantLogin(why, identifier string, want bool) {
	g.t.Helper()
	own, other := g.countHashes(func() {
		err := g.logIn(identifier, alicePassword, "")
		if want != (err == nil) || !want && !errors.Is(err, userdb.ErrLogin) {
			g.t.Errorf("%s: logging in as %s: %v, want success: %v", why, identifier, err, want)
		}
	})
	if own+other != 1 {
		g.t.Errorf("%s: logging in as %s computed %d and %d hashes, want one", why, identifier, own, other)
	}
}

// wantSent checks the address that a secret is sent to for a visitor who types an identifier. If
// want is "", no secret may be issued, neither for the visitor nor for the application.
func (g *loginSite) wantSent(why, entered, want string) {
	g.t.Helper()
	ctx, purpose := g.t.Context(), why+" "+entered
	_, address, err := g.users.IssueForVisitor(ctx, "email", entered, userdb.Token{Purpose: purpose}, userdb.Attempt{})
	if want == "" {
		wantErr(g.t, purpose, err, userdb.ErrNotFound)
		_, _, err = g.users.IssueFor(ctx, uid("alice"), "email", userdb.Token{Purpose: purpose})
		wantField(g.t, purpose, err, userdb.ErrInvalid, "email")
		return
	}
	if err != nil || address != want {
		g.t.Errorf("%s: the secret of %s is sent to %q, %v; want %s", why, entered, address, err, want)
	}
}

// TestManyChangeToken checks that a token that changes the first value is void when another value
// becomes the first, even if the entry keeps the earlier one.
func TestManyChangeToken(t *testing.T) {
	const purpose, first, work = userdb.PurposeChange + "email", "alice@example.com", "alice@work.example"
	for what, issue := range map[string]func(g *loginSite, value string) (string, error){
		"Issue": func(g *loginSite, value string) (string, error) {
			return g.users.Issue(g.t.Context(), uid("alice"), userdb.Token{Purpose: purpose, Value: value})
		},
		"Issue with Field": func(g *loginSite, value string) (string, error) {
			return g.users.Issue(g.t.Context(), uid("alice"), userdb.Token{Purpose: purpose, Value: value, Field: "name"})
		},
		"IssueFor": func(g *loginSite, value string) (string, error) {
			secret, address, err := g.users.IssueFor(g.t.Context(), uid("alice"), "email", userdb.Token{Purpose: purpose, Value: value})
			if address != first {
				g.t.Errorf("the secret is sent to %s, want %s", address, first)
			}
			return secret, err
		},
	} {
		t.Run(what, func(t *testing.T) {
			eachLoginSite(t, manyLogins(), func(t *testing.T, g *loginSite) {
				g.verify(first)
				g.editAlice(func(e *userdb.Entry) { e.AddText("email", work) })
				secret, err := issue(g, "new@example.com")
				must(t, err)
				g.editAlice(func(e *userdb.Entry) { e.PutFirst("email", work) })
				g.wantVoid("another value is the first", purpose, secret)
				g.wantEmails("after a void token", work, first)
				g.editAlice(func(e *userdb.Entry) { e.PutFirst("email", first) })
				g.wantVoid("the value is the first again", purpose, secret)

				secret, err = issue(g, "new@example.com")
				must(t, err)
				g.editAlice(func(e *userdb.Entry) { e.AddText("email", "alice@home.example") })
				g.wantRedeem(purpose, secret, "new@example.com")
				g.wantEmails("after a change", "new@example.com", work, "alice@home.example")
			})
		})
	}
}

// TestManyFirstGoes checks which value becomes the first when the first is removed, and that an
// unverified value gains nothing by that.
func TestManyFirstGoes(t *testing.T) {
	const work, home, club = "alice@work.example", "alice@home.example", "alice@club.example"
	eachLoginSite(t, manyLogins(), func(t *testing.T, g *loginSite) {
		g.editAlice(func(e *userdb.Entry) {
			e.AddText("email", work)
			e.AddText("email", home)
			e.SetTexts("invoice", "2026-1", "2026-2")
		})
		g.wantLogin("the first value was never verified", "alice@example.com", true)
		g.verify(home)
		g.verify(club)
		e := g.editAlice(func(e *userdb.Entry) {
			e.DropText("email", "alice@example.com")
			e.DropText("invoice", "2026-1")
		})
		g.wantEmails("the first value goes", home, work, club)
		if !e.Verified("email") {
			t.Error("the mark of verification has not moved with its value")
		}
		g.wantLogin("a verified value became the first", home, true)
		g.wantLogin("not an address", "2026-2", true)

		e = g.editAlice(func(e *userdb.Entry) { e.PutFirst("email", work) })
		if e.Verified("email") || e.VerifiedText("email", work) {
			t.Error("a value is verified because it is the first")
		}
		g.wantLogin("put first without a proof", work, false)
		g.wantLogin("verified, and not the first", home, true)
		for entered, want := range map[string]string{work: home, "alice": home, club: club} {
			g.wantSent("put first without a proof", entered, want)
		}
		secret, address, err := g.users.IssueFor(t.Context(), uid("alice"), "email", userdb.Token{Purpose: "verify"})
		must(t, err)
		if address != home {
			t.Errorf("IssueFor sends the secret to %s, want %s", address, home)
		}
		g.wantRedeem("verify", secret, "")

		// Only a verification lets her log in with the address. Another spelling does not, and
		// neither does the loss of the other values.
		g.editAlice(func(e *userdb.Entry) { e.DropText("email", home); e.DropText("email", club) })
		for _, spelling := range []string{work, "Alice@work.example", "alice@WORK.example"} {
			g.editAlice(func(e *userdb.Entry) { e.Put("email", schema.Text(spelling)) })
			g.wantEmails("spelled differently", spelling)
			g.wantLogin("spelled differently", work, false)
			g.wantSent("spelled "+spelling, work, "")
		}
		g.wantSent("another identifier", "alice", "")
		i, err := g.users.Invite(t.Context(), "email", work, userdb.Token{}, userdb.Attempt{})
		if err != nil || i.Address != work || !i.Registered {
			t.Errorf("an invitation to the address as it was entered: got %+v, %v; want it sent to %s, which is registered", i, err, work)
		}
		s, err := g.users.LoginStatus(t.Context(), uid("alice"))
		must(t, err)
		if s.Identifiers != 2 { // the name and the invoice
			t.Errorf("%d identifiers can log in, want 2", s.Identifiers)
		}
		g.verify(work)
		g.wantEmails("verified", work)
		g.wantLogin("verified", work, true)
		g.wantSent("verified", "alice", work)

		// A new value is an ordinary first value, as in a field with one value.
		g.editAlice(func(e *userdb.Entry) { e.Put("email", schema.Text(club)) })
		g.wantLogin("replaced", club, true)
		g.wantSent("replaced", "alice", club)
		g.editAlice(func(e *userdb.Entry) { e.AddText("email", home) })
		g.editAlice(func(e *userdb.Entry) { e.Put("email", schema.Text(home)) })
		g.wantLogin("replaced by a further value", home, false)
		g.editAlice(func(e *userdb.Entry) { e.Put("email", schema.Text(work)) })
		g.wantLogin("replaced again", work, true)

		g.editAlice(func(e *userdb.Entry) { e.AddText("email", home) })
		g.editAlice(func(e *userdb.Entry) { e.PutFirst("email", home) })
		g.wantLogin("put first without a proof again", home, false)
		g.editAlice(func(e *userdb.Entry) { e.Put("email", schema.Text("new@example.com")) })
		if mark := g.storedField("alice", store.FieldVerified("email")); mark != "" {
			t.Errorf("the mark %q is left after its value was replaced", mark)
		}
	})
}

// TestManyRepairedFirst checks which value a repair makes the first if the first one is missing, or
// if another entry keeps it: a verified one if there is one. Nobody can log in with an unverified
// one.
func TestManyRepairedFirst(t *testing.T) {
	const work, home = "alice@work.example", "alice@home.example"
	bob, _ := recordkey.PRK("user", "uid", "bob")
	for what, loss := range map[string]struct {
		do      func(g *loginSite)
		options check.Options
	}{
		"the first value is missing": {func(g *loginSite) {
			must(g.t, g.raw.HDel(g.t.Context(), "user/uid:alice", "email").Err())
		}, check.Options{Repair: true}},
		"another entry keeps it": {func(g *loginSite) {
			g.storeField("bob", "email", "alice@example.com")
		}, check.Options{Repair: true, Keep: []recordkey.Key{bob}}},
	} {
		for _, verified := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, another is verified: %v", what, verified), func(t *testing.T) {
				eachLoginSite(t, manyLogins(), func(t *testing.T, g *loginSite) {
					g.add("bob", alicePassword)
					g.verify("alice@example.com")
					g.editAlice(func(e *userdb.Entry) { e.AddText("email", work); e.AddText("email", home) })
					want := []string{work, home}
					if verified {
						g.verify(home)
						want = []string{home, work}
					}
					loss.do(g)
					for _, err := range check.Run(store.WithoutOtherWriters(t.Context()), g.db, loss.options) {
						must(t, err)
					}
					g.wantEmails("repaired", want...)
					if e := g.find("alice"); e.Verified("email") != verified {
						t.Errorf("after the repair the first value is verified: %v, want %v", e.Verified("email"), verified)
					}
					g.wantLogin("repaired", want[0], verified)
					g.wantLogin("not verified", work, false)
				})
			})
		}
	}
}

// TestManyLeftover checks that a further value that only repeats the first, because a server
// refused to remove it, does not come back when the first changes.
func TestManyLeftover(t *testing.T) {
	const work = "alice@work.example"
	for what, tt := range map[string]struct {
		edit func(e *userdb.Entry)
		want []string
	}{
		"the first is replaced":     {func(e *userdb.Entry) { e.Put("email", schema.Text("new@example.com")) }, []string{"new@example.com", work}},
		"the first goes":            {func(e *userdb.Entry) { e.DropText("email", "alice@example.com") }, []string{work}},
		"another is put first":      {func(e *userdb.Entry) { e.PutFirst("email", work) }, []string{work, "alice@example.com"}},
		"a further one replaces it": {func(e *userdb.Entry) { e.Put("email", schema.Text(work)) }, []string{work}},
		"another field changes":     {func(e *userdb.Entry) { e.Put("name", schema.Text("al")) }, []string{"alice@example.com", work}},
		"all values go":             {func(e *userdb.Entry) { e.Drop("email") }, nil},
		"the first is spelled anew": {func(e *userdb.Entry) { e.Put("email", schema.Text("Alice@example.com")) }, []string{"Alice@example.com", work}},
		"a new value replaces all":  {func(e *userdb.Entry) { e.Drop("email"); e.AddText("email", "new@example.com") }, []string{"new@example.com"}},
	} {
		t.Run(what, func(t *testing.T) {
			eachLoginSite(t, manyLogins(), func(t *testing.T, g *loginSite) {
				g.editAlice(func(e *userdb.Entry) { e.AddText("email", work) })
				leftover := store.FieldAlso("email", "alice@example.com")
				g.storeField("alice", leftover, "-1 7 -")
				e := g.editAlice(tt.edit)
				g.wantEmails(what, tt.want...)
				if e.VerifiedText("email", "alice@example.com") {
					t.Error("a value is verified by the leftover")
				}
				at := indexOfValue(tt.want, "alice@example.com")
				if text := g.storedField("alice", leftover); text != "" && at < 1 {
					t.Errorf("the leftover is still there: %q", text)
				}
				if at < 0 {
					must(t, g.create("other", alicePassword))
					_, err := g.users.Update(t.Context(), uid("other"), putText("email", "alice@example.com"))
					must(t, err)
				}
			})
		})
	}
}

// TestManyDropAndPut checks that several edits of one copy take effect in their order.
func TestManyDropAndPut(t *testing.T) {
	drop := func(e *userdb.Entry) { e.Drop("email") }
	put := func(text string) func(e *userdb.Entry) {
		return func(e *userdb.Entry) { e.Put("email", schema.Text(text)) }
	}
	addText := func(text string) func(e *userdb.Entry) { return func(e *userdb.Entry) { e.AddText("email", text) } }
	putFirst := func(text string) func(e *userdb.Entry) { return func(e *userdb.Entry) { e.PutFirst("email", text) } }
	dropText := func(text string) func(e *userdb.Entry) { return func(e *userdb.Entry) { e.DropText("email", text) } }
	eachLoginSite(t, manyLogins(), func(t *testing.T, g *loginSite) {
		for _, tt := range []struct {
			what  string
			edits []func(e *userdb.Entry)
			want  []string
		}{
			{"Drop, Put of the first", []func(*userdb.Entry){drop, put("a@x.org")}, []string{"a@x.org"}},
			{"Drop, Put of another", []func(*userdb.Entry){drop, put("b@x.org")}, []string{"b@x.org"}},
			{"Drop, Put of a new one", []func(*userdb.Entry){drop, put("d@x.org")}, []string{"d@x.org"}},
			{"Put, Drop", []func(*userdb.Entry){put("d@x.org"), drop}, nil},
			{"Drop, Put, Drop", []func(*userdb.Entry){drop, put("a@x.org"), drop}, nil},
			{"Drop, Put, Put", []func(*userdb.Entry){drop, put("a@x.org"), put("b@x.org")}, []string{"b@x.org"}},
			{"Drop, AddText", []func(*userdb.Entry){drop, addText("b@x.org"), addText("a@x.org")}, []string{"b@x.org", "a@x.org"}},
			{"Drop, PutFirst", []func(*userdb.Entry){drop, putFirst("b@x.org")}, []string{"b@x.org"}},
			{"AddText, Drop, Put", []func(*userdb.Entry){addText("d@x.org"), drop, put("c@x.org")}, []string{"c@x.org"}},
			{"DropText, Put", []func(*userdb.Entry){dropText("b@x.org"), put("b@x.org")}, []string{"b@x.org", "c@x.org"}},
			{"DropText, AddText", []func(*userdb.Entry){dropText("a@x.org"), addText("A@x.org")}, []string{"b@x.org", "c@x.org", "A@x.org"}},
			{"Put alone", []func(*userdb.Entry){put("d@x.org")}, []string{"d@x.org", "b@x.org", "c@x.org"}},
		} {
			g.editAlice(func(e *userdb.Entry) { e.SetTexts("email", "a@x.org", "b@x.org", "c@x.org") })
			g.editAlice(func(e *userdb.Entry) {
				for _, edit := range tt.edits {
					edit(e)
				}
				if texts := e.Texts("email"); !slices.Equal(texts, tt.want) {
					t.Errorf("%s: the copy has %q, want %q", tt.what, texts, tt.want)
				}
			})
			g.wantEmails(tt.what, tt.want...)
		}
	})
}

// TestManyLabels checks that a label stays with its value when the order changes.
func TestManyLabels(t *testing.T) {
	const first, work = "alice@example.com", "alice@work.example"
	eachLoginSite(t, manyLogins(), func(t *testing.T, g *loginSite) {
		labels := func() map[string]string {
			fields, err := g.raw.HGetAll(t.Context(), "user/uid:alice").Result()
			must(t, err)
			all := map[string]string{}
			if label := (store.Record{Fields: fields}).Label("email"); label != "" {
				all[fields["email"]] = label
			}
			for _, f := range store.FurtherIn(fields, "email") {
				if f.Label != "" {
					all[f.Written] = f.Label
				}
			}
			return all
		}
		want := func(why string, want map[string]string) {
			t.Helper()
			if got := labels(); !maps.Equal(got, want) {
				t.Errorf("%s: the labels are %v, want %v", why, got, want)
			}
		}
		g.editAlice(func(e *userdb.Entry) { e.AddText("email", work) })
		g.storeField("alice", store.FieldAlso("email", work), "1 7 at+_work")
		both := map[string]string{work: "at work"}
		g.editAlice(func(e *userdb.Entry) { e.PutFirst("email", work) })
		want("put first", both)
		if !g.find("alice").Verified("email") {
			t.Error("the mark of verification is lost")
		}
		g.editAlice(func(e *userdb.Entry) { e.Put("name", schema.Text("al")) })
		want("another field changes", both)
		e := g.editAlice(func(e *userdb.Entry) { e.PutFirst("email", first) })
		want("put back", both)
		if !e.VerifiedText("email", work) {
			t.Error("the mark of verification is lost on the way back")
		}
		g.editAlice(func(e *userdb.Entry) { e.DropText("email", first) })
		want("the other goes", both)
		g.editAlice(func(e *userdb.Entry) { e.Put("email", schema.Text("Alice@work.example")) })
		want("spelled differently", map[string]string{"Alice@work.example": "at work"})
		g.editAlice(func(e *userdb.Entry) { e.Put("email", schema.Text(first)) })
		want("replaced", nil)
		if text := g.storedField("alice", store.FieldLabel("email")); text != "" {
			t.Errorf("the label %q is left", text)
		}
		g.storeField("alice", store.FieldLabel("email"), store.LabelText(work, "at work"))
		want("the label of another value", nil)
	})
}

// TestManyAddOnlyToValue checks that a secret that adds a value is sent to no other address.
func TestManyAddOnlyToValue(t *testing.T) {
	eachLoginSite(t, manyLogins(), func(t *testing.T, g *loginSite) {
		tk := userdb.Token{Purpose: userdb.PurposeAdd + "email", Value: "mallory@example.com"}
		_, _, err := g.users.IssueFor(t.Context(), uid("alice"), "email", tk)
		wantField(t, "IssueFor", err, userdb.ErrInvalid, "purpose")
		_, _, err = g.users.IssueForVisitor(t.Context(), "email", "alice", tk, userdb.Attempt{})
		wantField(t, "IssueForVisitor", err, userdb.ErrInvalid, "purpose")
		_, _, err = g.users.IssueForVisitor(t.Context(), "email", "nobody", tk, userdb.Attempt{})
		wantField(t, "IssueForVisitor for nobody", err, userdb.ErrInvalid, "purpose")
		g.verify("alice@work.example")
	})
}
