package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// countTrips returns the number of round trips and commands that do sends, as text.
func (g *loginSite) countTrips(do func()) string {
	var trips, commands atomic.Int64
	g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		trips.Add(1)
		commands.Add(int64(len(cmds)))
		return send()
	})
	do()
	g.tap.set(nil)
	return fmt.Sprintf("%d round trips, %d commands", trips.Load(), commands.Load())
}

// visitors lists texts that visitors type, and whether each identifies an account that gets a
// token.
var visitors = []struct {
	entered string
	known   bool
}{
	{"alice", true},
	{"ALICE@example.com", true},
	{"nobody", false},
	{"nobody@example.com", false},
	{"dis", false},
	{"dis@example.com", false},
	{"no-address", false},
	{"longest", false},
	{"longest@example.com", false},
}

// addVisitorAccounts adds a disabled account, one without an address, and one whose UID is too long
// for tokens. It also makes the server load all scripts.
func addVisitorAccounts(g *loginSite) {
	g.add("dis", "battery staple dis")
	must(g.t, g.users.Disable(g.t.Context(), uid("dis")))
	_, err := g.users.Create(g.t.Context(), userdb.NewEntry{UID: "no-address", Facets: schema.Texts("name", "no-address")})
	must(g.t, err)
	_, err = g.users.Create(g.t.Context(), userdb.NewEntry{
		UID: strings.Repeat("x", 201), Facets: schema.Texts("name", "longest", "email", "longest@example.com"),
	})
	must(g.t, err)
	g.issue(userdb.Token{Purpose: "warm"}) // these calls load all scripts
	_, _, _ = g.users.IssueForVisitor(g.t.Context(), "email", "warm", userdb.Token{Purpose: "reset"}, userdb.Attempt{Origin: "warm"})
	_, _ = g.users.Invite(g.t.Context(), "email", "warm@example.com", userdb.Token{Lifetime: time.Minute}, userdb.Attempt{Origin: "warm"})
}

// TestVisitorsSeeNoDifference checks that calls for all visitors compute the same number of hashes
// and take the same number of round trips.
func TestVisitorsSeeNoDifference(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		addVisitorAccounts(g)
		work := map[string][]string{}
		for i, v := range visitors {
			a := userdb.Attempt{Origin: fmt.Sprint("origin", i)}
			var secret, address string
			var err error
			var trips string
			own, other := g.countHashes(func() {
				trips = g.countTrips(func() {
					secret, address, err = g.users.IssueForVisitor(t.Context(), "email", v.entered, userdb.Token{Purpose: "reset"}, a)
				})
			})
			work[fmt.Sprint("issue: ", trips, own, other)] = append(work[fmt.Sprint("issue: ", trips, own, other)], v.entered)
			switch {
			case v.known && (err != nil || address != "alice@example.com"):
				t.Errorf("%s: got address %q, %v; want that of alice", v.entered, address, err)
			case v.known:
				g.wantRedeem("reset", secret, "")
			case err != userdb.ErrNotFound || secret != "" || address != "":
				t.Errorf("%s: got secret %q, address %q, %v; want exactly ErrNotFound", v.entered, secret, address, err)
			}
			if !strings.Contains(v.entered, "@") {
				continue
			}
			var in userdb.Invitation
			trips = g.countTrips(func() { in, err = g.users.Invite(t.Context(), "email", v.entered, userdb.Token{}, a) })
			must(t, err)
			work["invite: "+trips] = append(work["invite: "+trips], v.entered)
			known := v.known || !strings.HasPrefix(v.entered, "nobody")
			if in.Registered != known || (in.Secret == "") != known || !strings.EqualFold(in.Address, v.entered) {
				t.Errorf("%s: got invitation %+v, want registered: %v", v.entered, in, known)
			}
			if v.known && in.Address != "alice@example.com" {
				t.Errorf("the mail goes to %s, want the stored address", in.Address)
			}
		}
		if len(work) != 2 {
			t.Errorf("calls by the work that they take: got %v, want one group of issues and one of invitations", work)
		}
	})
}

