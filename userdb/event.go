package userdb

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// An Event tells of something that concerns an account, or its security. It never holds a password, a hash, a token or another
// value. Its kinds are
//
//	create      an entry was made
//	update      Fields of it were set or unset, or elements of those tertiary records
//	identifier  the same for those Fields by which it is found
//	delete      it is gone
//	login       a good one
//	failure     a wrong identifier or password
//	throttle    nothing was checked: too many failures before
//	password    it was set or changed
//	disable     the entry may not log in any more
//	enable      it may again
//	issue       a token was issued
//	redeem      a token was spent
//	refuse      a token was not accepted
//	start       a session began
//	end         a session was ended, or all of an entry where Session is ""
//
// An import tells of passwords and disabled entries alone, and observers are told the kind alone. A new kind also goes into
// docs/security.md and into eventCases of userdb_test; if an import is to tell it, into view.Hashing, its methods in password.go,
// and follow in maintain/transfer.
type Event struct {
	Kind       EventKind
	PRK        recordkey.Key // the zero key: no entry has the identifier
	Origin     string        // as the caller gave it, at most 256 bytes of it
	Identifier string        // of an identifier that nobody has, a keyed hash
	Purpose    string        // of a token
	Session    string        // the ID of a session
	Fields     []string      // the names of what was changed, sorted; never what is in them
	Wait       time.Duration // of a throttle
	Renewed    string        // of a login after which the hash was replaced: "algorithm", "encoding", "pepper" or "cost"
}

// longestOrigin is how much of an origin and of a purpose events tell.
const longestOrigin = 256

// emit passes an event to the caller's hook and logger.
func (db *DB) emit(ctx context.Context, e Event) {
	e.PRK = e.PRK.In(recordkey.Namespace{})
	e.Origin = e.Origin[:min(len(e.Origin), longestOrigin)]
	e.Purpose = e.Purpose[:min(len(e.Purpose), longestOrigin)]
	if db.options.OnEvent != nil {
		db.options.OnEvent(ctx, e)
	}
	for _, o := range db.options.Observers {
		o.Event(ctx, string(e.Kind))
	}
	db.tellLogin(ctx, e)
	if log := db.view().Config.Log; log.Enabled(ctx, slog.LevelInfo) {
		log.LogAttrs(ctx, slog.LevelInfo, "userdb "+string(e.Kind), e.attrs()...)
	}
}

func (e Event) attrs() []slog.Attr {
	var attrs []slog.Attr
	for _, a := range [][2]string{
		{"prk", relative(e.PRK)},
		{"origin", e.Origin},
		{"identifier", e.Identifier},
		{"purpose", e.Purpose},
		{"renewed", e.Renewed},
		{"session", e.Session},
	} {
		if a[1] != "" {
			attrs = append(attrs, slog.String(a[0], a[1]))
		}
	}
	if len(e.Fields) > 0 {
		attrs = append(attrs, slog.Any("fields", e.Fields))
	}
	if e.Wait > 0 {
		attrs = append(attrs, slog.Duration("wait", e.Wait))
	}
	return attrs
}

// listens reports whether anybody is told.
func (db *DB) listens(ctx context.Context) bool {
	return db.options.OnEvent != nil || len(db.options.Observers) > 0 || db.view().Config.Log.Enabled(ctx, slog.LevelInfo)
}

// changed tells which facets of an entry a change has set or unset.
func (t *Type) changed(ctx context.Context, c store.Change) {
	if !t.db.listens(ctx) {
		return
	}
	var fields []string
	for _, f := range c.Set {
		fields = append(fields, f.Field)
	}
	fields = slices.DeleteFunc(append(fields, c.Unset...), func(f string) bool { return store.OwnField(f) || f == store.FieldPassword })
	t.tellUpdate(ctx, c.Key, fields)
}

// tellUpdate tells of fields, if there are any.
func (t *Type) tellUpdate(ctx context.Context, prk recordkey.Key, fields []string) {
	if len(fields) == 0 {
		return
	}
	slices.Sort(fields)
	t.db.emit(ctx, Event{Kind: EventUpdate, PRK: prk, Fields: fields})
	own := slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return !slices.Contains(t.declared.Secondary, f) })
	if len(own) > 0 {
		t.db.emit(ctx, Event{Kind: EventIdentifier, PRK: prk, Fields: own})
	}
}

// relative is a PRK as its own namespace has it; "" for the zero key.
func relative(key recordkey.Key) string {
	if !key.IsValid() {
		return ""
	}
	return key.In(recordkey.Namespace{}).String()
}
