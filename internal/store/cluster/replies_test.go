package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// TestTemporaryRefusal lets a server refuse one of the protocol's commands for a while, as it does
// while a slot moves, when it is no longer a master, or when it loads. The command must be sent
// until it is carried out, and at most maxAttempts times.
func TestTemporaryRefusal(t *testing.T) {
	for _, answer := range []replyError{
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"READONLY You can't write against a read only replica.",
		"CLUSTERDOWN The cluster is down",
		"LOADING Redis is loading the dataset in memory",
		"NOREPLICAS Not enough good replicas to write.",
	} {
		for _, s := range []redisx.Script{claimScript, stageScript, commitScript, onekey.PromoteScript, onekey.FilledScript} {
			for _, times := range []int{1, 4, 1 << 20} {
				code, _, _ := strings.Cut(string(answer), " ")
				name := fmt.Sprintf("%s/%s/%d times", code, nameOf(s), times)
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { createRefused(t, answer, s, times) })
				})
			}
		}
	}
}

// createRefused creates an entry on a server that refuses one script the given number of times.
func createRefused(t *testing.T, answer replyError, refused redisx.Script, times int) {
	t.Helper()
	count := 0
	s := newSimulation(newWorld(unchanged), func(_ *actor, args []string) ([]string, any) {
		if args[0] == "evalsha" && args[1] == refused.SHA && count < times {
			count++
			return nil, answer
		}
		return args, nil
	})
	s.patience = 1000
	s.reset(noRecords())
	s.addActor(sequence(create("P", "email=x", "red")))
	synctest.Wait()
	defer s.close()
	a := s.actors[0]
	for len(a.waiting()) > 0 {
		s.step(a.waiting()[0], none)
	}
	err := a.results[0]
	committed := refused.SHA != claimScript.SHA && refused.SHA != stageScript.SHA && refused.SHA != commitScript.SHA
	switch ended := times < maxAttempts; {
	case ended && (err != nil || count != times || s.garbage() != ""):
		t.Errorf("refused %d times: got %v, and garbage %q; want %d times, success and no garbage", count, err, s.garbage(), times)
	case !ended && count != maxAttempts:
		t.Errorf("the script was sent %d times, want %d", count, maxAttempts)
	case !ended && committed && err != nil:
		t.Errorf("got %v after the commit, want success", err)
	case !ended && !committed && (!errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown) || !strings.Contains(err.Error(), string(answer))):
		t.Errorf("got %v, want ErrUnavailable with the cause", err)
	case !ended && !committed && s.recordOf("user/uid:P").Live():
		t.Error("the entry is live, although its create was refused")
	}
	if v := s.violation(); v != "" {
		t.Error(v)
	}
}

// TestNoScript uses servers that know no script, as new masters do. The scripts must be sent in
// full.
func TestNoScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sources := map[string]string{}
		for _, s := range allScripts {
			sources[s.Source] = s.SHA
		}
		sent := map[string]int{}
		s := newSimulation(newWorld(unchanged), func(_ *actor, args []string) ([]string, any) {
			switch args[0] {
			case "evalsha":
				return nil, replyError("NOSCRIPT No matching script. Please use EVAL.")
			case "eval":
				sha := sources[args[1]]
				sent[sha]++
				return append([]string{"evalsha", sha}, args[2:]...), nil
			}
			return args, nil
		})
		s.reset(noRecords())
		s.addActor(sequence(create("P", "email=x", "red"), update("P", "email=y"), remove("P"), create("P", "email=z")))
		synctest.Wait()
		defer s.close()
		a := s.actors[0]
		for len(a.waiting()) > 0 {
			s.step(a.waiting()[0], none)
		}
		if err := errors.Join(a.results...); err != nil || s.garbage() != "" || s.violation() != "" {
			t.Errorf("got %v, garbage %q, violation %q; want success and neither", err, s.garbage(), s.violation())
		}
		for _, script := range []redisx.Script{claimScript, swapScript, commitScript, dyingScript, stageScript, onekey.PromoteScript, onekey.FilledScript} {
			if sent[script.SHA] == 0 {
				t.Errorf("the script %s was never sent in full", nameOf(script))
			}
		}
	})
}