// TestVisitorsWriteAlike checks that calls for all visitors send the same number of commands that
// write. If Redis syncs its append-only file, a write takes longer than a read, so a different
// number would show whether an account exists.
func TestVisitorsWriteAlike(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		addVisitorAccounts(g)
		records := func() string { return fmt.Sprint(g.dump(t.Context())) }
		work := map[string][]string{}
		for i, v := range visitors {
			dumping, writes := false, 0
			g.tap.set(func(_ context.Context, _ []redis.Cmder, send func() error) error {
				if dumping {
					return send()
				}
				dumping = true
				before := records()
				err := send()
				if records() != before {
					writes++
				}
				dumping = false
				return err
			})
			a := userdb.Attempt{Origin: fmt.Sprint("origin", i)}
			_, _, _ = g.users.IssueForVisitor(t.Context(), "email", v.entered, userdb.Token{Purpose: "reset"}, a)
			g.tap.set(nil)
			work[fmt.Sprint(writes)] = append(work[fmt.Sprint(writes)], v.entered)
		}
		if len(work) != 1 {
			t.Errorf("calls by the number of commands that wrote: got %v, want one group", work)
		}
		for _, key := range g.keysUnder("~/token/") {
			if ttl, err := g.raw.PTTL(t.Context(), key).Result(); key != "~/token/{user/uid:alice}" && (err != nil || ttl > time.Minute) {
				t.Errorf("%s, whose secret nobody has, lives for %v, %v; want at most a minute", key, ttl, err)
			}
		}
	})
}

// TestMailsOfOneAccount checks that all identifiers of an account share its limit of mails.
func TestMailsOfOneAccount(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		must(t, errOf(g.users.Update(t.Context(), uid("alice"), func(e *userdb.Entry) error {
			e.Put("email", schema.Text("alice@example.com"))
			e.Put("name", schema.Text("Alice"))
			return nil
		})))
		mails := 0
		for range 3 {
			for _, entered := range []string{"alice@example.com", "alice", "ALICE"} {
				_, _, err := g.users.IssueForVisitor(t.Context(), "email", entered, userdb.Token{Purpose: "reset"}, userdb.Attempt{})
				if err == nil {
					mails++
					continue
				}
				wantErr(t, entered, err, userdb.ErrTooManyAttempts)
			}
		}
		if mails != 3 {
			t.Errorf("got tokens for %d mails, want 3", mails)
		}
	})
}

// TestPurposesAreLimitedApart checks that tokens of one purpose do not count towards the limit of
// another, up to a limit for all purposes, whether or not there is an account.
func TestPurposesAreLimitedApart(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ask := func(n int, purpose string, entered ...string) (granted int) {
			for i := range n {
				_, _, err := g.users.IssueForVisitor(t.Context(), "email", entered[i%len(entered)], userdb.Token{Purpose: purpose}, userdb.Attempt{})
				if err == nil || errors.Is(err, userdb.ErrNotFound) {
					granted++
					continue
				}
				wantErr(t, purpose, err, userdb.ErrTooManyAttempts)
			}
			return granted
		}
		for _, entered := range [][]string{{"alice", "alice@example.com"}, {"nobody@example.com"}} {
			for hour := range 2 {
				var got []int
				for _, purpose := range []string{"verify", "sign in", "reset", "verify", "confirm", "another", "reset"} {
					got = append(got, ask(20, purpose, entered...))
				}
				if want := []int{3, 3, 3, 0, 3, 0, 0}; !slices.Equal(got, want) {
					t.Errorf("hour %d: %v got %v tokens of each purpose, want %v", hour, entered, got, want)
				}
				g.advance(time.Hour)
			}
		}
	})
}

// TestInvitationsToOneMailbox checks that white space and case make no difference to the limit of
// invitations to an address, even if the type's identifiers are compared byte by byte. White space
// does not hide that somebody has the address.
func TestInvitationsToOneMailbox(t *testing.T) {
	for _, fold := range []schema.Fold{schema.FoldCasefold, schema.FoldExact} {
		s := schema.User()
		typ := s.Types["user"]
		typ.Fold = fold
		s.Types["user"] = typ
		o := loginOptions()
		o.Schema = s
		t.Run(string(fold), func(t *testing.T) {
			eachLoginSite(t, o, func(t *testing.T, g *loginSite) {
				for round, address := range []string{"stranger@example.com", "alice@example.com"} {
					mails := 0
					for i := range 12 {
						var pad strings.Builder
						for bit := range 4 {
							pad.WriteString([]string{" ", "\t", "\u3000", "\n"}[(i+bit)%4])
						}
						pad.WriteString(strings.Repeat(" ", []int{0, 1, 4096}[i%3]))
						entered := pad.String() + address
						if round == 0 && i%2 == 1 {
							entered = pad.String() + "STRANGER@example.com "
						}
						in, err := g.users.Invite(t.Context(), "email", entered, userdb.Token{}, userdb.Attempt{})
						if err != nil {
							wantErr(t, address, err, userdb.ErrTooManyAttempts)
							continue
						}
						mails++
						if known := round == 1; in.Registered != known || !strings.EqualFold(in.Address, address) {
							t.Errorf("%s after %d characters of white space: got %+v, want registered: %v", address, pad.Len(), in, known)
						}
					}
					if mails != 3 {
						t.Errorf("%d mails to %s, want 3", mails, address)
					}
				}
			})
		})
	}
}

