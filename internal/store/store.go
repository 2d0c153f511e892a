// Package store and the packages below it are the only code that sends Redis commands. The types of
// this package describe reads and changes of records without reference to scripts or slots. An
// engine (package single or cluster) carries them out.
//
// Callers read entries with a [Lookup] and change one with a [Change]. A change is always such a
// write of an entry; a change of a stored schema is called a schema change. Nothing else writes
// facets and SRKs, apart from repairs. Values inside records (~prk, index members, and SRVs, which
// are the values of SRKs) are PRKs relative to the namespace of the record that holds them, so a
// namespace can be copied record by record.
//
// A change claims the SRK of each value that the entry gets, by writing its PRK there, and releases
// the SRKs of values that it loses. Every write gives an entry a new rev, a random token. Deleting
// an entry leaves a tombstone at its key for some time: a hash that no reader takes for an entry.
//
// Package recordkey defines the kinds of keys, for example PRKs and SRKs. Comments cite the
// invariants I1 to I7 by their numbers in docs/design/data.md.
package store

import (
	"context"
	"iter"
	"time"

	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/internal/store/throttle"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/recordkey"
)

// An Engine stores and finds records. All methods are safe for concurrent use and return when their
// context ends. Code that needs only some of them should take only the interfaces that have them.
type Engine interface {
	Connection
	Entries
	Indexes
	Maintenance
	Throttle
	Tokens
	Sessions
	Factors
	Histories
}

// A Connection describes and ends the connection to the servers.
type Connection interface {
	// Ping checks that the server answers. Otherwise it returns ErrUnavailable, which wraps the
	// cause.
	Ping(ctx context.Context) error
	// Survey describes the servers behind the engine. It returns ErrUnsuitable if the engine can
	// never work with them. If closely is true, it also asks for their settings and clocks, which
	// an application's least privileges do not cover. Survey leaves out everything that a server
	// forbids it to ask.
	Survey(ctx context.Context, closely bool) (Survey, error)
	// Time returns the time by the server's clock. On a cluster it asks the server that serves key.
	// Processes whose own clocks differ agree on it.
	Time(ctx context.Context, key recordkey.Key) (time.Time, error)
	// Close releases the resources that the engine itself opened.
	Close() error
}

// Entries reads and changes entries and their tertiary records.
type Entries interface {
	// Find answers each lookup, in order. An error that concerns only one lookup is in its Found.
	Find(ctx context.Context, lookups []Lookup) ([]Found, error)
	// Read reads entries, each with some of its tertiary records as they were at one moment. Later
	// pages of a large record may be newer and, on a cluster, so may any tertiary record.
	Read(ctx context.Context, reads []EntryRead) ([]Entry, error)
	// Apply makes one change, all of it or nothing, and returns the entry's new rev. It returns
	// ErrUnconfirmed if the change was made but did not reach as many replicas as it asks for, or,
	// on a cluster, if a server refused the work that follows the commit.
	Apply(ctx context.Context, c Change) (rev string, err error)
	// ApplyAll makes changes as Apply does, many at a time. If creates exclude each other, the
	// first one wins. If a server does not answer one change, ApplyAll begins no more of them and
	// returns ErrUnavailable for those.
	ApplyAll(ctx context.Context, cs []Change) []error
	// Bulk begins a run of changes. A store in a file saves the changes of a run together: a change
	// made with the returned context is answered before it is saved, and end saves all of them. If
	// end fails, changes that are not saved yet are undone, unless the context passed to end has
	// ended. Other stores save every change at once.
	Bulk(ctx context.Context) (bulk context.Context, end func(context.Context) error)
	// Tertiary runs one command on a tertiary record of a live entry. If it returns ErrFull,
	// nothing was added. SMEMBERS and HGETALL read a record of more than about MemberBatch members
	// page by page, and may miss members that are added or removed meanwhile.
	Tertiary(ctx context.Context, op Op) (Reply, error)
}