// TestUnexpectedReplies gives one command a reply of a kind that it never has, as a client that
// changes commands may do. No verb may conclude from it that a record is absent, that a value is
// taken, or that a change was made.
func TestUnexpectedReplies(t *testing.T) {
	numbers := []any{nil, "1", []any{}, []any{"ok"}}
	verdicts := []any{nil, "ok", int64(1), []any{}, []any{int64(1)}, []any{"odd"}}
	for _, tt := range []struct {
		name, command, first string
		odd                  []any
	}{
		{"exists", "exists", "", numbers},
		{"add", "evalsha", addScript.SHA, verdicts},
		{"claim", "evalsha", claimScript.SHA, []any{nil, []any{}}},
		{"stage", "evalsha", stageScript.SHA, numbers},
		{"fence", "evalsha", fenceScript.SHA, numbers},
		{"swap", "evalsha", swapScript.SHA, numbers},
		{"commit", "evalsha", commitScript.SHA, verdicts},
	} {
		for _, odd := range tt.odd {
			t.Run(fmt.Sprintf("%s replies %v of type %T", tt.name, odd, odd), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					oddReply(t, func(args []string) bool {
						return strings.EqualFold(args[0], tt.command) && (tt.first == "" || args[1] == tt.first)
					}, odd)
				})
			})
		}
	}
}

// oddReply creates an entry and adds a tag. The server gives the reply odd to each command that
// matches.
func oddReply(t *testing.T, matches func(args []string) bool, odd any) {
	t.Helper()
	s := newSimulation(newWorld(unchanged), func(_ *actor, args []string) ([]string, any) {
		if matches(args) {
			return nil, odd
		}
		return args, nil
	})
	s.patience = 1000
	s.reset(map[string]*cell{"user/email:x/~prk": text("user/uid:Q " + someRev)})
	s.addActor(sequence(create("P", "email=x name=n", "red"), tag("P", "blue")))
	synctest.Wait()
	defer s.close()
	a := s.actors[0]
	for len(a.waiting()) > 0 {
		s.step(a.waiting()[0], none)
	}
	var first error
	for _, err := range a.results {
		if err != nil {
			first = err
			break
		}
	}
	if !errors.Is(first, store.ErrReply) || !errors.Is(first, store.ErrUnavailable) && !errors.Is(first, store.ErrOutcomeUnknown) {
		t.Errorf("got %v, want ErrReply with ErrUnavailable or ErrOutcomeUnknown", first)
	}
	if v := s.violation(); v != "" {
		t.Error(v)
	}
}

// TestOutcomeUnknown checks that the outcome of a commit is unknown if no answer comes, or if one
// comes only after the entry has forgotten the commit's rev. The attempt must then leave claims
// in place (step 7 of docs/design/protocol.md).
func TestOutcomeUnknown(t *testing.T) {
	for _, tt := range []struct {
		name    string
		lost    int    // lost answers to the commit
		between []verb // what others do before the commit is sent again
		want    error
	}{
		{name: "answered", want: nil},
		{name: "one answer is lost", lost: 1, want: nil},
		{name: "no answer comes", lost: 1000, want: store.ErrOutcomeUnknown},
		{name: "others changed the entry, which remembers the rev", lost: 1, between: sequence(update("P", "name=a"), update("P", "name=b")), want: nil},
		{
			name: "others changed the entry, which has forgotten the rev", lost: 1, want: store.ErrOutcomeUnknown,
			between: sequence(update("P", "name=a"), update("P", "name=b"), update("P", "name=c"), update("P", "name=d")),
		},
		{
			name: "others deleted the entry, and created it again", lost: 1, want: store.ErrOutcomeUnknown,
			between: sequence(remove("P"), create("P", "name=a"), remove("P"), create("P", "name=b")),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimulation(newWorld(unchanged), nil)
				s.reset(noRecords())
				s.addActor(sequence(create("P", "email=x")))
				synctest.Wait()
				lose := tt.lost
				for a := s.actors[0]; len(a.waiting()) > 0; {
					r, f := a.waiting()[0], none
					if r.cmd != nil && lose > 0 && r.args[1] == commitScript.SHA {
						lose, f = lose-1, lost
					}
					s.step(r, f)
					if f == lost && len(tt.between) > 0 {
						s.addActor(tt.between)
						synctest.Wait()
						for b := s.actors[len(s.actors)-1]; len(b.waiting()) > 0; {
							s.step(b.waiting()[0], none)
						}
					}
					if v := s.violation(); v != "" {
						t.Fatal(v)
					}
				}
				if err := s.actors[0].results[0]; !errors.Is(err, tt.want) || errors.Is(err, store.ErrDuplicate) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				if s.commits["0: 0 create P email=x"] != 1 {
					t.Errorf("committed %d times, want once", s.commits["0: 0 create P email=x"])
				}
			})
		})
	}
}