// TestInvitedAddress checks that the address of an invitation is stored without the white space
// around it.
func TestInvitedAddress(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		i, err := g.users.Invite(t.Context(), "email", " new@example.com\t", userdb.Token{}, userdb.Attempt{})
		must(t, err)
		peeked, err := g.users.PeekInvitation(t.Context(), i.Secret)
		must(t, err)
		e, err := g.users.AcceptInvitation(t.Context(), i.Secret, userdb.NewEntry{})
		must(t, err)
		for what, address := range map[string]string{"Invite": i.Address, "PeekInvitation": peeked.Address, "the entry": e.Text("email")} {
			if address != "new@example.com" {
				t.Errorf("%s: got address %q, want new@example.com", what, address)
			}
		}
	})
}

// TestChangesAreLimited checks that at most three tokens an hour are issued that change an address
// to the same new one, whichever accounts ask for them and however the new address is spelled.
func TestChangesAreLimited(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.add("bob", "battery staple 9")
		issue := func(who, to string) error {
			_, err := g.users.Issue(t.Context(), uid(who), userdb.Token{Purpose: "change:email", Value: to})
			return err
		}
		for _, who := range []string{"alice", "bob", "alice"} {
			must(t, issue(who, "stranger@example.com"))
		}
		for _, to := range []string{"stranger@example.com", "STRANGER@example.com"} {
			wait, err := waitOf(issue("bob", to))
			if wait <= 0 || wait > time.Hour {
				t.Errorf("%s a fourth time: got wait %v, %v; want up to an hour", to, wait, err)
			}
		}
		must(t, issue("alice", "other@example.com"))
		must(t, errOf(g.users.Issue(t.Context(), uid("alice"), userdb.Token{Purpose: "confirm", Value: "stranger@example.com"})))
		g.advance(time.Hour + time.Second)
		must(t, issue("alice", "stranger@example.com"))
	})
}

// TestChangesOfOneAccount checks that an account gets at most 12 tokens an hour that change its
// address, each of which is mailed to a stranger, and that one origin gets at most 30 for all
// accounts.
func TestChangesOfOneAccount(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		strangers := 0
		issue := func(origin, who string) error {
			strangers++
			ctx := userdb.WithActor(t.Context(), userdb.Actor{Origin: origin})
			to := fmt.Sprint("stranger", strangers, "@example.com")
			return errOf(g.users.Issue(ctx, uid(who), userdb.Token{Purpose: "change:email", Value: to}))
		}
		for n := range 12 {
			must(t, issue(fmt.Sprint("192.0.2.", n), "alice"))
		}
		if wait, err := waitOf(issue("", "alice")); wait <= 0 || wait > time.Hour {
			t.Errorf("a thirteenth change of one account: got wait %v, %v; want up to an hour", wait, err)
		}
		must(t, errOf(g.users.Issue(t.Context(), uid("alice"), userdb.Token{Purpose: "reset"})))
		for n := range 30 {
			who := fmt.Sprint("bob", n/10)
			if n%10 == 0 {
				g.add(who, "battery staple 9")
			}
			must(t, issue("198.51.100.7", who))
		}
		if wait, err := waitOf(issue("198.51.100.7", "bob0")); wait <= 0 || wait > time.Hour {
			t.Errorf("a thirty-first change from one origin: got wait %v, %v; want up to an hour", wait, err)
		}
		must(t, issue("198.51.100.8", "bob0"))
		g.advance(time.Hour + time.Second)
		must(t, issue("198.51.100.7", "alice"))
	})
}

