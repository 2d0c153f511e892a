package userdb_test

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A lossyCase describes a call on the store of lossyStore while requests or replies are lost.
type lossyCase struct {
	name string
	do   func(ctx context.Context, users *userdb.Type) error
	once bool // it is never sent again, so a lost reply leaves its outcome unknown
}

var lossyMethods = []lossyCase{
	{name: "create", do: func(ctx context.Context, users *userdb.Type) error {
		_, err := users.Create(ctx, userdb.NewEntry{UID: "v", Facets: schema.Texts("name", "m", "job", "j"), Tags: []string{"a"}})
		return err
	}},
	{name: "create with a new UID", do: func(ctx context.Context, users *userdb.Type) error {
		_, err := users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "m")})
		return err
	}},
	{name: "update", do: func(ctx context.Context, users *userdb.Type) error {
		_, err := users.Update(ctx, hints.Any("n"), func(e *userdb.Entry) error {
			n, _ := valueOf(e, "age").Number()
			e.Put("age", schema.Number(n+1))
			e.Put("name", schema.Text("M"))
			return nil
		})
		return err
	}},
	{name: "save", do: func(ctx context.Context, users *userdb.Type) error {
		e, err := users.Find(ctx, hints.UID("u"))
		if err != nil {
			return err
		}
		e.Put("job", schema.Text("other"))
		_, err = users.Save(ctx, e)
		return err
	}},
	{name: "delete", do: func(ctx context.Context, users *userdb.Type) error { return users.Delete(ctx, hints.Any("n")) }},
	{name: "add tags", do: func(ctx context.Context, users *userdb.Type) error {
		_, err := users.Tags(hints.UID("u")).Add(ctx, "a", "b")
		return err
	}},
	{name: "remove tags", do: func(ctx context.Context, users *userdb.Type) error {
		_, err := users.Tags(hints.UID("u")).Remove(ctx, "a")
		return err
	}},
	{name: "set password", do: func(ctx context.Context, users *userdb.Type) error {
		return errOf(users.SetPassword(ctx, hints.UID("u"), "correct horse"))
	}},
	{name: "put a setting", do: func(ctx context.Context, users *userdb.Type) error {
		return users.Hash(hints.UID("u"), "settings").Put(ctx, "k", "v")
	}},
	{name: "append a note", once: true, do: func(ctx context.Context, users *userdb.Type) error {
		_, err := users.List(hints.UID("u"), "notes").Append(ctx, "n")
		return err
	}},
	{name: "increase a score", once: true, do: func(ctx context.Context, users *userdb.Type) error {
		_, err := users.SortedSet(hints.UID("u"), "scores").Increment(ctx, 1, "m")
		return err
	}},
}

// lossyStore creates the entry u that the methods need, with name n, job j and tag a.
func lossyStore(t *testing.T, s *site) *userdb.Type {
	t.Helper()
	users := s.wide()
	_, err := users.Create(t.Context(), userdb.NewEntry{UID: "u", Facets: schema.Texts("name", "n", "job", "j"), Tags: []string{"a"}})
	must(t, err)
	return users
}

// comparableRecords returns the records without the parts that differ from run to run: revisions,
// random UIDs and hashes.
func (s *site) comparableRecords() map[string]string {
	s.t.Helper()
	records := s.dump(context.Background())
	for key, r := range records {
		if live(r) {
			if r.fields["password"] != "" {
				r.fields["password"] = "set"
				delete(r.fields, "~passwd")
				delete(r.fields, "~epoch")
			}
			if uid := r.fields["uid"]; len(uid) == 12 {
				r.fields["uid"], r.fields["~prk"] = "new", "new"
				delete(records, key)
				records["user/uid:new"] = r
			}
		}
		if r.kind == "string" && len(r.text) == len("user/uid:")+12 {
			r.text = "new"
			records[key] = r
		}
	}
	return formatLikeModel(records, view.Of(s.first).NS)
}

