package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// noon is the time on the stopped clock. While it stands still, waits, such as those after failed
// logins, never end.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func (s *site) stopClock(t *testing.T) {
	t.Helper()
	s.Edit(t, func(c *view.Config) { c.Clock = func() time.Time { return noon } })
}

// lockedSite creates the user u1 with a token, and locks it by failed logins. It returns the type,
// the secret of the token, and the log of all later events.
func lockedSite(t *testing.T, s *site) (typ *userdb.Type, secret string, log *bytes.Buffer) {
	t.Helper()
	s.stopClock(t)
	s.User(t, 1)
	typ = s.Type(t, "user")
	secret, err := typ.Issue(s.Ctx, hints.UID("u1"), userdb.Token{Purpose: "reset"})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := typ.Login(s.Ctx, "u1@x.org", "wrong", userdb.Attempt{}); !errors.Is(err, userdb.ErrLogin) {
			t.Fatal(err)
		}
	}
	if _, err := typ.Login(s.Ctx, "u1@x.org", "wrong", userdb.Attempt{}); !errors.Is(err, userdb.ErrTooManyAttempts) {
		t.Fatal(err)
	}
	log = &bytes.Buffer{}
	s.Edit(t, func(c *view.Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
	return s.Type(t, "user"), secret, log
}

// markImported marks the password of u1 as set by an import.
func (s *site) markImported(t *testing.T) {
	t.Helper()
	s.Do(t, "HSET", "user/uid:u1", "~imported", "earlier")
}

// passwordChanged returns the time at which the password of u1 was set.
func (s *site) passwordChanged(t *testing.T) time.Time {
	t.Helper()
	e, err := s.Type(t, "user").Find(s.Ctx, hints.UID("u1"))
	if err != nil {
		t.Fatal(err)
	}
	return e.PasswordChanged()
}

// TestImportSetsPasswords checks that a new password has the effect of SetPassword: its time is
// now, whatever the line says, tokens are void, failures are forgotten, and an event is logged.
func TestImportSetsPasswords(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		s.stopClock(t)
		s.User(t, 2)
		hash, err := transfer.PasswordHash(s.Ctx, s.DB, "user", hints.UID("u2"))
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct{ password, line string }{
			{"correct horse u2", `{"facets":{"uid":"u1"},"password":"` + hash + `"}`},
			{"correct horse u2", `{"facets":{"email":"u1@x.org"},"password":"` + hash + `","password_changed":"2001-02-03"}`},
			{"correct horse u2", `{"facets":{"uid":"u1"},"password":"` + hash + `","password_changed":"2999-02-03"}`},
			{"other horse", `{"facets":{"uid":"u1"},"clear_password":"other horse","password_changed":"2001-02-03"}`},
		} {
			typ, secret, log := lockedSite(t, s)
			s.markImported(t)
			before := s.passwordChanged(t)
			s.importText(t, tt.line, transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate}, transfer.Report{Read: 1, Updated: 1})
			if at := s.passwordChanged(t); !at.After(before) || at.After(noon.Add(time.Second)) {
				t.Errorf("%s: the password was set at %v, want it between its earlier time %v and now, %v", tt.line, at, before, noon)
			}
			if _, _, err := typ.Redeem(s.Ctx, "reset", secret); !errors.Is(err, userdb.ErrNotFound) {
				t.Errorf("%s: redeeming a token: got %v, want ErrNotFound", tt.line, err)
			}
			if _, err := typ.Login(s.Ctx, "u1@x.org", tt.password, userdb.Attempt{}); err != nil {
				t.Errorf("%s: login: %v", tt.line, err)
			}
			if n := strings.Count(log.String(), `msg="userdb password" prk=user/uid:u1`); n != 1 {
				t.Errorf("%s: logged %d times, want once:\n%s", tt.line, n, log)
			}
			if err := typ.Delete(s.Ctx, hints.UID("u1")); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestImportKeepsPasswords checks that a line with the same hash or without one does not have the
// effect of SetPassword.
func TestImportKeepsPasswords(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		typ, secret, log := lockedSite(t, s)
		before := s.passwordChanged(t)
		hash, err := transfer.PasswordHash(s.Ctx, s.DB, "user", hints.UID("u1"))
		if err != nil {
			t.Fatal(err)
		}
		in := `{"facets":{"uid":"u1","job":"Smith"},"password":"` + hash + `","password_changed":"2001-02-03"}
{"facets":{"uid":"u1","job":"Baker"},"password_changed":"2001-02-03"}
`
		s.importText(t, in, transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate}, transfer.Report{Read: 2, Updated: 2})
		if at := s.passwordChanged(t); !at.Equal(before) || strings.Contains(log.String(), "userdb password") {
			t.Errorf("the password was set at %v, want %v as before; want no password event, logged: %s", at, before, log)
		}
		if _, err := typ.Login(s.Ctx, "u1@x.org", "correct horse u1", userdb.Attempt{}); !errors.Is(err, userdb.ErrTooManyAttempts) {
			t.Errorf("login: got %v, want ErrTooManyAttempts", err)
		}
		if _, _, err := typ.Redeem(s.Ctx, "reset", secret); err != nil {
			t.Errorf("redeeming a token: %v", err)
		}
	})
}