// TestVisitorLimits makes many calls at once. One limit holds for the tokens of an identifier in
// all its spellings, and another for its invitations. One limit holds for all calls of an origin.
// An hour later, calls must succeed again.
func TestVisitorLimits(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ask := func(n int, identifier, origin func(i int) string) (tokens, invitations int) {
			var wg sync.WaitGroup
			var good [2]atomic.Int64
			for i := range n {
				wg.Go(func() {
					var err error
					a := userdb.Attempt{Origin: origin(i)}
					if i%2 == 0 {
						_, _, err = g.users.IssueForVisitor(t.Context(), "email", identifier(i), userdb.Token{Purpose: "reset"}, a)
					} else {
						_, err = g.users.Invite(t.Context(), "email", identifier(i), userdb.Token{}, a)
					}
					var wait *userdb.WaitError
					switch {
					case err == nil, errors.Is(err, userdb.ErrNotFound):
						good[i%2].Add(1)
					case !errors.As(err, &wait) || wait.Wait <= 0 || wait.Wait > time.Hour:
						t.Errorf("call %d: got %v, want a wait of up to an hour", i, err)
					}
				})
			}
			wg.Wait()
			return int(good[0].Load()), int(good[1].Load())
		}
		one := func(text string) func(int) string { return func(int) string { return text } }
		for round := range 2 {
			for _, who := range []string{"alice@example.com", "nobody@example.com"} {
				spelled := func(i int) string {
					if i%3 == 0 {
						return strings.ToUpper(who)
					}
					return who
				}
				if tokens, invitations := ask(20, spelled, one("")); tokens != 3 || invitations != 3 {
					t.Errorf("round %d: got %d tokens and %d invitations for %s, want 3 of each", round, tokens, invitations, who)
				}
			}
			tokens, invitations := ask(60, func(i int) string { return fmt.Sprintf("v%d-%d@example.com", round, i) }, one("192.0.2.7"))
			if tokens+invitations != 30 {
				t.Errorf("round %d: got %d tokens and %d invitations from one origin, want 30 together", round, tokens, invitations)
			}
			g.advance(time.Hour)
		}
	})
}

// TestVisitorRules checks the invitations and tokens that visitors cannot get.
func TestVisitorRules(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		for _, tt := range []struct{ field, entered, want string }{
			{"email", "no address", "email"},
			{"email", "", "email"},
			{"job", "cook", "purpose"},
			{"uid", "x", "purpose"},
			{"password", "x", "purpose"},
			{"email", strings.Repeat("x", 5000) + "@example.com", "value"},
		} {
			_, err := g.users.Invite(ctx, tt.field, tt.entered, userdb.Token{}, userdb.Attempt{})
			wantField(t, tt.field, err, userdb.ErrInvalid, tt.want)
		}
		_, err := g.users.Invite(ctx, "email", "a@example.com", userdb.Token{Lifetime: -1}, userdb.Attempt{})
		wantField(t, "life", err, userdb.ErrInvalid, "life")
		_, _, err = g.users.IssueForVisitor(ctx, "", "alice", userdb.Token{Purpose: "reset"}, userdb.Attempt{})
		wantField(t, "no field", err, userdb.ErrInvalid, "field")
		_, _, err = g.users.IssueForVisitor(ctx, "email", "alice", userdb.Token{}, userdb.Attempt{})
		wantField(t, "no purpose", err, userdb.ErrInvalid, "purpose")
		_, err = g.users.Issue(ctx, uid("alice"), userdb.Token{Purpose: "invite:email"})
		wantField(t, "an invitation", err, userdb.ErrInvalid, "purpose")
		for _, junk := range []string{"", "\xff", strings.Repeat("x", 5000), "~/token/{user/uid:alice}"} {
			_, _, err = g.users.IssueForVisitor(ctx, "email", junk, userdb.Token{Purpose: "reset"}, userdb.Attempt{})
			wantErr(t, fmt.Sprintf("%.20q", junk), err, userdb.ErrNotFound)
		}
	})
}

// invite invites an address that nobody has, and returns the secret.
func (g *loginSite) invite(address string) string {
	g.t.Helper()
	i, err := g.users.Invite(g.t.Context(), "email", address, userdb.Token{Value: "a plan"}, userdb.Attempt{})
	if err != nil || i.Secret == "" || i.Registered {
		g.t.Fatalf("inviting %s: got %+v, %v; want a secret", address, i, err)
	}
	return i.Secret
}