// losses lists ways in which a write gets no reply.
var losses = []struct {
	name  string
	times int   // how many writes are lost
	done  bool  // the server carries the write out, and only its reply is lost
	err   error // the error that the client gets
}{
	{"the first answer is lost", 1, true, io.EOF},
	{"two answers are lost", 2, true, os.ErrDeadlineExceeded},
	{"the first request is lost", 1, false, io.ErrUnexpectedEOF},
	{"all answers are lost", 1000, true, io.EOF},
	{"all requests are lost", 1000, false, io.EOF},
}

// TestLostReplies loses requests and replies of lossyMethods. A call that is sent again must not
// run twice, nor find its own values taken. If no reply ever comes, the outcome is unknown, but the
// records must be complete (I7).
func TestLostReplies(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.needs(oneScript)
		for _, method := range lossyMethods {
			s.wipeIfOpen()
			users := lossyStore(t, s)
			before := s.comparableRecords()
			must(t, method.do(t.Context(), users))
			done := s.comparableRecords()
			for _, loss := range losses {
				t.Run(method.name+"/"+loss.name, func(t *testing.T) {
					s.wipe()
					users := lossyStore(t, s)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					s.tap.lose(loss.times, loss.done, loss.err, func(n int) {
						if n == 2 && loss.times > n && method.name != "create" {
							cancel() // or the call would retry for longer than the test needs
						}
					})
					err := method.do(ctx, users)
					s.tap.set(nil)
					if loss.times > 100 || method.once {
						wantErr(t, "without a reply", err, userdb.ErrOutcomeUnknown)
					} else if err != nil {
						t.Errorf("sent again: %v", err)
					}
					want := done
					if !loss.done && (loss.times > 100 || method.once) {
						want = before
					}
					if diff := diffRecords(want, s.comparableRecords()); diff != "" {
						t.Errorf("the records differ:\n%s", diff)
					}
					s.inspect(t)
				})
			}
		}
	})
}

func (s *site) wipeIfOpen() {
	if s.first != nil {
		s.wipe()
	}
}

// An otherWrites function makes the writes of other callers, between a lost reply and the next
// attempt of a call.
type otherWrites func(ctx context.Context, users *userdb.Type) error

