package userdb

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// Options configures a DB. The zero value is ready to use.
type Options struct {
	// Schema declares the types of entries. If zero, the DB adopts the stored schema, and stores
	// schema.User() if there is none.
	Schema  schema.Schema
	builtin bool // Schema was zero

	// Namespace is the part of the store that the DB uses. If zero, it is the whole store.
	Namespace recordkey.Namespace

	// OnSchema says what to do if Schema differs from the stored one.
	OnSchema OnSchema

	// ApplySchema, if set, is called by Open and redisdb.New before they compare the schemas. Set
	// it to migrate.AtOpen to apply to existing entries the roles that only Schema declares, while
	// other programs keep working. One process at a time does this, before its Open returns.
	ApplySchema func(ctx context.Context, db *DB) error

	// NewUID generates the UIDs of entries that are created without one. It must be safe for
	// concurrent use. If nil, RandomUID(12) is used.
	NewUID     func() (string, error)
	randomUIDs bool // NewUID was nil

	tally *eventTally // shared by all views of a store

	// HashWorkers limits how many passwords are hashed at the same time. If zero, it is GOMAXPROCS.
	// See docs/security.md.
	HashWorkers int

	// Logger receives events and warnings. If nil, nothing is logged.
	//
	// Importing this package silences go-redis' own logger, which is global to the process; call
	// redis.SetLogger in main to set another.
	Logger *slog.Logger

	// OnEvent is called with every event before the method that caused it returns, on that method's
	// goroutine. transfer.Import calls it from up to 16 goroutines at once. If nil, events only go
	// to Logger.
	OnEvent func(context.Context, Event)

	// Observers are notified of what the DB does, but not for which accounts. Packages metrics and
	// trace implement them. Having none costs nothing.
	Observers []Observer

	// Peppers are secret keys that are mixed into password hashes. New hashes use the first; all of
	// them verify. If empty, hashes have no pepper.
	Peppers [][]byte

	// Keys encrypt the secrets of second factors. Each has 32 random bytes. The first encrypts, and
	// all of them decrypt; Type.RotateKeys moves everything to the first. If empty, nobody can
	// enrol a factor, and codes cannot be checked. Keep the keys apart from the store and its
	// backups: somebody who has both can sign in to every account whose password they know.
	Keys [][]byte

	// History records every change beside its entry and in a feed, for Type.History and DB.Events.
	// It costs about 150 bytes of memory for each of the last hundred changes of an entry, and as
	// much in the feed.
	History bool

	// Replicas is the number of replicas of every server involved that must acknowledge a change
	// within ReplicaTimeout. Otherwise the method returns ErrUnconfirmed along with its result.
	// Waiting costs one more round trip. If zero, no method waits, and a failover may lose
	// acknowledged changes.
	//
	// Methods do not wait for tertiary records, for the beginning and end of a single session, for
	// tokens that are issued, for what the second step of a login uses up, or, on a cluster, for
	// fencing other writers and releasing values that are no longer used. docs/guarantees.md says
	// what this leaves open, and how min-replicas-to-write narrows it.
	Replicas int

	// ReplicaTimeout limits how long a method waits for replicas. If zero, it is one second. The
	// client's read timeout also limits it.
	ReplicaTimeout time.Duration

	// CacheSize is the approximate number of entries to cache in this process. If zero, there is no
	// cache. Find answers from the cache, without a round trip, if the hint is a UID or a key. All
	// other methods, including Login, Update and FindAll, and Find by other identifiers, bypass the
	// cache. Absent entries are not cached.
	//
	// A cached entry is dropped when the server reports that it changed, a few milliseconds after
	// the change, and at once if the connection breaks. Find may therefore return an outdated
	// entry: not yet disabled or deleted, or older than the result of another method. Save then
	// returns ErrConflict, and the next Find is up to date. Find always returns what this DB itself
	// wrote. If the network loses the server's report, the entry is served until it is CacheMaxAge
	// old.
	//
	// The cache needs a server that Open connects to by URL (redis:, rediss:, unix:), database 0,
	// RESP3, and CLIENT TRACKING, which Redis supports since version 6; otherwise Open and
	// redisdb.New return ErrCache. Embedded stores ignore CacheSize, as they are in this process
	// anyway.
	//
	// The cache uses a second connection pool, as large as the first. It keeps every field except
	// the password hash, and no entries over 16 KiB. Each eviction scans a sixteenth of the cache,
	// so make CacheSize large enough for all entries that are often used.
	CacheSize int

	// CacheMaxAge limits how long a cached entry is served without hearing from the server. If
	// zero, it is ten seconds.
	CacheMaxAge time.Duration
}

// OnSchema says what to do if the schema of a program differs from the one stored in the database,
// which is in force for every program.
//
// A DB adopts fields that only the stored schema declares, but does not write them. Open and
// redisdb.New return ErrSchemaMismatch if the program's schema gives a field a role that is not
// stored, requires a field that is not required there, or contradicts the stored schema. A DB
// notices a later change of the stored schema at its next write.
type OnSchema int

const (
	// SchemaExtend, the default, adds to the stored schema what only the program's schema declares,
	// provided that no record has to change: fields without a role, tertiary records, an open type.
	// If two programs add different parts, both end up with all of them.
	SchemaExtend = OnSchema(view.Extend)
	// SchemaRefuse makes Open and redisdb.New return ErrSchemaMismatch instead of extending the
	// stored schema.
	SchemaRefuse = OnSchema(view.Refuse)
	// SchemaDeferred does what SchemaExtend does, but at the first write instead of in Open. It is
	// meant for tools that read any store.
	SchemaDeferred = OnSchema(view.Later)
)

func (o Options) cache() store.Cache { return store.Cache{Entries: o.CacheSize, Age: o.CacheMaxAge} }

func (o Options) withDefaults() Options {
	if len(o.Schema.Types) == 0 {
		o.Schema, o.builtin = schema.User(), true
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.ReplicaTimeout = cmp.Or(o.ReplicaTimeout, time.Second)
	if o.CacheMaxAge <= 0 {
		o.CacheMaxAge = 10 * time.Second
	}
	if o.NewUID == nil {
		o.NewUID, o.randomUIDs = RandomUID(12), true
	}
	o.tally = newEventTally()
	return o
}

// describe returns the name of v's type followed by v as JSON, which leaves out the secrets in v.
// It cannot protect a v in an unexported field of a struct that is printed: fmt calls no methods
// there and prints the secrets.
func describe(v json.Marshaler) string {
	text, _ := json.Marshal(v)
	return fmt.Sprintf("%T%s", v, text)
}

// Format writes the options without the peppers and keys, whatever the formatting verb.
func (o Options) Format(f fmt.State, _ rune) { fmt.Fprint(f, describe(o)) }

// LogValue returns the options for a log, without the peppers and keys.
func (o Options) LogValue() slog.Value { return slog.StringValue(describe(o)) }

// MarshalJSON returns the options with the numbers of peppers and keys in place of the secrets.
func (o Options) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Types       []string `json:"types,omitempty"`
		Namespace   string   `json:"namespace,omitempty"`
		HashWorkers int      `json:"hashWorkers,omitempty"`
		Peppers     int      `json:"peppers"`
		Keys        int      `json:"keys,omitempty"`
		Replicas    int      `json:"replicas,omitempty"`
		Cache       int      `json:"cache,omitempty"`
	}{slices.Sorted(maps.Keys(o.Schema.Types)), o.Namespace.String(), o.HashWorkers, len(o.Peppers), len(o.Keys), o.Replicas, o.CacheSize})
}