// Indexes lists keys, and reads indexes.
type Indexes interface {
	// Scan returns the next batch of a listing. An empty cursor starts it; an empty next ends it.
	// Keys and members that exist during the whole listing are returned at least once. Others may
	// also be returned, and any may be returned twice.
	//
	// On a cluster, Scan may miss keys whose slot moves to another master during the listing.
	Scan(ctx context.Context, s Scan) (found []string, next string, err error)
	// ScanAll yields the batches of a whole listing. It ends after an error. Unlike Scan, it misses
	// no keys while slots move, unless s has a Tally.
	ScanAll(ctx context.Context, s Scan) iter.Seq2[[]string, error]
	// Order returns the next members of an ordered index between two bounds.
	Order(ctx context.Context, o Order) ([]string, error)
	// CountOrder returns the number of members of an ordered index between two bounds. It ignores
	// o.Reverse, o.Skip and o.Count.
	CountOrder(ctx context.Context, o Order) (int64, error)
	// Cardinalities returns the number of members of each index set or ordered index, and for the
	// zero key the approximate number of records in the store.
	Cardinalities(ctx context.Context, indexes []recordkey.Key) ([]int64, error)
	// HasMembers reports for each set or ordered index whether it has the member. It does not check
	// that the entry is live. With atOnce, all answers describe the same moment, except on a
	// cluster.
	HasMembers(ctx context.Context, members []Member, atOnce bool) ([]bool, error)
}

// Maintenance reads records as they are, and repairs them.
type Maintenance interface {
	// ReadRaw reads many raw records at a time, for callers that judge them. A record of another
	// Redis type is a result, not an error. Results are in the order of at.
	ReadRaw(ctx context.Context, at []RawRead) ([]Raw, error)
	// Settle waits before a caller reads records again that may be damaged or part of a change
	// under way. n is the number of earlier calls for these records. Settle returns false if there
	// is no need to read again, because every writer whose change was seen has finished or died.
	// Under [WithoutOtherWriters] it does not wait.
	Settle(ctx context.Context, n int) (bool, error)
	// Repair carries out one repair step and reports the result that the step defines.
	Repair(ctx context.Context, s RepairStep) (bool, error)
	// Secret returns the random text that is stored at key. If there is none, it stores fresh and
	// returns that.
	Secret(ctx context.Context, key recordkey.Key, fresh string) (string, error)
}

// Throttle counts login attempts and other limited uses.
type Throttle interface {
	// Admit counts a login attempt as a failure, which Undo takes back if the login succeeds, or
	// returns how long to wait before the next attempt. It is exact: concurrent attempts never
	// exceed the limits.
	Admit(ctx context.Context, c throttle.Counters) (throttle.Admission, error)
	// LoginWait returns how long Admit would make an attempt wait. It counts nothing.
	LoginWait(ctx context.Context, c throttle.Counters) (time.Duration, error)
	// Undo takes back a failure that Admit counted, because the login succeeded, and remembers the
	// origin as familiar.
	Undo(ctx context.Context, c throttle.Counters, as throttle.Admission) error
	// ThrottleState returns the failures that count against the account, as the next Admit would
	// find them. It writes nothing.
	ThrottleState(ctx context.Context, c throttle.Counters) (throttle.State, error)
	// Reset clears the failures of an account. Its familiar origins stay.
	Reset(ctx context.Context, c throttle.Counters) error
	// Limit counts one use if the limit allows it; otherwise it returns how long to wait. It is
	// exact.
	Limit(ctx context.Context, l throttle.Limit) (wait time.Duration, err error)
}

// Tokens stores single-use tokens of entries, and invitations.
type Tokens interface {
	// Issue stores a single-use token of a live entry without changing the entry's rev. If the
	// entry already has the maximum number of tokens, an old one ends. Issue returns ErrConflict if
	// the entry's rev has changed, and ErrNotFound if the entry is gone.
	Issue(ctx context.Context, i token.Issue) error
	// Peek returns the token that was issued under the hash of a secret, and how long it remains
	// valid, or ErrNotFound. It does not check whether the entry has ended the token.
	Peek(ctx context.Context, prk recordkey.Key, hash string, now time.Time) (t token.Token, left time.Duration, err error)
	// PeekIssued is like Peek for a token of a live entry, and also finds a token that is still
	// stored in the entry itself.
	PeekIssued(ctx context.Context, prk recordkey.Key, hash string, now time.Time) (token.Token, error)
	// Invite stores an invitation and returns its token. If there is a valid invitation with the
	// same hash, Invite returns its token and stores nothing. The error is ErrDuplicate if another
	// token of the entry is still valid. The Change that creates the entry ends the invitation.
	Invite(ctx context.Context, i token.Invitation) (token.Token, error)
	// Spend marks a hash as spent for a time, and reports whether this call marked it. It is exact,
	// and a call that is sent again returns the same result.
	Spend(ctx context.Context, ns recordkey.Namespace, hash string, life time.Duration) (bool, error)
}

