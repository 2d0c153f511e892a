package scim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// dropLocks removes the locks of interrupted requests. Other requests would do so after a minute.
func (d directory) dropLocks() {
	d.t.Helper()
	for keys := d.Raw.Scan(d.Ctx, 0, "*tag-lock*", 1000).Iterator(); keys.Next(d.Ctx); {
		if err := d.Raw.Del(d.Ctx, keys.Val()).Err(); err != nil {
			d.t.Fatal(err)
		}
	}
}

// A crash is a hook that lets a number of commands through and fails every later command. Its error
// stops all retries.
type crash struct{ left atomic.Int64 }

func (c *crash) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *crash) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c.left.Add(-1) < 0 {
			cmd.SetErr(context.Canceled)
			return context.Canceled
		}
		return next(ctx, cmd)
	}
}

func (c *crash) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if c.left.Add(-1) < 0 {
			for _, cmd := range cmds {
				cmd.SetErr(context.Canceled)
			}
			return context.Canceled
		}
		return next(ctx, cmds)
	}
}

// TestInterruptedRename interrupts the renaming of a mapped group at each command. Then a new group
// with the mapped name takes the tag. No group may lose or gain members: not at the interruption,
// not when the new group takes the tag, and not when the renaming is repeated.
func TestInterruptedRename(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		s = s.Under(t, schema.User())
		const maxRounds = 200
		crash := &crash{}
		crash.left.Store(1 << 40)
		d := newDirectory(t, s, headTags(maxRounds))
		s.AddHook(crash)
		d.createUsers("a", "b", "c", "m")
		for n := range maxRounds {
			name, tag := fmt.Sprintf("Heads %d", n), fmt.Sprintf("head%d", n)
			old := d.createGroup(name, "a", "b", "c")
			d.checkTags("a", tag)
			crash.left.Store(int64(n))
			_, err := d.send("PATCH", "/Groups/"+old, renameBody("Old"))
			crash.left.Store(1 << 40)
			d.dropLocks()
			complete := err == nil
			d.checkMembers(old, "a", "b", "c")
			heads, err := d.send("POST", "/Groups", groupBody(name, "m"))
			if taken, is := errors.AsType[*Error](err); is && taken.Type == uniqueness {
				d.must("PATCH", "/Groups/"+old, renameBody("Old"))
				heads, err = d.send("POST", "/Groups", groupBody(name, "m"))
			}
			if err != nil {
				t.Fatalf("after %d commands: %v", n, err)
			}
			id := heads["id"].(string)
			for range 2 {
				d.checkMembers(id, "m")
				d.checkMembers(old, "a", "b", "c")
				for _, uid := range []string{"a", "b", "c"} {
					d.checkTags(uid, "scim:"+old)
				}
				d.checkTags("m", tag)
				d.must("PATCH", "/Groups/"+old, renameBody("Old"))
			}
			for _, id := range []string{id, old} {
				d.must("DELETE", "/Groups/"+id, "")
			}
			d.checkTags("a")
			d.checkTags("m")
			if t.Failed() {
				t.Fatalf("after %d commands", n)
			}
			if complete {
				return
			}
		}
		t.Errorf("the renaming takes more than %d commands", maxRounds)
	})
}

func commandText(cmd redis.Cmder) string { return fmt.Sprintln(cmd.Args()...) }

// An interruption is a hook that calls do before a command, after it has let a number of them
// through.
type interruption struct {
	left atomic.Int64
	do   func()
}

func (h *interruption) check() {
	if h.left.Add(-1) == -1 {
		h.do()
	}
}

func (*interruption) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *interruption) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { h.check(); return next(ctx, cmd) }
}

func (h *interruption) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { h.check(); return next(ctx, cmds) }
}