// TestFinishedAfterUnknownOutcome carries out a change of which no answer arrives. When the caller
// has its error, the indexes and the tags must still agree with the entry, and the history and the
// feed must have a line of the change.
func TestFinishedAfterUnknownOutcome(t *testing.T) {
	withJob := func() map[string]*cell {
		cells := withTags("red")()
		cells["user/uid:A"].hash["job"] = "a"
		cells["user/job:a/~prks"] = setOf("user/uid:A")
		return cells
	}
	for _, tt := range []struct {
		name  string
		start func() map[string]*cell
		verb  verb
		gone  []string // records that must be gone
	}{
		{"create", noRecords, create("A", "email=x job=a", "red"), nil},
		{"update", withJob, update("A", "job=b"), nil},
		{"replace tags", withJob, retag("A", "blue"), nil},
		{"add a tag", withJob, tag("A", "blue"), nil},
		{"remove a tag", withJob, untag("A", "red"), nil},
		{"delete", withJob, remove("A"), []string{"user/uid:A/tags", "user/tags:red/~prks", "user/job:a/~prks"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimulation(newWorld(unchanged), nil)
				s.patience = 1000
				s.reset(tt.start())
				s.addActor(sequence(withNote(tt.verb)))
				synctest.Wait()
				defer s.close()
				for a := s.actors[0]; len(a.waiting()) > 0; {
					r, f := a.waiting()[0], none
					if r.cmd != nil && slices.Contains([]string{commitScript.SHA, actScript.SHA}, r.args[1]) {
						f = lost
					}
					s.step(r, f)
				}
				if err := s.actors[0].results[0]; !errors.Is(err, store.ErrOutcomeUnknown) {
					t.Errorf("got %v, want an unknown outcome", err)
				}
				for _, key := range tt.gone {
					if c := s.world.at(key); c != nil {
						t.Errorf("%s is left: %v", key, c)
					}
				}
				if lines, fed := s.linesOfA(), s.feedOfA(); len(lines) != 1 || len(fed) != 1 {
					t.Errorf("got the history %q and the feed %q, want one line in each", lines, fed)
				}
				if v := s.garbage(); v != "" && (tt.gone == nil || !strings.HasPrefix(v, "I4")) {
					t.Error(v)
				}
			})
		})
	}
}

// TestManyUnknownOutcomes checks that at most maxFinishers changes are finished at once, and that a
// change after which nothing is due starts no work.
func TestManyUnknownOutcomes(t *testing.T) {
	e, _ := newDirectEngine(t, entries(someRev, "A name=n")())
	var begun []func()
	e.goDetached = func(ctx context.Context, _ time.Duration, do func(context.Context)) {
		begun = append(begun, func() { do(ctx) })
	}
	prk := parsed(t, "user/uid:A")
	alignIfCommitted := func(c store.Change) {
		c.Key = prk
		newAttempt(e, c).alignIfCommitted(t.Context(), store.ErrOutcomeUnknown)
	}
	alignIfCommitted(store.Change{})
	if len(begun) > 0 {
		t.Error("work was started although nothing is due")
	}
	indexed := store.Change{Index: []recordkey.Key{parsed(t, "user/job:cook/~prks")}}
	for range maxFinishers + 1 {
		alignIfCommitted(indexed)
	}
	if len(begun) != maxFinishers {
		t.Fatalf("%d changes are being finished, want %d", len(begun), maxFinishers)
	}
	for _, do := range begun {
		do()
	}
	if alignIfCommitted(indexed); len(begun) != maxFinishers+1 {
		t.Error("another change is not finished although no other is being finished")
	}
}