// Sessions stores the sessions of entries.
type Sessions interface {
	// StartSession stores a session of a live entry. It returns ErrNotFound if the entry is gone or
	// disabled. It returns ErrConflict if, since the login read the entry, all its sessions were
	// ended, its password or factors were changed, or it was created again. If the entry already
	// has session.Max sessions, the oldest ends.
	StartSession(ctx context.Context, s session.Start) (session.Session, error)
	// FindSession returns an entry and its session with that ID in one round trip. Once a minute, a
	// second round trip records that the session was seen. FindSession returns ErrNotFound if the
	// session has ended. The caller must check that the session is valid for the entry.
	FindSession(ctx context.Context, prk recordkey.Key, id string, now time.Time) (Record, session.Session, error)
	// ListSessions returns the sessions of an entry that have this generation.
	ListSessions(ctx context.Context, prk recordkey.Key, generation string, now time.Time) ([]session.Session, error)
	// VerifySession records that the owner of a session gave the password, and returns the session.
	// It returns ErrNotFound if the entry has no session with that ID and generation.
	VerifySession(ctx context.Context, prk recordkey.Key, id, generation string, now time.Time) (session.Session, error)
	// EndSession ends a session, and reports whether there was one with that ID. If the reply is
	// lost and the call is sent again, it still reports true.
	EndSession(ctx context.Context, prk recordkey.Key, id string, n history.Note, now time.Time) (bool, error)
	// ClearSessions removes the sessions that have this generation.
	ClearSessions(ctx context.Context, prk recordkey.Key, generation string, now time.Time) error
}

// Factors stores the records of entries for the second step of a login: their factors, and tickets,
// each of which shows that its holder has taken the first step.
type Factors interface {
	// IssueTicket stores a ticket. If the entry already has factor.MaxTickets tickets, the oldest
	// of the most frequent origin ends. IssueTicket returns ErrNotFound if the ticket was spent
	// before.
	IssueTicket(ctx context.Context, i factor.Issue) (factor.Ticket, error)
	// TryTicket counts an attempt at the second step, and returns the ticket and factors. It
	// returns ErrNotFound if the entry has no ticket with that ID and generation, or if
	// factor.MaxTries other attempts were counted. It is exact, and counts an attempt once even if
	// the call is sent again.
	TryTicket(ctx context.Context, t factor.Try) (factor.Tried, error)
	// SpendTicket spends a ticket for a counted attempt that has succeeded, and in the same step
	// records that the factor accepted the proof. It returns ErrNotFound if there is no such ticket
	// or if another attempt has spent it. It returns ErrConflict if the factor does not exist, or
	// does not accept the proof because it has already accepted this one or a later one.
	SpendTicket(ctx context.Context, s factor.Spend) error
	// AcceptPasskey records that a passkey accepted an answer without a ticket, so that the answer
	// signs in only once. It returns ErrNotFound if there is no such passkey, and ErrConflict if
	// the answer has signed in before or is too old, or if its counter is not larger than the last
	// one. If wait is positive, nothing was recorded, because passkeys have signed in to the entry
	// too often.
	AcceptPasskey(ctx context.Context, a factor.Accept) (wait time.Duration, err error)
	// BeginEnrolment stores a pending factor. If there are too many, the oldest ends.
	BeginEnrolment(ctx context.Context, prk recordkey.Key, p factor.Pending, now time.Time) error
	// StoreFactors stores factors in place of a pending one, if pending is not "". It returns
	// ErrNotFound if there is no such pending factor.
	StoreFactors(ctx context.Context, prk recordkey.Key, pending string, factors []factor.Factor, now time.Time) error
	// ForgetFactors removes factors by the names of their members.
	ForgetFactors(ctx context.Context, prk recordkey.Key, names []string) error
	// ReplaceFactor replaces a factor. It returns ErrConflict if the stored factor differs from
	// old.
	ReplaceFactor(ctx context.Context, prk recordkey.Key, old, replacement factor.Factor) error
	// ReadFactors returns the time and the values of the named members of the record. The value of
	// an absent member is "".
	ReadFactors(ctx context.Context, prk recordkey.Key, names []string, now time.Time) (time.Time, []string, error)
}

