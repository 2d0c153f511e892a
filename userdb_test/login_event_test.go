package userdb_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// eventCases lists calls with the events that they must report. Each case begins with a store that
// has only alice.
var eventCases = []struct {
	name string
	do   func(ctx context.Context, g *loginSite) error
	want []string
}{
	{"a good login", func(_ context.Context, g *loginSite) error { return g.logIn("alice", alicePassword, "1.2.3.4") }, []string{
		"login user/uid:alice origin:1.2.3.4",
	}},
	{"without an origin", func(_ context.Context, g *loginSite) error { return g.logIn("alice@example.com", alicePassword, "") }, []string{
		"login user/uid:alice",
	}},
	{"a hash that is replaced", func(_ context.Context, g *loginSite) error {
		g.storeField("alice", "password", "bcrypt$"+bcryptOf(g.t, "b", 4, "correct horse"))
		return g.logIn("alice", "correct horse", "")
	}, []string{"login user/uid:alice renewed:algorithm"}},
	{"a wrong password", func(_ context.Context, g *loginSite) error { return g.logIn("alice", wrongPassword, "1.2.3.4") }, []string{
		"failure user/uid:alice origin:1.2.3.4",
	}},
	{"an unknown identifier", func(_ context.Context, g *loginSite) error { return g.logIn("nobody", wrongPassword, "1.2.3.4") }, []string{
		"failure identifier:32 origin:1.2.3.4",
	}},
	{"a disabled entry", func(ctx context.Context, g *loginSite) error {
		must(g.t, g.users.Disable(ctx, uid("alice")))
		return g.logIn("alice", alicePassword, "")
	}, []string{"disable user/uid:alice", "failure user/uid:alice"}},
	{"an entry that cannot be read", func(_ context.Context, g *loginSite) error {
		g.storeField("alice", "added", "no date")
		g.expect("I3 user/uid:alice")
		err := g.logIn("alice", alicePassword, "")
		must(g.t, g.raw.HDel(g.t.Context(), "user/uid:alice", "added").Err())
		delete(g.expected, "I3 user/uid:alice")
		return err
	}, []string{"failure user/uid:alice"}},
	{"a throttled account", func(_ context.Context, g *loginSite) error {
		g.failLogins(freeFailures, "alice", "")
		g.takeEvents()
		return g.logIn("alice", alicePassword, "1.2.3.4")
	}, []string{"throttle user/uid:alice origin:1.2.3.4 wait:1s"}},
	{"a throttled identifier", func(_ context.Context, g *loginSite) error {
		g.failLogins(freeFailures, "nobody", "")
		g.takeEvents()
		return g.logIn("Nobody", alicePassword, "")
	}, []string{"throttle identifier:32 wait:1s"}},
	{"a password set", func(ctx context.Context, g *loginSite) error {
		return errOf(g.users.SetPassword(ctx, uid("alice"), "brand new horse"))
	}, []string{"password user/uid:alice"}},
	{"a refused password", func(ctx context.Context, g *loginSite) error {
		return errOf(g.users.SetPassword(ctx, uid("alice"), "short"))
	}, nil},
	{"a password changed", func(ctx context.Context, g *loginSite) error {
		return errOf(g.users.ChangePassword(ctx, uid("alice"), alicePassword, "brand new horse", userdb.Attempt{Origin: "1.2.3.4"}))
	}, []string{"password user/uid:alice origin:1.2.3.4"}},
	{"a wrong old password", func(ctx context.Context, g *loginSite) error {
		return errOf(g.users.ChangePassword(ctx, uid("alice"), wrongPassword, "brand new horse", userdb.Attempt{Origin: "1.2.3.4"}))
	}, []string{"failure user/uid:alice origin:1.2.3.4"}},
	{"disable and enable", func(ctx context.Context, g *loginSite) error {
		return errors.Join(g.users.Disable(ctx, uid("alice")), g.users.Enable(ctx, uid("alice")))
	}, []string{"disable user/uid:alice", "enable user/uid:alice"}},
	{"a redeemed token", func(ctx context.Context, g *loginSite) error {
		_, _, err := g.users.Redeem(ctx, "reset", g.issue(userdb.Token{Purpose: "reset", Value: "v"}))
		return err
	}, []string{"issue user/uid:alice purpose:reset", "redeem user/uid:alice purpose:reset"}},
	{"a peek at a token", func(ctx context.Context, g *loginSite) error {
		_, _, err := g.users.Peek(ctx, "reset", g.issue(userdb.Token{Purpose: "reset", Value: "v"}))
		return err
	}, []string{"issue user/uid:alice purpose:reset"}},
	{"a password reset", func(ctx context.Context, g *loginSite) error {
		_, err := g.users.ResetPassword(ctx, "reset", g.issue(userdb.Token{Purpose: "reset"}), "brand new horse")
		return err
	}, []string{"issue user/uid:alice purpose:reset", "redeem user/uid:alice purpose:reset", "password user/uid:alice"}},
	{"a reset with a refused password", func(ctx context.Context, g *loginSite) error {
		_, err := g.users.ResetPassword(ctx, "reset", g.issue(userdb.Token{Purpose: "reset"}), "short")
		return err
	}, []string{"issue user/uid:alice purpose:reset"}},
	{"a reset with an invalid token", func(ctx context.Context, g *loginSite) error {
		_, err := g.users.ResetPassword(ctx, "reset", "nonsense", "brand new horse")
		return err
	}, []string{"refuse purpose:reset"}},
	{"a token for another purpose", func(ctx context.Context, g *loginSite) error {
		_, _, err := g.users.Redeem(ctx, "login", g.issue(userdb.Token{Purpose: "reset"}))
		return err
	}, []string{"issue user/uid:alice purpose:reset", "refuse purpose:login"}},
	{"a void token", func(ctx context.Context, g *loginSite) error {
		secret := g.issue(userdb.Token{Purpose: "reset"})
		must(g.t, errOf(g.users.SetPassword(ctx, uid("alice"), "brand new horse")))
		_, _, err := g.users.Redeem(ctx, "reset", secret)
		return err
	}, []string{"issue user/uid:alice purpose:reset", "password user/uid:alice", "refuse purpose:reset"}},
	{"a changed address", func(ctx context.Context, g *loginSite) error {
		_, _, err := g.users.Redeem(ctx, "change:email", g.issue(userdb.Token{Purpose: "change:email", Value: "new@example.com"}))
		return err
	}, []string{
		"issue user/uid:alice purpose:change:email", "update user/uid:alice fields:email", "identifier user/uid:alice fields:email",
		"redeem user/uid:alice purpose:change:email",
	}},
	{"a change to a taken address", func(ctx context.Context, g *loginSite) error {
		g.add("bob", "")
		_, _, err := g.users.Redeem(ctx, "change:email", g.issue(userdb.Token{Purpose: "change:email", Value: "bob@example.com"}))
		return err
	}, []string{"create user/uid:bob", "issue user/uid:alice purpose:change:email", "refuse user/uid:alice purpose:change:email"}},
	{"changed facets", func(ctx context.Context, g *loginSite) error {
		_, err := g.users.Update(ctx, uid("alice"), func(e *userdb.Entry) error {
			e.Put("name", schema.Text("Alicia"))
			e.Put("job", schema.Text("cook"))
			return nil
		})
		must(g.t, err)
		_, err = g.users.Update(ctx, uid("alice"), func(e *userdb.Entry) error { e.Drop("job"); return nil })
		must(g.t, err)
		_, err = g.users.Update(ctx, uid("alice"), putText("name", "Alicia"))
		return err
	}, []string{"update user/uid:alice fields:job,name", "identifier user/uid:alice fields:name", "update user/uid:alice fields:job"}},
	{"changed tags", func(ctx context.Context, g *loginSite) error {
		for range 2 {
			_, err := g.users.Tags(uid("alice")).Add(ctx, "admin", "staff")
			must(g.t, err)
		}
		_, err := g.users.Tags(uid("alice")).Remove(ctx, "admin", "nobody")
		return err
	}, []string{"update user/uid:alice fields:tags", "update user/uid:alice fields:tags"}},
	{"create and delete", func(ctx context.Context, g *loginSite) error {
		g.add("bob", "")
		return g.users.Delete(ctx, uid("bob"))
	}, []string{"create user/uid:bob", "delete user/uid:bob"}},
	{"a session that starts and ends", func(ctx context.Context, g *loginSite) error {
		_, secret := g.startSession(userdb.SessionOptions{Origin: "1.2.3.4"})
		_, _, err := g.users.Session(ctx, secret)
		must(g.t, err)
		return errors.Join(g.users.EndSession(ctx, secret), g.users.EndSession(ctx, secret))
	}, []string{"start user/uid:alice origin:1.2.3.4 session:43", "end user/uid:alice session:43"}},
	{"the end of all sessions", func(ctx context.Context, g *loginSite) error {
		return errOf(g.users.EndSessions(ctx, uid("alice")))
	}, []string{"end user/uid:alice"}},
	{"a visitor's token", func(ctx context.Context, g *loginSite) error {
		for range 4 {
			_, _, err := g.users.IssueForVisitor(ctx, "email", "Nobody", userdb.Token{Purpose: "reset"}, userdb.Attempt{Origin: "1.2.3.4"})
			if !errors.Is(err, userdb.ErrNotFound) && !errors.Is(err, userdb.ErrTooManyAttempts) {
				return err
			}
		}
		_, _, err := g.users.IssueForVisitor(ctx, "email", "alice", userdb.Token{Purpose: "reset"}, userdb.Attempt{Origin: "1.2.3.4"})
		return err
	}, []string{"throttle identifier:32 origin:1.2.3.4 wait:1h0m0s", "issue user/uid:alice origin:1.2.3.4 purpose:reset"}},
	{"an invitation", func(ctx context.Context, g *loginSite) error {
		i, err := g.users.Invite(ctx, "email", "new@example.com", userdb.Token{}, userdb.Attempt{})
		must(g.t, err)
		e, err := g.users.AcceptInvitation(ctx, i.Secret, userdb.NewEntry{})
		must(g.t, err)
		_, err = g.users.AcceptInvitation(ctx, i.Secret, userdb.NewEntry{})
		g.mu.Lock()
		defer g.mu.Unlock()
		for j := range g.events {
			if g.events[j].Key == e.Key() {
				g.events[j].Key = recordkey.Key{}
			}
		}
		return err
	}, []string{"issue purpose:invite:email", "create", "redeem purpose:invite:email", "refuse purpose:invite:"}},
	{"a login that cannot be counted", func(ctx context.Context, g *loginSite) error {
		g.refuse("admit")
		defer g.tap.set(nil)
		return g.logIn("alice", alicePassword, "")
	}, nil},
	{"a long origin and a long purpose", func(ctx context.Context, g *loginSite) error {
		_, _, _ = g.users.Redeem(ctx, strings.Repeat("p", 1000), "x")
		return g.logIn("alice", wrongPassword, strings.Repeat("o", 1000))
	}, []string{"refuse purpose:" + strings.Repeat("p", 256), "failure user/uid:alice origin:" + strings.Repeat("o", 256)}},
}