// TestImportDisables checks that a line with "disabled" has the effect of Disable, and has none if
// it is imported again.
func TestImportDisables(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		typ, secret, log := lockedSite(t, s)
		in := `{"facets":{"uid":"u1"},"disabled":"2001-02-03"}`
		s.importText(t, in, transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate}, transfer.Report{Read: 1, Updated: 1})
		first := s.export(t, transfer.ExportOptions{})
		s.importText(t, in, transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate}, transfer.Report{Read: 1, Skipped: 1})
		if again := s.export(t, transfer.ExportOptions{}); again != first || !strings.Contains(first, `"disabled":"2026-11-20T12:00:00.000Z"`) {
			t.Errorf("exported\n%s\nand after the second import\n%s", first, again)
		}
		if n := strings.Count(log.String(), `msg="userdb disable" prk=user/uid:u1`); n != 1 {
			t.Errorf("logged %d times, want once:\n%s", n, log)
		}
		if err := typ.Enable(s.Ctx, hints.UID("u1")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := typ.Redeem(s.Ctx, "reset", secret); !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("redeeming a token: got %v, want ErrNotFound", err)
		}
	})
}

// TestImportFutureDates checks that future dates become now. Otherwise every session would remain
// older than the password.
func TestImportFutureDates(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		s.stopClock(t)
		const in = `{"facets":{"uid":"u1"},"clear_password":"correct horse","password_changed":"+275760-09-13","disabled":"2999-01-01"}
{"facets":{"uid":"u2"},"disabled":"2001-02-03","password_changed":"2001-02-03T04:05:06+01:00"}
`
		s.importText(t, in, transfer.ImportOptions{}, created(2))
		if at := s.passwordChanged(t); !at.Equal(noon) {
			t.Errorf("the password was set at %v, want %v", at, noon)
		}
		got := s.export(t, transfer.ExportOptions{})
		if !strings.Contains(got, `"disabled":"2026-11-20T12:00:00.000Z"}`) || !strings.Contains(got, `"password_changed":"2001-02-03T03:05:06.000Z","disabled":"2001-02-03T00:00:00.000Z"}`) {
			t.Errorf("exported\n%s\nwant u1 disabled now, and u2 with the dates of its line", got)
		}
	})
}

// TestImportChecksPasswordPolicy checks that a clear password is compared with the identifiers of
// the existing entry, even if the line does not contain them.
func TestImportChecksPasswordPolicy(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		s.User(t, 1)
		s.markImported(t)
		const in = `{"facets":{"uid":"u1"},"clear_password":"Name of u1"}
{"facets":{"uid":"u1","name":"some other name"},"clear_password":"u1@x.org"}
{"facets":{"uid":"u1","name":"some other name"},"clear_password":"Name of u1"}
`
		for _, dry := range []bool{true, false} {
			var reasons []string
			o := transfer.ImportOptions{
				OnDuplicate: transfer.DuplicateUpdate, DryRun: dry,
				Refused: func(line int64, reason string) { reasons = append(reasons, fmt.Sprint(line, " ", reason)) },
			}
			s.importText(t, in, o, transfer.Report{Read: 3, Updated: 1, Refused: 2})
			for i, reason := range reasons {
				if !strings.HasPrefix(reason, fmt.Sprint(i+1)+" ") || !strings.Contains(reason, "password") {
					t.Errorf("dry run %v: the refusal is %q, want line %d and the password in it", dry, reason, i+1)
				}
			}
		}
	})
}