// Histories reads the histories of entries, and reads and extends the feeds.
type Histories interface {
	// History returns the lines of an entry's history, oldest first.
	History(ctx context.Context, prk recordkey.Key) ([]string, error)
	// Feed reads lines of a feed after a position or, with f.Reverse, before it.
	Feed(ctx context.Context, f history.Feed) (history.FeedPage, error)
	// FeedEnd returns the position at the end of some parts of a feed. It is "" for a part that is
	// empty or not among parts.
	FeedEnd(ctx context.Context, ns recordkey.Namespace, name string, parts []int) (after [history.FeedParts]string, err error)
	// FeedEntries returns the maximum number of entries in a feed, on a cluster in each part of it.
	FeedEntries(feed string) int64
	// AppendFeed appends a line to a feed, about an entry or, for the zero key, about no entry. On
	// a cluster, it may return before a line for FeedLogins or FeedFailures is appended, and that
	// line may be lost.
	AppendFeed(ctx context.Context, ns recordkey.Namespace, feed string, prk recordkey.Key, n history.Note) error
}

// A Cache limits the copies of entries in this process: their approximate number and their age. The
// zero Cache keeps none. A copy is dropped when the server reports a change of the entry, shortly
// after the change. The engine's own writes are visible as soon as they return.
type Cache struct {
	Entries int
	Age     time.Duration
}

// A Scan asks for about Count record keys that match a Redis glob or, if Index is set, for members
// of that set.
//
// With a Tally, each batch starts with a number in digits: how many live entries have a key that
// begins with Tally and has no slash after it. The other keys of that form, such as those of
// tombstones, follow the number.
type Scan struct {
	Pattern string
	Tally   string // if not "", live entries whose PRKs have this prefix are only counted
	Index   recordkey.Key
	Cursor  string
	Count   int
}

// ScanSteps yields the result of one Scan after another until one fails or the listing ends.
func ScanSteps(ctx context.Context, e Indexes, at Scan) iter.Seq2[[]string, error] {
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

// An Order asks for at most Count members of the ordered index Key between two bounds, after the
// first Skip of them. With Reverse it goes down from Max to Min. Skip is 0 if there is a bound.
type Order struct {
	Key      recordkey.Key
	Min, Max Bound
	Reverse  bool
	Skip     int64
	Count    int
}

// A Bound is one end of a range of members. The zero Bound sets no limit.
type Bound struct {
	At        string
	Exclusive bool // excludes At itself
	Set       bool
}

// Lex returns the bound as ZRANGEBYLEX expects it. It returns free for the zero Bound.
func (b Bound) Lex(free string) string {
	switch {
	case !b.Set:
		return free
	case b.Exclusive:
		return "(" + b.At
	}
	return "[" + b.At
}

// A Member names a member of a set or, with Ordered, of an ordered index. HasMembers looks it up.
type Member struct {
	Set     recordkey.Key
	Value   string
	Ordered bool
}

// An Op describes one command on a tertiary record: its name and the arguments after the key.
type Op struct {
	PRK        recordkey.Key
	Key        recordkey.Key
	Command    string
	Args       []string
	Write      bool            // changes the record
	NoRetry    bool            // must not be sent again if the reply is lost
	MaxMembers int             // limit on the record's members after adding some; 0: no limit
	Index      []recordkey.Key // index sets for the entry to join
	Unindex    []recordkey.Key // index sets for it to leave
	Schema     Guard           // for writes
	Note       history.Note    // for writes
}

// A Reply is the result of one command on a tertiary record. Nil reports that the server replied
// nil.
type Reply struct {
	Nil   bool
	Int   int64
	Text  string
	Items []string
}

// Empty reports whether the reply is nil, zero, an empty text or an empty list.
func (r Reply) Empty() bool { return r.Int == 0 && r.Text == "" && len(r.Items) == 0 }