// TestEvents checks that the hook gets exactly the expected events, in order, and that the log has
// each of them.
func TestEvents(t *testing.T) {
	for _, tt := range eventCases {
		t.Run(tt.name, func(t *testing.T) {
			eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
				_ = tt.do(t.Context(), g)
				events := g.takeEvents()
				var got []string
				for _, e := range events {
					got = append(got, describeEvent(e))
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("got  %q\nwant %q", got, tt.want)
				}
				for _, e := range events {
					for _, line := range logLines(e) {
						if !strings.Contains(g.log(), line) {
							t.Errorf("the log lacks %q:\n%s", line, g.log())
						}
					}
				}
			})
		})
	}
}

// logLines returns the beginning of an event's line in both formats of the log.
func logLines(e userdb.Event) []string {
	lines := []string{fmt.Sprintf(`level=INFO msg="userdb %s"`, e.Kind), fmt.Sprintf(`"level":"INFO","msg":"userdb %s"`, e.Kind)}
	if e.Key.IsValid() {
		lines[0] += " prk=" + e.Key.String()
		lines[1] += `,"prk":"` + e.Key.String() + `"`
	}
	return lines
}

// TestHashOfUnknownIdentifier checks the hash that the log has in place of an unknown identifier.
// All spellings of an identifier must have the same hash. Another identifier must have another
// hash, and so must the same identifier in another namespace, because each namespace has its own
// secret.
func TestHashOfUnknownIdentifier(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		hash := func(identifier string) string {
			_ = g.logIn(identifier, wrongPassword, "")
			return g.takeEvents()[0].Identifier
		}
		first := hash("Nobody@Example.com")
		if got := hash(" nobody@example.COM"); got != first {
			t.Errorf("another spelling has the hash %s, want %s", got, first)
		}
		if got := hash("nobody2@example.com"); got == first {
			t.Error("another identifier has the same hash")
		}
		acme := newLoginSite(g.site, userdb.Options{Namespace: parseNamespace(t, "acme"), HashWorkers: 1})
		_ = acme.logIn("nobody@example.com", wrongPassword, "")
		// All views of an embedded store share one hook.
		events := append(acme.takeEvents(), g.takeEvents()...)
		if events[0].Identifier == first {
			t.Error("the identifier has the same hash in another namespace")
		}
	})
}