// A busyHashing counts its calls, and returns err from the call whose number is refuse.
type busyHashing struct {
	view.Hashing
	calls  atomic.Int32
	refuse int32
	err    error
}

func (h *busyHashing) refusal() error {
	if h.calls.Add(1) == h.refuse {
		return h.err
	}
	return nil
}

func (h *busyHashing) Hash(ctx context.Context, t *change.Type, pw string, own []string) (string, error) {
	if err := h.refusal(); err != nil {
		return "", err
	}
	return h.Hashing.Hash(ctx, t, pw, own)
}

func (h *busyHashing) Check(ctx context.Context, t *change.Type, pw string, own []string) error {
	if err := h.refusal(); err != nil {
		return err
	}
	return h.Hashing.Check(ctx, t, pw, own)
}

func (h *busyHashing) Matches(ctx context.Context, t *change.Type, hash string, imported bool, pw string) (bool, error) {
	if err := h.refusal(); err != nil {
		return false, err
	}
	return h.Hashing.Matches(ctx, t, hash, imported, pw)
}

// TestImportWaitsForProcessors makes each hash, check and comparison of a password fail in turn. If
// the processors are busy, the import must wait. If the store is unavailable, it must end, so that
// it can be resumed. In neither case may it refuse a line.
func TestImportWaitsForProcessors(t *testing.T) {
	// The passwords differ each time, because an equal one is not hashed again.
	n := 0
	in := func() io.Reader {
		n++
		const line = `{"facets":{"uid":"%s"},"clear_password":"correct horse %d"}` + "\n"
		return strings.NewReader(fmt.Sprintf(line+line, "u1", n, "u7", n))
	}
	for _, dry := range []bool{false, true} {
		t.Run(fmt.Sprint("dry run ", dry), func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *site) {
				s = s.Under(t, fullSchema())
				// u1 has an identifier that the lines above lack, and an imported password.
				const before = `{"facets":{"uid":"u1","email":"u1@example.com"},"clear_password":"correct horse"}`
				s.importText(t, before, transfer.ImportOptions{}, transfer.Report{Read: 1, Created: 1})
				h, c := &busyHashing{}, &view.Of(s.DB).Config
				h.Hashing, c.Hashing = c.Hashing, h
				o := transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate, DryRun: dry}
				o.Refused = func(line int64, reason string) { t.Errorf("call %d: line %d: %s", h.refuse, line, reason) }
				for h.refuse = 1; ; h.refuse++ {
					h.calls.Store(0)
					h.err = fmt.Errorf("hashing: %w", userdb.ErrUnavailable)
					r, err := transfer.Import(s.Ctx, s.DB, in(), o)
					if h.calls.Load() < h.refuse {
						break
					}
					if !errors.Is(err, userdb.ErrUnavailable) || r.Read != 0 {
						t.Errorf("call %d is refused: got %+v, %v; want nothing read and ErrUnavailable", h.refuse, r, err)
					}
					h.calls.Store(0)
					h.err = &userdb.BusyError{Wait: time.Millisecond}
					if r, err = transfer.Import(s.Ctx, s.DB, in(), o); err != nil || r.Read != 2 {
						t.Errorf("call %d finds no free processor: got %+v, %v; want two lines read", h.refuse, r, err)
					}
				}
				// Two hashes, a comparison with u1, and a check against its identifiers.
				if h.refuse < 5 {
					t.Errorf("an import made %d calls, want at least 4", h.refuse-1)
				}
			})
		})
	}
}