// TestRenamesAtOnce gives a second group the mapped name at each command of the request that takes
// the name from the first group. No member of either group may become a member of the other.
func TestRenamesAtOnce(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		s = s.Under(t, schema.User())
		const maxRounds = 200
		d := newDirectory(t, s, headTags(maxRounds))
		d.createUsers("a", "b", "c", "m", "n")
		h := &interruption{}
		h.left.Store(1 << 40)
		s.AddHook(h)
		for n := range maxRounds {
			name, tag := fmt.Sprintf("Heads %d", n), fmt.Sprintf("head%d", n)
			old, heads := d.createGroup(name, "a", "b", "c"), d.createGroup("Others", "m")
			put := func() error {
				_, err := d.send("PUT", "/Groups/"+heads, groupBody(name, "m", "n"))
				return err
			}
			done := make(chan error, 1)
			h.do = func() {
				ended := make(chan struct{})
				go func() {
					done <- put()
					close(ended)
				}()
				select { // the second request may have to wait until the first continues
				case <-ended:
				case <-time.After(100 * time.Millisecond):
				}
			}
			h.left.Store(int64(n))
			d.must("PATCH", "/Groups/"+old, renameBody("Old"))
			complete := h.left.Swap(1<<40) >= 0
			var err error
			if complete {
				err = put()
			} else if err = <-done; err != nil { // the first group still had the name
				if refused, is := errors.AsType[*Error](err); is && refused.Type == uniqueness {
					err = put()
				}
			}
			if err != nil {
				t.Fatalf("after %d commands: %v", n, err)
			}
			d.checkMembers(old, "a", "b", "c")
			d.checkMembers(heads, "m", "n")
			for uid, want := range map[string]string{"a": "scim:" + old, "b": "scim:" + old, "c": "scim:" + old, "m": tag, "n": tag} {
				d.checkTags(uid, want)
			}
			for _, id := range []string{old, heads} {
				d.must("DELETE", "/Groups/"+id, "")
			}
			if t.Failed() {
				t.Fatalf("after %d commands", n)
			}
			if complete {
				return
			}
		}
		t.Errorf("the renaming takes more than %d commands", maxRounds)
	})
}

// headTags maps a number of groups to tags: "Heads 0" to head0, and so on.
func headTags(n int) map[string]string {
	tags := map[string]string{}
	for i := range n {
		tags[fmt.Sprintf("Heads %d", i)] = fmt.Sprintf("head%d", i)
	}
	return tags
}

// TestTagsChangeGroups checks that groups keep their members if the options exchange the tags of
// groups, or give them to other groups.
func TestTagsChangeGroups(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		s = s.Under(t, schema.User())
		d := newDirectory(t, s, map[string]string{"X": "x", "Y": "y"})
		d.createUsers("a", "b", "c")
		x, y, z := d.createGroup("X", "a"), d.createGroup("Y", "b"), d.createGroup("Z", "c")
		for _, tags := range []map[string]string{{"X": "y", "Y": "x"}, {"Z": "x", "X": "z"}, {"X": "x", "Y": "y", "Z": "z"}, {}} {
			d = newDirectory(t, s, tags)
			for _, g := range []struct{ name, id, member string }{{"X", x, "a"}, {"Y", y, "b"}, {"Z", z, "c"}} {
				d.checkMembers(g.id, g.member)
				want := tags[g.name]
				if want == "" {
					want = "scim:" + g.id
				}
				d.checkTags(g.member, want)
			}
		}
	})
}

// TestTagsOfFullUser checks that a user with as many tags as the schema allows, or more, does not
// stop groups from changing their tags. A user without room for the new tag leaves the group.
func TestTagsOfFullUser(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		limited := schema.User()
		tags := limited.Types[UserType].Tertiary[tagsName]
		tags.Max = 3
		limited.Types[UserType].Tertiary[tagsName] = tags
		s = s.Under(t, limited)
		d := newDirectory(t, s, nil)
		d.createUsers("a", "b")
		group := d.createGroup("X", "a", "b")
		for _, uid := range []string{"a", "b"} {
			if _, err := d.Type(t, UserType).Tags(hints.UID(uid)).Add(d.Ctx, "1", "2"); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Raw.SAdd(d.Ctx, s.NS.String()+"user/uid:b/tags", "3").Err(); err != nil {
			t.Fatal(err)
		}
		d = newDirectory(t, s, map[string]string{"X": "x"})
		d.checkTags("a", "1", "2", "x")
		d.checkTags("b", "1", "2", "3")
		d.checkMembers(group, "a")
	})
}

// TestGroupWithoutMembers checks that a group without members has an empty list of them, not null.
func TestGroupWithoutMembers(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		d := newDirectory(t, s.Under(t, schema.User()), nil)
		id := d.createGroup("X")
		text, err := json.Marshal(d.must("GET", "/Groups/"+id, ""))
		if err != nil || !strings.Contains(string(text), `"members":[]`) {
			t.Errorf("got %s (%v), want an empty list of members", text, err)
		}
	})
}