// TestAcceptInvitation checks that an invitation creates one account, with the invited address, and
// that a refused call leaves it valid.
func TestAcceptInvitation(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		secret := g.invite("New@Example.com")
		i, err := g.users.PeekInvitation(ctx, secret)
		if want := (userdb.Invitation{Field: "email", Address: "New@Example.com", Value: "a plan"}); err != nil || i != want {
			t.Errorf("PeekInvitation returned %+v, %v; want %+v", i, err, want)
		}
		accept := func(facets schema.Facets, pw string) error {
			_, err := g.users.AcceptInvitation(ctx, secret, userdb.NewEntry{Facets: facets, Password: pw})
			return err
		}
		wantField(t, "a taken name", accept(schema.Texts("name", "alice"), ""), userdb.ErrDuplicate, "name")
		wantErr(t, "a weak password", accept(schema.Texts("name", "new"), "short"), password.ErrPolicy)
		wantErr(t, "the address as password", accept(nil, "new@example.com"), password.ErrPolicy)
		wantField(t, "another address", accept(schema.Texts("email", "other@example.com"), ""), userdb.ErrInvalid, "email")
		_, err = g.users.AcceptInvitation(ctx, secret, userdb.NewEntry{UID: "mine"})
		wantField(t, "another UID", err, userdb.ErrInvalid, "email")
		for _, purpose := range []string{"invite:email", "change:email", "reset"} {
			_, _, err = g.users.Redeem(ctx, purpose, secret)
			wantErr(t, "as a token", err, userdb.ErrNotFound)
		}
		e, err := g.users.AcceptInvitation(ctx, secret, userdb.NewEntry{
			Facets: schema.Texts("name", "new"), Password: "battery staple new", Tags: []string{"staff"},
		})
		if err != nil || e.Text("email") != "New@Example.com" || !e.Verified("email") || e.Verified("name") {
			t.Fatalf("AcceptInvitation returned %v, %v; want the invited address, verified", e, err)
		}
		must(t, g.logIn("new@example.com", "battery staple new", ""))
		_, session, err := g.users.StartSession(ctx, e, userdb.SessionOptions{})
		must(t, err)
		_, _, err = g.users.Session(ctx, session)
		must(t, err)
		wantInvalid := func(why string) {
			t.Helper()
			_, err := g.users.PeekInvitation(ctx, secret)
			if err != userdb.ErrNotFound {
				t.Errorf("%s: PeekInvitation returned %v, want exactly ErrNotFound", why, err)
			}
			wantErr(t, why, accept(schema.Texts("name", "newer"), ""), userdb.ErrNotFound)
		}
		wantInvalid("accepted")
		must(t, g.users.Delete(ctx, uid(e.UID())))
		wantInvalid("accepted, and the account deleted")
		if left := g.keysUnder("~/token/"); len(left) > 0 {
			t.Errorf("records of tokens are still there: %q", left)
		}
		secret = g.invite("late@example.com")
		g.advance(time.Hour)
		wantInvalid("expired")
		for _, junk := range []string{"", "x", strings.Repeat("A", 300), g.issue(userdb.Token{Purpose: "reset"})} {
			secret = junk
			wantInvalid("made up")
		}
		secret = g.invite("taken@example.com")
		_, err = g.users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("email", "Taken@example.com")})
		must(t, err)
		wantField(t, "a taken address", accept(nil, ""), userdb.ErrDuplicate, "email")
	})
}

// TestConcurrentAcceptInvitation accepts an invitation many times at once. One call must create the
// account, unless somebody else takes the address.
func TestConcurrentAcceptInvitation(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		for round := range 5 {
			secret := g.invite(fmt.Sprintf("r%d@example.com", round))
			var wg sync.WaitGroup
			var made atomic.Int64
			for i := range 8 {
				wg.Go(func() {
					var err error
					switch {
					case round == 4 && i == 0: // somebody else takes the address
						_, err = g.users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("email", fmt.Sprintf("r%d@example.com", round))})
					default:
						_, err = g.users.AcceptInvitation(t.Context(), secret, userdb.NewEntry{Facets: schema.Texts("name", fmt.Sprint("r", round, "-", i))})
					}
					switch {
					case err == nil:
						made.Add(1)
					case !errors.Is(err, userdb.ErrNotFound) && !errors.Is(err, userdb.ErrDuplicate):
						t.Errorf("call %d: got %v, want ErrNotFound or ErrDuplicate", i, err)
					}
				})
			}
			wg.Wait()
			if made.Load() != 1 {
				t.Errorf("round %d: %d calls created an account, want 1", round, made.Load())
			}
		}
	})
}