// TestOwnFieldsAreNotFacets checks that neither Update, Save nor an import changes the store's own
// fields or the hash as if they were facets.
func TestOwnFieldsAreNotFacets(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		s.User(t, 1)
		typ := s.Type(t, "user")
		before := s.export(t, transfer.ExportOptions{Secrets: true})
		for _, field := range []string{"password", "~disabled", "~changed", "~key", "~rev", "~isa", "~fence"} {
			for name, change := range map[string]func(*userdb.Entry){
				"put":  func(e *userdb.Entry) { e.Put(field, schema.Text("2001-02-03")) },
				"drop": func(e *userdb.Entry) { e.Drop(field) },
			} {
				_, err := typ.Update(s.Ctx, hints.UID("u1"), func(e *userdb.Entry) error { change(e); return nil })
				if (name == "put" || field == "password") && !errors.Is(err, userdb.ErrInvalid) {
					t.Errorf("update, %s %s: got %v, want ErrInvalid", name, field, err)
				}
				e, err := typ.Find(s.Ctx, hints.UID("u1"))
				if err != nil {
					t.Fatal(err)
				}
				change(&e)
				if _, err = typ.Save(s.Ctx, e); (name == "put" || field == "password") && !errors.Is(err, userdb.ErrInvalid) {
					t.Errorf("save after %s %s: got %v, want ErrInvalid", name, field, err)
				}
			}
			line := `{"facets":{"uid":"u1","` + field + `":"2001-02-03"}}`
			s.importText(t, line, transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate, Refused: func(int64, string) {}}, transfer.Report{Read: 1, Refused: 1})
		}
		if after := s.export(t, transfer.ExportOptions{Secrets: true}); after != before {
			t.Errorf("exported\n%s\nbefore the test\n%s", after, before)
		}
	})
}

// TestImportDisabledColumn imports a printed table of entries, which has a column ~disabled. Other
// columns that begin with ~ are refused unless they can be ignored safely. A header with another
// delimiter is also refused.
func TestImportDisabledColumn(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		s.stopClock(t)
		const in = `uid,name,~disabled,disabled,~isa,~prk,~rev
1,Ann,true,,user,user/uid:1,abc
2,Ben,false,,user,,
3,Cid,,,,,
4,Dan,true,2001-02-03,,,
5,Eve,maybe,,,,
6,Fay,false,2001-02-03,,,
`
		var reasons []string
		o := transfer.ImportOptions{CSV: true, Refused: func(line int64, reason string) { reasons = append(reasons, fmt.Sprint(line, " ", reason)) }}
		s.importText(t, in, o, transfer.Report{Read: 6, Created: 4, Refused: 2})
		testdb.Same(t, "reasons", reasons, []string{"6 ~disabled is neither true nor false", "7 both disabled and not disabled"})
		got := s.export(t, transfer.ExportOptions{})
		want := `{"type":"user","facets":{"name":"Ann","uid":"1"},"disabled":"2026-11-20T12:00:00.000Z"}
{"type":"user","facets":{"name":"Ben","uid":"2"}}
{"type":"user","facets":{"name":"Cid","uid":"3"}}
{"type":"user","facets":{"name":"Dan","uid":"4"},"disabled":"2001-02-03T00:00:00.000Z"}
`
		if got != want {
			t.Errorf("exported\n%s\nwant\n%s", got, want)
		}
		_, err := transfer.Import(s.Ctx, s.DB, strings.NewReader("uid,~changed\n9,2001-02-03\n"), transfer.ImportOptions{CSV: true})
		if !errors.Is(err, transfer.ErrInput) || !strings.Contains(err.Error(), `"~changed"`) {
			t.Errorf("a column that is not a facet: got %v, want ErrInput", err)
		}
		for _, in := range []string{"uid;name\n9;Gil\n", "\ufeffuid\tname\n9\tGil\n", "uid|name\n"} {
			_, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(in), transfer.ImportOptions{CSV: true})
			if !errors.Is(err, transfer.ErrInput) || !strings.Contains(err.Error(), "name that delimiter") {
				t.Errorf("importing %q: got %v, want ErrInput, which asks for the delimiter", in, err)
			}
		}
		refused := transfer.ImportOptions{Refused: func(int64, string) {}}
		s.importText(t, `{"facets":{"uid":"9","~disabled":true}}`, refused, transfer.Report{Read: 1, Refused: 1})
	})
}