// TestLockOfTag checks that a request waits for the lock of a tag until its context ends, and that
// it takes over a lock whose holder has died.
func TestLockOfTag(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		s = s.Under(t, schema.User())
		d := newDirectory(t, s, map[string]string{"Heads": "head"})
		d.createUsers("a")
		r, err := d.h.collection(d.Ctx, d.DB, d.NS.Path(), UserType)
		if err != nil {
			t.Fatal(err)
		}
		key, err := r.lockKey(lockTag, "head")
		if err != nil {
			t.Fatal(err)
		}
		now, err := view.Of(d.DB).Engine.Time(d.Ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		setLock := func(since time.Duration) {
			if err := d.Raw.Set(d.Ctx, key.String(), fmt.Sprintf("other %d", now.Add(-since).UnixMilli()), 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		setLock(lockLife / 2)
		ctx := &expiringContext{d.Ctx, make(chan struct{})}
		s.AddHook(&lockObserver{holder: "other ", seen: sync.OnceFunc(func() { close(ctx.expired) })})
		if _, err := d.withContext(ctx).send("POST", "/Groups", groupBody("Heads", "a")); !errors.Is(err, userdb.ErrUnavailable) || !errors.Is(err, ErrPartial) {
			t.Errorf("while another request holds the lock: got %v, want ErrUnavailable and ErrPartial", err)
		}
		d.checkTags("a")
		setLock(2 * lockLife)
		id := d.must("GET", "/Groups", "")["Resources"].([]any)[0].(map[string]any)["id"].(string)
		d.must("PUT", "/Groups/"+id, groupBody("Heads", "a"))
		d.checkTags("a", "head")
		if n := d.Raw.Exists(d.Ctx, key.String()).Val(); n != 0 {
			t.Error("the lock still exists after the request")
		}
	})
}

// The deadline of an expiringContext passes when expired is closed.
type expiringContext struct {
	context.Context
	expired chan struct{}
}

func (c *expiringContext) Done() <-chan struct{} { return c.expired }

func (c *expiringContext) Err() error {
	select {
	case <-c.expired:
		return context.DeadlineExceeded
	default:
		return c.Context.Err()
	}
}

// A lockObserver is a hook that calls seen after each reply that names the holder of a lock.
type lockObserver struct {
	holder string
	seen   func()
}

func (o *lockObserver) check(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if strings.Contains(cmd.String(), o.holder) { // with its reply
			o.seen()
		}
	}
}

func (*lockObserver) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o *lockObserver) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { defer o.check(cmd); return next(ctx, cmd) }
}

func (o *lockObserver) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { defer o.check(cmds...); return next(ctx, cmds) }
}

// A blockade is a hook that holds back commands about the groups of a type until release is closed.
// At the first such command, it closes reached.
type blockade struct {
	typ     string
	reached chan struct{}
	once    sync.Once
	release chan struct{}
}

func (b *blockade) wait(ctx context.Context, cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if text := commandText(cmd); strings.Contains(text, "groups") && strings.Contains(text, b.typ) {
			b.once.Do(func() { close(b.reached) })
			select {
			case <-b.release:
			case <-ctx.Done():
			}
		}
	}
}

func (*blockade) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *blockade) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { b.wait(ctx, cmd); return next(ctx, cmd) }
}

func (b *blockade) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { b.wait(ctx, cmds...); return next(ctx, cmds) }
}

// TestSlowPreparation checks that a directory need not wait while the groups of another one are
// being prepared.
func TestSlowPreparation(t *testing.T) {
	sc := schema.User()
	sc.Types["staff"] = sc.Types["user"]
	s := testdb.Open(t, testdb.ServerClient(t), testdb.Space(t, ""), sc)
	h, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := &blockade{typ: "staff", reached: make(chan struct{}), release: make(chan struct{})}
	s.AddHook(b)
	slow := make(chan error, 1)
	go func() { slow <- h.Prepare(s.Ctx, s.DB, s.NS.Path(), "staff") }()
	select {
	case <-b.reached:
	case err := <-slow:
		t.Fatalf("the groups were prepared without a command about them: %v", err)
	}
	ctx, cancel := context.WithTimeout(s.Ctx, time.Minute)
	defer cancel()
	if err := h.Prepare(ctx, s.DB, s.NS.Path(), "user"); err != nil {
		t.Errorf("while another directory is being prepared: got %v, want no error", err)
	}
	close(b.release)
	if err := <-slow; err != nil {
		t.Error(err)
	}
}
