package userdb

import (
	"context"
	"time"

	"github.com/coffeenode/userdb/internal/store/throttle"
)

// A Limit says how often a visitor may do something, such as write a comment.
type Limit struct {
	Name   string        // of the counters, 1 to 256 bytes; limits of one name count together
	Max    int           // uses in one Window, from 1 to 100,000
	Window time.Duration // from a second to 30 days; it begins with the first use
}

// Limits on the fields of a Limit, and on the key.
const (
	maxUses       = 100_000
	maxUseName    = 256
	maxUseWindow  = 30 * 24 * time.Hour
	minUseWindow  = time.Second
	useCounter    = "use" // the kind of the counters
	maxCountedKey = 4 << 10
)

// Admit counts one use by a visitor. If the visitor has used up the limit, Admit returns a
// *WaitError, which wraps ErrTooManyAttempts. key names the visitor or whatever else is limited,
// such as a UID or an origin. It is stored only as a keyed hash. The counters lie in the store and
// are exact: all processes together admit no more than Max uses in a Window. If a reply is lost, a
// use may be counted twice. An embedded store keeps 6,000 counters. Further ones replace those
// whose Window ends first.
//
// The error is ErrInvalid if a field of the limit is out of range or key is "" or over 4 KiB long.
func (t *Type) Admit(ctx context.Context, l Limit, key string) (err error) {
	ctx, v := t.db.begin(ctx, "Admit", &err)
	defer v.end(&err)
	t = t.current()
	switch {
	case l.Name == "" || len(l.Name) > maxUseName:
		return invalid("name", "size", "empty or over 256 bytes")
	case l.Max < 1 || l.Max > maxUses:
		return invalid("max", "range", "not from 1 to 100,000")
	case l.Window < minUseWindow || l.Window > maxUseWindow:
		return invalid("window", "range", "not from a second to 30 days")
	case key == "" || len(key) > maxCountedKey:
		return invalid("key", "size", "empty or over 4 KiB")
	}
	if err := t.db.loadSecret(ctx); err != nil {
		return err
	}
	counter, err := throttle.VisitsKey(t.view.NS, t.Name(), useCounter, t.db.digest(useCounter, l.Name+"\x00"+key))
	if err != nil {
		return err
	}
	wait, err := t.view.Engine.Limit(ctx, throttle.Limit{Counter: counter, Max: l.Max, Window: l.Window, Now: t.view.StoreTime()})
	if err == nil && wait > 0 {
		err = &WaitError{Wait: wait}
	}
	return err
}