// TestVerified checks that a token that was sent to an address verifies it, and that a change of
// the address, by any program, makes it unverified.
func TestVerified(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		want := func(why string, verified bool) {
			t.Helper()
			if e := g.find("alice"); e.Verified("email") != verified || e.Verified("name") || e.Verified("uid") {
				t.Errorf("%s: verified: %v, want %v", why, e.Verified("email"), verified)
			}
		}
		put := func(address string) {
			t.Helper()
			_, err := g.users.Update(ctx, uid("alice"), putText("email", address))
			must(t, err)
		}
		want("made by the application", false)
		g.wantRedeem("reset", g.issue(userdb.Token{Purpose: "reset", Field: "email"}), "")
		want("a token that may have been sent elsewhere", false)
		secret, _, err := g.users.IssueFor(ctx, uid("alice"), "email", userdb.Token{Purpose: "verify"})
		must(t, err)
		g.wantRedeem("verify", secret, "")
		want("a token that was sent there", true)
		_, err = g.users.Update(ctx, uid("alice"), putText("job", "cook"))
		must(t, err)
		want("another change", true)
		put("Alice@example.com")
		want("another spelling", false)
		put("alice@example.com")
		want("the first spelling again", false)
		g.wantRedeem("change:email", g.issue(userdb.Token{Purpose: "change:email", Value: "alice2@example.com"}), "alice2@example.com")
		want("a change confirmed at the new address", true)
		secret, _, err = g.users.IssueFor(ctx, uid("alice"), "email", userdb.Token{Purpose: "change:email", Value: "alice3@example.com"})
		must(t, err)
		g.wantRedeem("change:email", secret, "alice3@example.com")
		want("a change confirmed at the old address", false)
		secret, _, err = g.users.IssueForVisitor(ctx, "email", "alice", userdb.Token{Purpose: "reset"}, userdb.Attempt{})
		must(t, err)
		_, err = g.users.ResetPassword(ctx, "reset", secret, "brand new horse")
		must(t, err)
		want("a reset", true)
		e := g.find("alice")
		e.Put("email", schema.Text("alice3@example.com"))
		if e.Verified("email") {
			t.Error("an edit is verified")
		}
		// A program that does not know of verified addresses writes it like this.
		g.storeField("alice", "email", "alice4@example.com")
		want("an address written by another program", false)
		g.storeField("alice", "email", "alice3@example.com")
		_, err = g.users.Update(ctx, uid("alice"), func(e *userdb.Entry) error { e.Drop("email"); return nil })
		must(t, err)
		if mark := g.storedField("alice", "~verified:email"); mark != "" {
			t.Errorf("the mark %q of a verified address is left after it was dropped", mark)
		}
	})
}

// TestOneOrigin checks that all spellings of an address are one origin, and so are all addresses of
// an IPv6 /64 prefix, which usually belongs to one visitor.
func TestOneOrigin(t *testing.T) {
	spellings := map[string][]string{
		"IPv4": {
			"192.0.2.1", "192.0.2.1:443", "::ffff:192.0.2.1", "[::ffff:192.0.2.1]:443", "::ffff:c000:201", "::FFFF:192.0.2.1", " 192.0.2.1 ",
			"0:0:0:0:0:ffff:192.0.2.1", "[::ffff:192.0.2.1]",
		},
		"IPv6": {
			"2001:db8:1:2::1", "2001:DB8:1:2::2", "[2001:db8:1:2::3]:443", "2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::4%eth0",
			"2001:db8:1:2::/64", "2001:db8:1:2::5/128", "[2001:db8:1:2::6]", "2001:0db8:0001:0002:0:0:0:7",
		},
	}
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		for kind, all := range spellings {
			wait := time.Duration(0)
			for i := range 31 {
				wait, _ = waitOf(g.logIn(fmt.Sprint(kind, i), wrongPassword, all[i%len(all)]))
			}
			if wait == 0 {
				t.Errorf("%s: the 31st guess is checked, want a wait", kind)
			}
			var err error
			for i := range 31 {
				a := userdb.Attempt{Origin: all[i%len(all)]}
				_, err = g.users.Invite(t.Context(), "email", fmt.Sprintf("%s%d@example.com", kind, i), userdb.Token{}, a)
			}
			wantErr(t, kind+": the 31st invitation", err, userdb.ErrTooManyAttempts)
		}
		_, err := g.users.Invite(t.Context(), "email", "other@example.com", userdb.Token{}, userdb.Attempt{Origin: "2001:db8:1:3::1"})
		must(t, err)
	})
}