// hashShape matches password hashes of every format that the store writes or reads.
var hashShape = regexp.MustCompile(`\$2[abxy]\$\d\d\$|\$argon2id?\$|\$scrypt\$l|\$pbkdf2(-\w+)?\$\d|\$[156]\$\w|\$[PH]\$\w|AQAAAA|` +
	`firebase-scrypt|(pbkdf2|bcrypt)_sha|argon2\$|scrypt\$\d`)

// TestNothingLeaks calls methods that get a secret, and looks for the secrets in all events, log
// lines, errors and printed values.
func TestNothingLeaks(t *testing.T) {
	o := loginOptions()
	o.Peppers = [][]byte{firstPepper, secondPepper}
	eachLoginSite(t, o, func(t *testing.T, g *loginSite) {
		g.addFailingLogins()
		secrets := []string{"nobody", "s3cret entered as a name", wrongPassword, alicePassword, "brand new horse", string(firstPepper)}
		var printed []string
		record := func(v any, err error) { printed = append(printed, fmt.Sprintf("%v %+v %#v %v %q", v, v, v, err, err)) }
		for _, who := range []string{"alice", "nobody", "s3cret entered as a name", "md5", "faulty", "peppered", "junk", "banned", "bare"} {
			for _, pw := range []string{wrongPassword, alicePassword, strings.Repeat("brand new horse", 10)} {
				e, err := g.users.Login(t.Context(), who, pw, userdb.Attempt{Origin: "1.2.3.4"})
				record(e, err)
				record(nil, errOf(g.users.ChangePassword(t.Context(), uid(who), pw, "brand new horse "+pw, userdb.Attempt{})))
			}
		}
		record(nil, errOf(g.users.SetPassword(t.Context(), uid("alice"), "brand new horse")))
		for _, tk := range []userdb.Token{{Purpose: "reset"}, {Purpose: "change:email", Value: "bare@example.com"}} {
			secret := g.issue(tk)
			secrets = append(secrets, secret)
			e, _, err := g.users.Redeem(t.Context(), tk.Purpose, secret)
			record(e, err)
			_, _, err = g.users.Redeem(t.Context(), tk.Purpose, secret)
			record(nil, err)
		}
		g.refuse("HGETALL")
		_, err := g.users.Login(t.Context(), "s3cret entered as a name", wrongPassword, userdb.Attempt{})
		record(nil, err)
		g.tap.set(nil)
		g.exhaust("nobody", "")
		for _, e := range g.takeEvents() {
			record(e, nil)
			record(slog.AnyValue(e), nil)
		}
		all := strings.Join(printed, "\n") + g.log() + fmt.Sprintf("%v %+v %#v", g.users, g.users, g.db)
		for _, secret := range secrets {
			for _, form := range []string{secret, fmt.Sprintf("%x", secret), fmt.Sprint([]byte(secret))} {
				if i := strings.Index(all, form); i >= 0 {
					t.Errorf("found the secret %q: …%s", secret, all[max(i-100, 0):i+len(form)])
				}
			}
		}
		if at := hashShape.FindStringIndex(all); at != nil {
			t.Errorf("found a hash: …%s", all[max(at[0]-100, 0):at[1]])
		}
	})
}

