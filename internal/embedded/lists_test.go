package embedded_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/embedded"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

// listClients is how many clients change lists at the same time.
const listClients = 6

// TestChaosLists serves a store from a process that is killed and whose disk is full or slow at
// times, while clients change lists of identifiers. At the end, the raw records must show that
// every value has one owner, that values which entries gave up are still held for them, and that
// the UIDs of deleted entries are retired.
//
//	make chaos KIND=file MINUTES=30
func TestChaosLists(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the socket needs Unix")
	}
	t.Parallel()
	// The run lasts for length and until every verb has succeeded, but never longer than most.
	length, most := 3*time.Second, 3*time.Minute
	if minutes, err := strconv.ParseFloat(os.Getenv("USERDB_CHAOS_MINUTES"), 64); err == nil {
		length = time.Duration(minutes * float64(time.Minute))
		most = length
	}
	path, began := filepath.Join(t.TempDir(), "f"), time.Now()
	ctx, stop := context.WithTimeout(t.Context(), most)
	defer stop()
	l := &listRun{t: t, path: path, epoch: func() int { return int(time.Since(began) / time.Second) }, ops: map[int][]testdb.ListOp{}}
	var clients sync.WaitGroup
	for range listClients {
		clients.Go(func() { l.client(ctx) })
	}
	for ctx.Err() == nil {
		embedded.ServeForAWhile(ctx, t, path, "good", "good", "full", "slow")
		if most > length && time.Since(began) > length && !slices.Contains(l.succeeded(), 0) {
			stop()
		}
	}
	clients.Wait()
	s, err := embedded.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	hashes, texts := map[string]map[string]string{}, map[string]string{}
	for _, key := range s.Client().Keys(t.Context(), testdb.ListType+"/*").Val() {
		if strings.HasSuffix(key, "/~prk") {
			texts[key] = s.Client().Get(t.Context(), key).Val()
		} else {
			hashes[key] = s.Client().HGetAll(t.Context(), key).Val()
		}
	}
	found := testdb.ListDamage(hashes, texts)
	for epoch, ops := range l.ops {
		found = append(found, testdb.ListViolations(ops)...)
		found = append(found, testdb.RecordViolations(epoch, ops, func(key string) map[string]string { return hashes[key] })...)
	}
	for _, violation := range found {
		t.Error(violation)
	}
	succeeded := l.succeeded()
	t.Log("succeeded:", listVerbs, succeeded)
	for i, verb := range listVerbs {
		if succeeded[i] == 0 {
			t.Errorf("no %s succeeded", verb)
		}
	}
}

var listVerbs = []string{"create", "add", "drop", "first", "exchange", "delete", "release", "find"}

// succeeded returns how often each of listVerbs has succeeded.
func (l *listRun) succeeded() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := make([]int, len(listVerbs))
	for _, ops := range l.ops {
		for _, o := range ops {
			if i := slices.Index(listVerbs, o.Ask.Verb); o.OK && i >= 0 {
				n[i]++
			}
		}
	}
	return n
}

// A listRun holds the state of a run.
type listRun struct {
	t     *testing.T
	path  string
	epoch func() int // the seconds since the run began; different epochs use different values
	mu    sync.Mutex
	ops   map[int][]testdb.ListOp // by epoch
}

// client runs random operations until ctx ends.
func (l *listRun) client(ctx context.Context) {
	rnd := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for ctx.Err() == nil {
		client := embedded.DialServed(ctx, l.path)
		if client == nil {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		db, err := redisdb.New(ctx, client, userdb.Options{Schema: schema.Schema{Types: map[string]schema.Type{testdb.ListType: testdb.ListSchema()}}})
		for err == nil && ctx.Err() == nil {
			err = l.operate(ctx, db, rnd)
		}
		client.Close() // the process was killed, or its disk is full
	}
}

// operate runs one random operation, a change or a search. It returns an error if the client should
// connect again.
func (l *listRun) operate(ctx context.Context, db *userdb.DB, rnd *rand.Rand) error {
	members, err := db.Type(testdb.ListType)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	epoch := l.epoch()
	o := testdb.ListOp{Begin: time.Now().UnixNano(), Ask: testdb.RandomListQuestion(rnd)}
	o.Answer, err = testdb.AskList(ctx, members, epoch, o.Ask)
	o.End, o.OK = time.Now().UnixNano(), err == nil
	for _, known := range []error{userdb.ErrDuplicate, userdb.ErrNotFound, userdb.ErrConflict} {
		if errors.Is(err, known) {
			err = nil
		}
	}
	switch {
	case errors.Is(err, userdb.ErrOutcomeUnknown), errors.Is(err, context.DeadlineExceeded):
		o.Unknown, o.End = true, math.MaxInt64
	case err != nil && !errors.Is(err, userdb.ErrUnavailable):
		l.t.Errorf("%+v: %v", o.Ask, err)
	}
	l.mu.Lock()
	l.ops[epoch] = append(l.ops[epoch], o)
	l.mu.Unlock()
	return err
}
