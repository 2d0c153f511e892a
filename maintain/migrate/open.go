package migrate

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// Before a process converts entries while it opens the store, it writes its name and the time by
// its clock to ~/applying. Other processes wait for it. A process that has not renewed the record
// for leaseTimeout is considered dead. Two processes that convert entries at once do no harm.
const (
	leaseName    = "applying"
	leaseTimeout = 30 * time.Second
	pollInterval = 500 * time.Millisecond
)

// AtOpen extends the stored schema with the field roles that only the program's schema has, and
// converts the existing entries accordingly. Only one process does that at a time; others wait.
// AtOpen is meant for userdb.Options.ApplySchema. It returns ErrCollision if two entries would have
// the same value.
func AtOpen(ctx context.Context, db *userdb.DB) error {
	key, err := recordkey.Own(leaseName)
	if err != nil {
		return err
	}
	l := lease{View: view.Of(db), key: key.In(view.Of(db).NS), name: rand.Text()}
	for {
		due, err := additions(ctx, db)
		if err != nil || len(due.Types) == 0 {
			return err
		}
		acquired, err := l.acquire(ctx)
		if err != nil {
			return err
		}
		if acquired {
			return l.run(ctx, func(ctx context.Context) error { return convert(ctx, db, due) })
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

func convert(ctx context.Context, db *userdb.DB, to schema.Schema) error {
	ch, err := Plan(ctx, db, to)
	if err != nil {
		return err
	}
	return ch.Apply(ctx, nil)
}

// additions returns the types of the program's schema whose fields have roles that the stored types
// lack. Each returned type is the stored type extended by those roles. If any type also needs a
// schema change that only 'userdb schema apply' makes, additions returns no types.
func additions(ctx context.Context, db *userdb.DB) (schema.Schema, error) {
	due, none := schema.Schema{Types: map[string]schema.Type{}}, schema.Schema{}
	v := view.Of(db)
	for name, own := range v.Config.Schema.Types {
		key := v.ByName[name].Guard.Key
		hashes, err := store.Hashes(ctx, v.Engine, []string{key.String()})
		if err != nil {
			return none, err
		}
		stored, err := change.ParseStored(name, hashes[0].Fields)
		if err != nil || hashes[0].WrongType {
			return none, records.Corrupt(key, "not a readable schema")
		}
		if stored.Generation == "" {
			continue
		}
		storedType := stored.Type
		stored.Type = storedType.WithoutBuilding()
		if relation, _ := stored.Compare(own); relation != schema.Builds {
			continue
		}
		for field, f := range own.Fields {
			was, had := storedType.Fields[field]
			if f.Required && !was.Required || f.Was != "" && !had || f.BecomesTyped(was) {
				return none, nil // needs 'userdb schema apply'; Open reports it
			}
		}
		due.Types[name] = withStoredPolicy(storedType, mergeStored(storedType, own))
	}
	return due, nil
}

// withStoredPolicy returns t with the policy of the stored type, which takes precedence: the rules
// for passwords, reserved values, the limits of tertiary records, how long values are held, whether
// UIDs are retired, and whether entries may enrol factors.
func withStoredPolicy(stored, t schema.Type) schema.Type {
	t.Password, t.Retire, t.Factors = stored.Password, stored.Retire, stored.Factors
	for name, f := range t.Fields {
		if was, had := stored.Fields[name]; had {
			f.Reserved, f.Hold = was.Reserved, was.Hold
			t.Fields[name] = f
		}
	}
	for name, r := range t.Tertiary {
		if was, had := stored.Tertiary[name]; had {
			r.Max = was.Max
			t.Tertiary[name] = r
		}
	}
	return t
}

// A lease gives one process the right to convert entries.
type lease struct {
	*view.View
	key   recordkey.Key
	name  string
	value string // the value stored at key
}

// acquire takes the lease if no other process has it.
func (l *lease) acquire(ctx context.Context) (bool, error) {
	for {
		ours := l.name + " " + strconv.FormatInt(time.Now().UnixMilli(), 10)
		current, err := l.Engine.Secret(ctx, l.key, ours)
		if err != nil || current == ours {
			l.value = ours
			return err == nil, err
		}
		_, at, _ := strings.Cut(current, " ")
		ms, err := strconv.ParseInt(at, 10, 64)
		if err == nil && time.Since(time.UnixMilli(ms)).Abs() < leaseTimeout {
			return false, nil
		}
		if _, err := l.Engine.Repair(ctx, store.Remove{Key: l.key.String(), Seen: store.Text{Wire: current, Exists: true}}); err != nil {
			return false, err
		}
	}
}

// run calls do and renews the lease until do returns.
func (l *lease) run(ctx context.Context, do func(context.Context) error) error {
	done := make(chan struct{})
	var renewal sync.WaitGroup
	renewal.Go(func() { l.renew(ctx, done) })
	err := do(ctx)
	close(done)
	renewal.Wait()
	if failed := l.release(context.WithoutCancel(ctx)); failed != nil && err == nil {
		err = fmt.Errorf("releasing the lease of the schema change: %w", failed)
	}
	return err
}

// renew renews the lease until done is closed.
func (l *lease) renew(ctx context.Context, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(leaseTimeout / 4):
			if l.release(ctx) == nil {
				_, _ = l.acquire(ctx) // another process in between does no harm
			}
		}
	}
}

func (l *lease) release(ctx context.Context) error {
	_, err := l.Engine.Repair(ctx, store.Remove{Key: l.key.String(), Seen: store.Text{Wire: l.value, Exists: true}})
	return err
}