// A transcript collects everything that a store returns, reports or logs.
type transcript struct {
	mu sync.Mutex
	bytes.Buffer
}

func (tr *transcript) Write(p []byte) (int, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.Buffer.Write(p)
}

// record prints values with many verbs of fmt, as JSON, and as values of log lines.
func (tr *transcript) record(values ...any) {
	text := slog.New(slog.NewTextHandler(tr, nil))
	asJSON := slog.New(slog.NewJSONHandler(tr, nil))
	for _, v := range values {
		fmt.Fprintf(tr, "%v\n%+v\n%#v\n%s\n%q\n%x\n", v, v, v, v, v, fmt.Sprint(v))
		raw, _ := json.Marshal(v)
		fmt.Fprintf(tr, "%s\n", raw)
		text.Info("recorded", "value", v)
		asJSON.Info("recorded", "value", v, "in a group", slog.GroupValue(slog.Any("value", v)))
		text.Info("recorded", "in a list", []any{v}, "in a map", map[string]any{"v": v})
	}
}

const (
	clearPassword = "correct horse battery staple"
	otherPassword = "wrong donkey accumulator clip"
	pepper        = "a pepper of thirty-two bytes ...."
)

// TestSecretsAreNotPrinted calls methods that get a password, prints all answers in many ways, and
// looks for the hash, the passwords and the pepper in them.
func TestSecretsAreNotPrinted(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		out := &transcript{}
		db := s.open(userdb.Options{
			Schema: wideSchema(schema.FoldCasefold), Peppers: [][]byte{[]byte(pepper)},
			Logger:  slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug})),
			OnEvent: func(_ context.Context, e userdb.Event) { out.record(e) },
		})
		users := typeOf(t, db, "user")
		out.record(db, users, users.Tags(hints.UID("u")))
		useEverything(t, s, users, out)
		before, err := users.Find(t.Context(), hints.UID("u"))
		must(t, err)
		for name, method := range basicMethods(db, users, before) {
			if name != "delete" && name != "remove keys" {
				out.record(method(t.Context()))
			}
		}
		hash := s.dump(t.Context())["user/uid:u"].fields["password"]
		if !strings.Contains(hash, "$2a$") {
			t.Fatalf("the stored password is %q, want a bcrypt hash", hash)
		}
		for what, secret := range map[string]string{
			"a hash": "$2a$", "the hash": hash[len(hash)-31:], "the hash in hex": fmt.Sprintf("%x", hash[len(hash)-31:]),
			"the password": clearPassword, "another password": otherPassword, "the pepper": pepper,
			"the pepper in numbers": strings.Trim(fmt.Sprint([]byte(pepper)), "[]"), "the pepper in hex": fmt.Sprintf("%x", pepper),
		} {
			if at := strings.Index(out.String(), secret); at >= 0 {
				t.Errorf("found %s: …%s…", what, out.String()[max(0, at-200):min(out.Len(), at+80)])
			}
		}
		if !strings.Contains(out.String(), "marker") {
			t.Error("the transcript lacks the marker that was stored: nothing was recorded")
		}
	})
}