// TestVerifiedRoundTrip checks that an export marks verified addresses and that an import keeps the
// marks, for new and for existing entries.
func TestVerifiedRoundTrip(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		line := `{"type":"user","facets":{"uid":"v","name":"vera","email":"v@x.org"},"verified":["email"]}` + "\n"
		importLine := func(text string, o transfer.ImportOptions) error {
			t.Helper()
			refused := ""
			o.Refused = func(_ int64, reason string) { refused = reason }
			_, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(text), o)
			if err == nil && refused != "" {
				err = errors.New(refused)
			}
			return err
		}
		if err := importLine(line, transfer.ImportOptions{}); err != nil {
			t.Fatal(err)
		}
		find := func() userdb.Entry {
			t.Helper()
			e, err := s.Type(t, "user").Find(s.Ctx, hints.UID("v"))
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		if !find().Verified("email") || find().Verified("name") {
			t.Error("a new entry: want email verified and name not verified")
		}
		var out bytes.Buffer
		if _, err := transfer.Export(s.Ctx, s.DB, &out, transfer.ExportOptions{}); err != nil || !strings.Contains(out.String(), `"verified":["email"]`) || strings.Contains(out.String(), "~") {
			t.Errorf("exported %s, want email verified and no own field; error %v", out.String(), err)
		}
		update := transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate}
		if err := importLine(strings.Replace(line, `,"verified":["email"]`, "", 1), update); err != nil || !find().Verified("email") {
			t.Errorf("an update without verified: error %v, or email is no longer verified", err)
		}
		if err := importLine(strings.Replace(strings.Replace(line, `,"verified":["email"]`, "", 1), "v@x", "w@x", 1), update); err != nil || find().Verified("email") {
			t.Errorf("an update to another address: error %v, or email is still verified", err)
		}
		if err := importLine(strings.Replace(line, "v@x", "w@x", 1), update); err != nil || !find().Verified("email") {
			t.Errorf("an update with verified: error %v, or email is not verified", err)
		}
		for _, bad := range []string{`"verified":["job"]`, `"verified":"email"`, `"verified":["uid"]`, `"verified":[1]`} {
			if err := importLine(strings.Replace(line, `"verified":["email"]`, bad, 1), update); err == nil {
				t.Errorf("%s was accepted", bad)
			}
		}
	})
}

// TestImportEndsSessions checks that a new hash or disabling ends the sessions of an entry, and
// that other updates and repeated ones do not.
func TestImportEndsSessions(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.User(t, 1)
		s.markImported(t)
		users := s.Type(t, "user")
		begin := func() string {
			t.Helper()
			e, err := users.Find(s.Ctx, hints.UID("u1"))
			if err != nil {
				t.Fatal(err)
			}
			_, secret, err := users.StartSession(s.Ctx, e, userdb.SessionOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return secret
		}
		for _, tt := range []struct {
			line string
			ends bool
		}{
			{`{"type":"user","facets":{"uid":"u1","job":"cook"}}`, false},
			{`{"type":"user","facets":{"uid":"u1"},"password":"$2b$04$abcdefghijklmnopqrstuOHsoiP8HS1ydcFUgUT8dnGmu/ICQA3Ai"}`, true},
			{`{"type":"user","facets":{"uid":"u1"},"password":"$2b$04$abcdefghijklmnopqrstuOHsoiP8HS1ydcFUgUT8dnGmu/ICQA3Ai"}`, false},
			{`{"type":"user","facets":{"uid":"u1"},"disabled":"2026-11-20T12:00:00Z"}`, true},
		} {
			secret := begin()
			o := transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate, Refused: func(_ int64, reason string) { t.Errorf("%s: %s", tt.line, reason) }}
			if _, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(tt.line+"\n"), o); err != nil {
				t.Fatal(err)
			}
			if _, _, err := users.Session(s.Ctx, secret); (err == nil) == tt.ends || err != nil && !errors.Is(err, userdb.ErrNotFound) {
				t.Errorf("%s: using the session: got %v, want it to be ended: %v", tt.line, err, tt.ends)
			}
		}
	})
}
