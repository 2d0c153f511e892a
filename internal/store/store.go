// Package store, with the folders below it, is all that sends Redis commands. It says what is done to the records, in
// values that know nothing of scripts or slots; an engine (single, cluster) does it.
//
// A verb reads entries with a [Lookup] and changes one with a [Change]; nothing else writes entries, SRKs or index
// members. Values inside records (SRVs, ~prk, index members) are PRKs relative to the namespace of the record that
// holds them, so that a namespace can be copied record by record.
package store

import (
	"context"
	"iter"
	"time"

	"github.com/coffeenode/userdb/recordkey"
)

// An Engine keeps records. All methods are safe for concurrent use and end with their context.
type Engine interface {
	// Ping asks the server for an answer; ErrUnavailable keeps the cause.
	Ping(ctx context.Context) error
	// Survey looks at what the engine was opened over. An error of ErrUnsuitable is about what can never work. closely
	// asks servers also for their settings and clocks, which the least rights of an application do not cover. What a
	// server forbids to ask is left out.
	Survey(ctx context.Context, closely bool) (Survey, error)
	// Time returns the time by the server's clock: on a cluster, that of the server which has a
	// key. Processes whose own clocks differ agree on it.
	Time(ctx context.Context, key recordkey.Key) (time.Time, error)
	// Close releases what the engine itself opened.
	Close() error

	// Find answers each lookup, in order. An error that concerns one of them stands in its Found.
	Find(ctx context.Context, lookups []Lookup) ([]Found, error)
	// Read reads entries, each with tertiary records of its own as they were at one moment. On a cluster it is one
	// moment for the entry, but a tertiary record may be newer than the others.
	Read(ctx context.Context, reads []EntryRead) ([]Entry, error)
	// Apply makes one change, all of it or nothing, and returns the rev that the entry has then. A change that was
	// made, but is not on as many replicas as it asks for, is ErrUnconfirmed; on a cluster also one of which a server
	// refuses what is due after it.
	Apply(ctx context.Context, c Change) (rev string, err error)
	// ApplyAll makes changes, each as Apply does, many at a time. Of creates that exclude each other the first is made.
	ApplyAll(ctx context.Context, cs []Change) []error
	// Bulk begins a run of changes that a store which is kept in a file saves together: those that are made with the
	// context it returns are answered before that. end saves them; if it fails, none of them was made. Other stores
	// keep every change at once.
	Bulk(ctx context.Context) (bulk context.Context, end func(context.Context) error)
	// Tertiary runs one command on a tertiary record of a live entry. ErrFull: nothing was added.
	// SMEMBERS and HGETALL read a record of more than about MemberBatch members page by page: what
	// comes or goes meanwhile may be missing.
	Tertiary(ctx context.Context, op Op) (Reply, error)

	// Scan returns the next batch of a listing. The empty cursor begins, and the empty next cursor says that it was the
	// last batch. What is there all the time is returned at least once; others may be, and any may be returned twice.
	Scan(ctx context.Context, s Scan) (found []string, next string, err error)
	// Order returns the next members of an ordered index between two bounds.
	Order(ctx context.Context, o Order) ([]string, error)
	// Sizes returns how many members each index set has, and for the zero key about how many records the server holds.
	Sizes(ctx context.Context, indexes []recordkey.Key) ([]int64, error)
	// Holds reports for each set, or ordered index, whether it has the member. It does not ask whether the entry is
	// live. With atOnce the answers are of one moment, as far as one server has the sets.
	Holds(ctx context.Context, members []Member, atOnce bool) ([]bool, error)

	// Look reads records as they are, many at a time, for those who judge them. Nothing is believed: a record of
	// another Redis type is an answer, not an error. Answers come in the order of what was asked.
	Look(ctx context.Context, at []LookAt) ([]Raw, error)
	// Linger waits before the nth look, from 0, at what may be damage or a change that is under way, and reports
	// whether to look: if not, every writer whose change was seen has ended it or died. Under [Alone] it does not wait.
	Linger(ctx context.Context, n int) (bool, error)
	// Mend makes one step that mends a record, and reports what the step says.
	Mend(ctx context.Context, s Step) (bool, error)

	// Admit counts an attempt to log in as a failure, until Forgive says that it was none, or returns how long to wait
	// before the next one. It is exact: of attempts at the same time, no more are admitted than the limits say.
	Admit(ctx context.Context, a Counters) (Admission, error)
	// LoginWait returns how long Admit would have an attempt wait, and counts nothing.
	LoginWait(ctx context.Context, a Counters) (time.Duration, error)
	// Forgive takes a failure back that was a success, and remembers its origin.
	Forgive(ctx context.Context, a Counters, as Admission) error
	// Guesses are what counts against the account, as the next Admit would find it. It writes nothing.
	Guesses(ctx context.Context, a Counters) (Guesses, error)
	// Reset forgets the failures of an account. Its familiar origins stay.
	Reset(ctx context.Context, a Counters) error
	// Secret returns the random text at key. Where there is none, it is fresh from now on.
	Secret(ctx context.Context, key recordkey.Key, fresh string) (string, error)
	// Issue keeps a single-use token of a live entry that still has the rev, which it keeps; else ErrConflict, or
	// ErrNotFound. A token ends by a Change.
	Issue(ctx context.Context, i Issue) error
	// Peek returns what was issued under the hash of a secret, and for how long it is good still; else ErrNotFound. It
	// does not ask whether the entry has tokens at all.
	Peek(ctx context.Context, prk recordkey.Key, hash string, now time.Time) (t Token, left time.Duration, err error)
	// PeekIssued is Peek for a token of a live entry, which may wait in the entry.
	PeekIssued(ctx context.Context, prk recordkey.Key, hash string, now time.Time) (Token, error)

	// Invite keeps an invitation. ErrDuplicate: something lies there already. It ends by the Change that makes the entry.
	Invite(ctx context.Context, i Invitation) error
	// Limit counts something, if that is within the limit, or returns how long to wait. It is exact.
	Limit(ctx context.Context, l Limit) (wait time.Duration, err error)

	// History are the lines of an entry's history, the oldest first.
	History(ctx context.Context, prk recordkey.Key) ([]string, error)
	// Feed reads some of a feed.
	Feed(ctx context.Context, f Feed) (FeedPage, error)
	// FeedEnd is the position at the end of a feed; of a part that has nothing, "".
	FeedEnd(ctx context.Context, ns recordkey.Namespace, name string) (after [FeedParts]string, err error)
	// Tell puts a line about an entry, or about no entry for the zero key, into a feed.
	Tell(ctx context.Context, ns recordkey.Namespace, feed string, prk recordkey.Key, n Note) error

	// StartSession keeps a session of a live entry, if that is not disabled and has not ended all its sessions since it
	// was seen; else ErrNotFound, or ErrConflict. The oldest goes where there would be more than MostSessions.
	StartSession(ctx context.Context, s Start) (Session, error)
	// FindSession returns an entry and its session of that ID, in one round trip; once a minute another one notes that
	// the session was seen. ErrNotFound: it has ended. The caller asks whether the session admits to the entry.
	FindSession(ctx context.Context, prk recordkey.Key, id string, now time.Time) (Record, Session, error)
	// Sessions does something to the sessions of an entry, and returns those that it was done to.
	Sessions(ctx context.Context, op SessionsOp) ([]Session, error)
}