func othersUpdate(uid string, times int) otherWrites {
	return func(ctx context.Context, users *userdb.Type) error {
		for i := range times {
			if _, err := users.Update(ctx, hints.UID(uid), func(e *userdb.Entry) error {
				// update.lua changes the plain field, and change.lua the indexed one.
				e.Put([]string{"plain", "job"}[i%2], schema.Text("by others "+strconv.Itoa(i)))
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	}
}

func othersDelete(uid string) otherWrites {
	return func(ctx context.Context, users *userdb.Type) error { return users.Delete(ctx, hints.UID(uid)) }
}

func othersRecreate(uid string) otherWrites {
	return func(ctx context.Context, users *userdb.Type) error {
		if err := users.Delete(ctx, hints.UID(uid)); err != nil && !errors.Is(err, userdb.ErrNotFound) {
			return err
		}
		_, err := users.Create(ctx, userdb.NewEntry{UID: uid, Facets: schema.Texts("name", "theirs")})
		return err
	}
}

func othersTake(value string) otherWrites {
	return func(ctx context.Context, users *userdb.Type) error {
		_, err := users.Create(ctx, userdb.NewEntry{UID: "w", Facets: schema.Texts("email", value)})
		return err
	}
}

// lossesAmongOthers lists calls whose first attempt gets no reply, the writes of other callers
// before the next attempt, and the error that the call must return.
var lossesAmongOthers = []struct {
	method string
	writes otherWrites
	name   string
	done   bool // the server carries the first attempt out, and only its reply is lost
	want   error
}{
	{"create", othersUpdate("v", 1), "the entry was changed", true, nil},
	{"create", othersUpdate("v", 5), "the entry was changed too often", true, userdb.ErrOutcomeUnknown},
	{"create", othersDelete("v"), "the entry was deleted", true, nil},
	{"create", othersRecreate("v"), "the entry was created again", true, nil},
	{"create", othersRecreate("v"), "another entry has the UID", false, userdb.ErrDuplicate},
	{"create", othersTake("M"), "another entry has the value", false, userdb.ErrDuplicate},
	{"update", othersUpdate("u", 2), "the entry was changed", true, nil},
	{"update", othersUpdate("u", 5), "the entry was changed too often", true, userdb.ErrOutcomeUnknown},
	{"update", othersTake("M"), "another entry has the value", false, userdb.ErrDuplicate},
	{"update", othersDelete("u"), "the entry was deleted", true, nil},
	{"update", othersDelete("u"), "the entry was deleted before", false, userdb.ErrNotFound},
	{"save", othersUpdate("u", 1), "the entry was changed before", false, userdb.ErrConflict},
	{"delete", othersRecreate("u"), "the entry was created again", true, nil},
	{"delete", othersDelete("u"), "another caller deleted it", false, userdb.ErrNotFound},
}

// lossyMethod returns the element of lossyMethods with the given name.
func lossyMethod(name string) lossyCase {
	return lossyMethods[slices.IndexFunc(lossyMethods, func(v lossyCase) bool { return v.name == name })]
}

// TestLostReplyAndOtherWrites lets other callers write between a lost reply and the next attempt of
// a method. Their writes must stay.
func TestLostReplyAndOtherWrites(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.needs(interleaves)
		s.needs(oneScript)
		for _, c := range lossesAmongOthers {
			method := lossyMethod(c.method)
			t.Run(method.name+"/"+c.name, func(t *testing.T) {
				s.wipeIfOpen()
				users := lossyStore(t, s)
				var theirs map[string]string
				s.tap.lose(1, c.done, io.EOF, func(int) {
					s.tap.set(nil)
					must(t, c.writes(t.Context(), users))
					theirs = formatRecords(s.dump(t.Context()), "")
				})
				err := method.do(t.Context(), users)
				s.tap.set(nil)
				if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if diff := diffRecords(theirs, formatRecords(s.dump(t.Context()), "")); diff != "" {
					t.Errorf("the writes of others were changed:\n%s", diff)
				}
				s.inspect(t)
			})
		}
	})
}

// TestLostOnTheWire closes the connection before the request of one of lossyMethods, or the reply
// to it, gets through. The request must be sent again. If the method is one that is never sent
// again, the outcome must be unknown instead.
func TestLostOnTheWire(t *testing.T) {
	s, proxy := startProxied(t)
	for _, method := range lossyMethods {
		s.wipeIfOpen()
		users := lossyStore(t, s)
		before := s.comparableRecords()
		must(t, method.do(t.Context(), users))
		done := s.comparableRecords()
		for what, cut := range map[string]func(int, string){"request": proxy.CutRequests, "answer": proxy.CutReplies} {
			s.wipe()
			users := lossyStore(t, s)
			cuts := proxy.Cuts()
			cut(1, "~/schema/")
			err := method.do(t.Context(), users)
			if proxy.Cuts() != cuts+1 {
				t.Errorf("%s: %d connections were closed, want one to lose the %s", method.name, proxy.Cuts()-cuts, what)
			}
			want := done
			switch {
			case !method.once && err != nil:
				t.Errorf("%s, its %s lost: %v", method.name, what, err)
			case method.once:
				wantErr(t, method.name+", its "+what+" lost", err, userdb.ErrOutcomeUnknown)
				if what == "request" {
					want = before
				}
			}
			if diff := diffRecords(want, s.comparableRecords()); diff != "" {
				t.Errorf("%s, its %s lost:\n%s", method.name, what, diff)
			}
			s.inspect(t)
		}
	}
}