// TestLostReplyInOpenSlot adds a tag and loses the reply, so that the command is sent again while
// its slot is being migrated. The history must have a line for the tag if, and only if, it was new.
func TestLostReplyInOpenSlot(t *testing.T) {
	for name, before := range map[string][]string{"a new tag": {"m"}, "an existing tag": {"m", "red"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				s := newSimulation(newWorld(unchanged), func(_ *actor, args []string) ([]string, any) {
					if args[1] == actScript.SHA {
						if sent++; sent > 1 {
							return nil, elsewhere[tryAgain]
						}
					}
					return args, nil
				})
				s.reset(withTags(before...)())
				s.addActor(sequence(withNote(tag("A", "red"))))
				synctest.Wait()
				defer s.close()
				for a := s.actors[0]; len(a.waiting()) > 0; {
					r, f := a.waiting()[0], none
					if r.cmd != nil && r.args[1] == actScript.SHA && sent == 0 {
						f = lost
					}
					s.step(r, f)
				}
				want := 2 - len(before)
				if err := s.actors[0].results[0]; err != nil || sent != 2 || countTagLines(s.linesOfA()) != want {
					t.Errorf("sent %d times, got %v and the history %q; want 2 times, success and %d lines", sent, err, s.linesOfA(), want)
				}
			})
		})
	}
}

// TestScriptsInOpenSlot sends scripts to real nodes while the slot of their key is being migrated.
// The records that they write must exist afterwards. That is not trivial: once a script has removed
// a key, only the other node accepts writes to it.
func TestScriptsInOpenSlot(t *testing.T) {
	c := redistest.StartCluster(t)
	e, ctx := New(c.Client(), Options{}), t.Context()
	defer e.Close()

	g := people.Guard
	state := func(fingerprint string, more ...store.Facet) []store.Facet {
		return append([]store.Facet{{Field: "fingerprint", Wire: fingerprint}, {Field: "schema", Wire: "{}"}}, more...)
	}
	if is, err := e.Repair(ctx, store.ReplaceSchema{Guard: g, Seen: "", Fields: state("f1", store.Facet{Field: "next", Wire: "x"})}); !is || err != nil {
		t.Fatal(is, err)
	}
	slot := c.OpenSlot(g.Key.String())
	if is, err := e.Repair(ctx, store.ReplaceSchema{Guard: g, Seen: "f1", Fields: state("f2")}); !is || err != nil {
		t.Errorf("ReplaceSchema: got %v, %v, want true", is, err)
	}
	if now := e.client.HGetAll(ctx, g.Key.String()).Val(); len(now) != 2 || now["fingerprint"] != "f2" {
		t.Errorf("the stored schema is %q, want the fingerprint f2 and a schema", now)
	}
	slot.Finish()

	for kind, values := range map[string][]string{
		"set": {"a", "b"}, "list": {"a", "a", "b"}, "zset": {"1", "a", "2", "b"}, "hash": {"a", "b"}, "string": {"a"},
	} {
		m := store.Members{Key: parsed(t, "user/uid:"+kind+"/tags"), Kind: kind, Values: values}
		drop := []store.Container{{Key: m.Key}}
		a := newAttempt(e, store.Change{Key: m.Key.PRK(), Add: []store.Members{m}, Drop: drop})
		stageRecord := func() {
			t.Helper()
			if err := a.stageRecord(ctx, a.stages[0]); err != nil {
				t.Errorf("%s: staging: %v", kind, err)
			}
		}
		stageRecord()
		before := e.client.Dump(ctx, store.PreparedKey(m.Key, a.rev)).Val()
		slot := c.OpenSlot(m.Key.String())
		stageRecord() // as after a lost answer
		if after := e.client.Dump(ctx, store.PreparedKey(m.Key, a.rev)).Val(); after != before {
			t.Errorf("%s: the record that was staged twice differs from the one that was staged once", kind)
		}
		slot.Finish()
		complete := func() {
			t.Helper()
			if err := e.complete(ctx, m.Key.PRK(), a.fillField()); err != nil {
				t.Errorf("%s: promoting: %v", kind, err)
			}
		}
		complete()
		key := m.Key.String()
		if is, ends := e.client.Type(ctx, key).Val(), e.client.TTL(ctx, key).Val(); is != kind || ends != -1 {
			t.Errorf("%s: got a %s with time to live %v, want a %s with none (-1)", kind, is, ends, kind)
		}
		a = newAttempt(e, store.Change{Key: m.Key.PRK(), Drop: drop})
		stageRecord()
		complete()
		if n := e.client.Exists(ctx, key, store.PreparedKey(m.Key, a.rev)).Val(); n != 0 {
			t.Errorf("%s: %d records are left after the drop, want none", kind, n)
		}
		e.client.Set(ctx, key, "made since", 0)
		complete() // again, as by another process that is late
		if n := e.client.Exists(ctx, key).Val(); n != 1 {
			t.Errorf("%s: a second drop removed a newer record", kind)
		}
	}
}