// A Cache says how many entries are copied into this process, about, and how old a copy gets at most. The zero Cache
// keeps nothing. A copy goes when the server says that the entry has changed, which is a moment after it has. What this
// engine wrote itself it has seen, once the writing has returned.
type Cache struct {
	Entries int
	Age     time.Duration
}

// A Scan asks for about Count record keys that match a Redis glob or, where Index is a key, members of that set.
//
// With a Tally, what is found begins with a number, in digits: of keys with that beginning and no slash after it, so many have no
// end of life, as tombstones have one. Those that have one follow.
type Scan struct {
	Pattern string
	Tally   string // if it is not "", the PRKs that begin with it and have no end of life are only counted
	Index   recordkey.Key
	Cursor  string
	Count   int
}

// ScanAll yields what one SCAN after the other finds, until one finds an error or the last has been made.
func ScanAll(ctx context.Context, e Engine, at Scan) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		for {
			found, next, err := e.Scan(ctx, at)
			if !yield(found, err) || err != nil || next == "" {
				return
			}
			at.Cursor = next
		}
	}
}

// An Order asks for at most Count members of the ordered index Key between two bounds, in reverse from Max down to Min.
type Order struct {
	Key      recordkey.Key
	Min, Max Bound
	Reverse  bool
	Count    int
}

// A Bound is an end of a range of members. The zero Bound sets no limit.
type Bound struct {
	At   string
	Open bool // without At itself
	Is   bool
}

// Lex is the bound as the commands of sorted sets take it; free stands for the zero Bound.
func (b Bound) Lex(free string) string {
	switch {
	case !b.Is:
		return free
	case b.Open:
		return "(" + b.At
	}
	return "[" + b.At
}

// A Member is asked for by Holds: a member of a set or, with Ordered, of an ordered index.
type Member struct {
	Set     recordkey.Key
	Value   string
	Ordered bool
}

// An Op is one command on a tertiary record: its name and what follows the key.
type Op struct {
	PRK     recordkey.Key
	Key     recordkey.Key
	Command string
	Args    []string
	Write   bool            // changes the record
	Once    bool            // must not be sent again when the reply is lost
	Most    int             // the most members that the record may have after a command that adds some; 0: any number
	Index   []recordkey.Key // index sets that the entry joins
	Unindex []recordkey.Key // index sets that it leaves
	Schema  Guard           // for writes
	Note    Note            // for writes
}

// A Reply is what one command on a tertiary record answered. Nil is set where there was nothing.
type Reply struct {
	Nil   bool
	Int   int64
	Text  string
	Items []string
}

// Empty reports whether there was nothing: no element, no such member.
func (r Reply) Empty() bool { return r.Int == 0 && r.Text == "" && len(r.Items) == 0 }
