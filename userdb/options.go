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

// Options of a DB. The zero Options are good for a start.
type Options struct {
	Schema      schema.Schema          // zero: schema.User()
	Namespace   recordkey.Namespace    // zero: the whole store
	OnSchema    OnSchema               // what is done where Schema has more than is stored
	NewUID      func() (string, error) // nil: RandomUID(12)
	randomUIDs  bool                   // it was nil
	HashWorkers int                    // how many passwords are hashed at once; 0: as many as GOMAXPROCS; see docs/security.md
	// Logger gets events and warnings; nil: nothing is logged. go-redis' own logger, one for the
	// whole process, is silenced by importing this package; redis.SetLogger in main sets another.
	Logger *slog.Logger
	// OnEvent gets every event before the verb returns, on its goroutine; of transfer.Import on up to 16 goroutines at
	// once. nil: events go to Logger alone.
	OnEvent func(context.Context, Event)
	// Observers are told what is done, for metrics and traces, and nothing about whom: see packages metrics and trace. None:
	// nobody is, which costs nothing.
	Observers []Observer
	Peppers   [][]byte // none: no pepper; the first hashes, all verify

	// History has every change leave a note beside its entry, and in a feed: Type.History and DB.Events read them. It costs memory, about 150 bytes for
	// each of the last hundred changes of an entry, and as much in the feed.
	History bool

	// Replicas of every server that a change touches must have it within ReplicaTimeout, or the verb
	// returns ErrUnconfirmed besides what it made. That costs a round trip more. Tertiary records are
	// not waited for, nor the beginning and end of one session or token, nor on a cluster the fences of other writers and the releases of values that went: docs/guarantees.md
	// says what that leaves open, and how min-replicas-to-write narrows it. 0: do not wait, and a failover may lose changes that were acknowledged.
	Replicas       int
	ReplicaTimeout time.Duration // 0: one second; more than the client's read timeout is not waited for

	// Cache is about how many hot entries are copied into this process; 0: none. Find answers from a copy, without
	// a round trip, if the entry is sought by its UID or key; every other verb (Login, Update and FindAll
	// among them, and Find by other identifiers) reads past the copies, and what is absent is never copied.
	//
	// A copy goes when the server says that the entry has changed: some milliseconds after it was, and at
	// once when the connection to the server breaks. So Find may show an entry as it was a moment
	// ago, not yet disabled or deleted, or older than another verb has just shown it. Save of such an entry is
	// ErrConflict, and then Find is fresh. What this DB wrote itself Find shows from then on. Where the
	// network loses the server's word, a copy is shown until it is CacheAge old.
	//
	// It needs a server that Open got a URL of (redis:, rediss:, unix:), its database 0, RESP3 and CLIENT
	// TRACKING, which Redis has since version 6; elsewhere Open and New return ErrCache. An embedded store, which
	// is in the process anyway, takes no notice of it. The copies have connections of their own, a pool of
	// the same size. They hold every field but the password's hash; of entries over 16 KiB there are none.
	// Each eviction looks through a sixteenth of the copies, so let there be room for all that are hot.
	Cache    int
	CacheAge time.Duration // 0: ten seconds
}

// OnSchema says what becomes of a schema that is not the one stored in the database, which is in force for everybody. A DB
// follows what its own schema lacks: it goes by the stored one, and only writes no fields that its own does not have. Where its
// own has a role more, requires a field more, or says otherwise, Open and New return ErrSchemaMismatch. A stored schema that
// changes later a DB notices at its next write.
type OnSchema int

const (
	// SchemaExtend stores what Schema has more, if no record has to change for that: fields without a role, tertiary records,
	// an open type. Two programs that extend differently end with both. It is the zero OnSchema.
	SchemaExtend = OnSchema(view.Extend)
	// SchemaRefuse is ErrSchemaMismatch in place of that.
	SchemaRefuse = OnSchema(view.Refuse)
	// SchemaApply is SchemaExtend, and brings entries to roles that Schema has more, while other programs go on: before Open
	// returns, and by one process at a time. The program must import package migrate, of this module's maintain. ErrCollision of
	// that package: two entries would have one value.
	SchemaApply = OnSchema(view.Apply)
	// SchemaLater compares, as SchemaExtend does, at the first write, and not at Open: for tools that read any store.
	SchemaLater = OnSchema(view.Later)
)

func (o Options) cache() store.Cache { return store.Cache{Entries: o.Cache, Age: o.CacheAge} }

func (o Options) withDefaults() Options {
	if len(o.Schema.Types) == 0 {
		o.Schema = schema.User()
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.ReplicaTimeout = cmp.Or(o.ReplicaTimeout, time.Second)
	if o.CacheAge <= 0 {
		o.CacheAge = 10 * time.Second
	}
	if o.NewUID == nil {
		o.NewUID, o.randomUIDs = RandomUID(12), true
	}
	return o
}

// describe is a value that holds a secret as JSON, which leaves the secret out, after the name of its type. In an
// unexported field of another struct it would be printed with it: fmt asks no method there.
func describe(v json.Marshaler) string {
	text, _ := json.Marshal(v)
	return fmt.Sprintf("%T%s", v, text)
}

// Format writes what the options are, without the peppers, whatever the verb.
func (o Options) Format(f fmt.State, _ rune) { fmt.Fprint(f, describe(o)) }

// LogValue is the same for a log.
func (o Options) LogValue() slog.Value { return slog.StringValue(describe(o)) }

// MarshalJSON gives the number of the peppers in place of them.
func (o Options) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Types       []string `json:"types,omitempty"`
		Namespace   string   `json:"namespace,omitempty"`
		HashWorkers int      `json:"hashWorkers,omitempty"`
		Peppers     int      `json:"peppers"`
		Replicas    int      `json:"replicas,omitempty"`
		Cache       int      `json:"cache,omitempty"`
	}{slices.Sorted(maps.Keys(o.Schema.Types)), o.Namespace.String(), o.HashWorkers, len(o.Peppers), o.Replicas, o.Cache})
}