// useEverything makes a store return, report and log as much as it can.
func useEverything(t *testing.T, s *site, users *userdb.Type, out *transcript) {
	t.Helper()
	ctx := t.Context()
	e, err := users.Create(ctx, userdb.NewEntry{UID: "u", Facets: schema.Texts("name", "n", "job", "marker"), Password: clearPassword})
	must(t, err)
	out.record(e, &e, []userdb.Entry{e}, map[string]userdb.Entry{"e": e}, struct{ E userdb.Entry }{e})
	_, err = users.Create(ctx, userdb.NewEntry{UID: "u", Facets: schema.Texts("name", "n"), Password: clearPassword})
	out.record(err)
	for _, pw := range []string{clearPassword, otherPassword, otherPassword + strings.Repeat("x", 72)} {
		e, err := users.Login(ctx, "N", pw, userdb.Attempt{Origin: "here"})
		out.record(e, err)
	}
	out.record(errOf(users.SetPassword(ctx, hints.UID("u"), clearPassword)))
	out.record(errOf(users.SetPassword(ctx, hints.UID("u"), otherPassword+strings.Repeat("x", 2000))))
	out.record(errOf(users.ChangePassword(ctx, hints.UID("u"), otherPassword, clearPassword, userdb.Attempt{})))
	for e, err := range users.All(ctx, userdb.Query{}) {
		out.record(e, err)
	}
	e, err = users.Update(ctx, hints.UID("u"), func(e *userdb.Entry) error {
		out.record(*e)
		e.Put("password", schema.Text(otherPassword))
		return nil
	})
	out.record(e, err)
	page, err := users.Page(ctx, userdb.Query{})
	out.record(page.Entries, err)
	v, has := e.Get("password")
	out.record(v, has, e.Text("password"))
	must(t, s.raw.HSet(ctx, "user/uid:u", "rating", "{").Err())
	_, err = users.Find(ctx, hints.UID("u"))
	out.record(err)
	must(t, s.raw.HDel(ctx, "user/uid:u", "rating").Err())
}

// TestEventsAreValidText checks that cutting an origin to its maximum length does not cut a
// character in two.
func TestEventsAreValidText(t *testing.T) {
	g := newLoginSite(embeddedSite(t, "memory:"), loginOptions())
	g.add("alice", alicePassword)
	g.events = nil
	must(t, g.logIn("alice", alicePassword, "a"+strings.Repeat("é", 200)))
	events := g.takeEvents()
	if len(events) != 1 || !utf8.ValidString(events[0].Origin) || len(events[0].Origin) != 255 {
		t.Errorf("got %q, want one event with an origin of 255 bytes", events)
	}
}
