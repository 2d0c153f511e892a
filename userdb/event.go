package userdb

import (
	"context"
	"log/slog"
	"time"

	"github.com/coffeenode/userdb/recordkey"
)

// An EventKind tells what happened.
type EventKind string

// The kinds of events.
const (
	EventLogin    EventKind = "login"    // a good one
	EventFailure  EventKind = "failure"  // a wrong identifier or password
	EventThrottle EventKind = "throttle" // nothing was checked: too many failures before
	EventPassword EventKind = "password" // set or changed
	EventDisable  EventKind = "disable"
	EventEnable   EventKind = "enable"
	EventIssue    EventKind = "issue"  // a token was issued
	EventRedeem   EventKind = "redeem" // a token was spent
	EventRefuse   EventKind = "refuse" // a token was not accepted
)

// An Event tells of something that concerns the security of an account. It never holds a password, a
// hash or a token.
type Event struct {
	Kind       EventKind
	PRK        recordkey.Key // the zero key: no entry has the identifier
	Origin     string        // as the caller gave it, at most 256 bytes of it
	Identifier string        // of an identifier that nobody has, a keyed hash
	Purpose    string        // of a token
	Wait       time.Duration // of a throttle
	Renewed    string        // of a login after which the hash was replaced: "algorithm", "encoding", "pepper" or "cost"
}

// longestOrigin is how much of an origin and of a purpose events tell.
const longestOrigin = 256

// emit passes an event to the caller's hook and logger.
func (db *DB) emit(ctx context.Context, e Event) {
	if e.PRK.IsValid() {
		e.PRK = e.PRK.In(recordkey.Namespace{})
	}
	e.Origin = e.Origin[:min(len(e.Origin), longestOrigin)]
	e.Purpose = e.Purpose[:min(len(e.Purpose), longestOrigin)]
	if db.options.OnEvent != nil {
		db.options.OnEvent(ctx, e)
	}
	db.view.Log.LogAttrs(ctx, slog.LevelInfo, "userdb "+string(e.Kind), e.attrs()...)
}

func (e Event) attrs() []slog.Attr {
	var attrs []slog.Attr
	for _, a := range [][2]string{{"prk", relative(e.PRK)}, {"origin", e.Origin}, {"identifier", e.Identifier}, {"purpose", e.Purpose}, {"renewed", e.Renewed}} {
		if a[1] != "" {
			attrs = append(attrs, slog.String(a[0], a[1]))
		}
	}
	if e.Wait > 0 {
		attrs = append(attrs, slog.Duration("wait", e.Wait))
	}
	return attrs
}

// relative is a PRK as its own namespace has it; "" for the zero key.
func relative(key recordkey.Key) string {
	if !key.IsValid() {
		return ""
	}
	return key.In(recordkey.Namespace{}).String()
}
