// Package session owns the sessions of entries: their key, scripts, values and limits. It sends no
// commands.
//
// The sessions are a hash beside their entry, in the entry's slot:
//
//	~/session/{PRK}    HASH: LIFE IDLE SEEN VERIFIED BEGUN BOND ORIGIN AGENT
//	                   HASH: - UNTIL CALL    an ended session, for an hour
//
// HASH is the hash of the session's secret. Times are in milliseconds, and the last two words are
// escaped. A session is valid while its entry has the generation in BOND, which changes when all
// sessions of the entry end. In a session of level 2, BOND also holds a time. session.lua describes
// all words, and epoch.lua which login may start a session.
package session

import (
	_ "embed"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store/arg"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/recordkey"
)

var (
	// Lua runs on the record of an entry's sessions. [history.Lua] must precede it.
	//
	//go:embed session.lua
	Lua string

	// EpochLua runs on an entry.
	//
	//go:embed epoch.lua
	EpochLua string
)

// FieldEpoch is the field of an entry that holds its epoch: a rev, or a result of [FirstEpoch], to
// which sessions are bound. The epoch is replaced when all sessions end, and may be absent until
// the first session begins.
const FieldEpoch = "~epoch"

// Max is the maximum number of sessions of an entry. Further ones replace the oldest.
const Max = 100

// SeenInterval limits how often the time at which a session was last seen is stored.
const SeenInterval = time.Minute

// Key returns the key of an entry's sessions, a hash in the entry's slot.
func Key(prk recordkey.Key) (recordkey.Key, error) { return prk.Own("session") }

// FirstEpoch returns the epoch for an entry that has none, made from a new rev. Unlike all others,
// it begins with a hyphen.
func FirstEpoch(rev string) string { return "-" + rev[1:] }

// An Entry holds the fields of an entry on which its sessions depend.
type Entry struct {
	Rev      string // the newest rev
	Epoch    string // see FieldEpoch
	Changed  string // when the password was last set
	Factor   string // its mark of second factors, "" for none
	Disabled bool
}

// Generation returns the text that sessions of an entry are bound to. A session is valid while the
// entry has the same generation. The generation changes when all sessions end: the epoch changes
// or, if a program that does not know sessions sets the password, the time of the password.
func (e Entry) Generation() string {
	return recordkey.Escape(e.Epoch) + "/" + recordkey.Escape(e.Changed)
}

// A Session describes a session as it is stored.
type Session struct {
	ID         string // hash of its secret
	Generation string // the entry's Generation when the session began
	Begun      time.Time
	Seen       time.Time // when it was last seen, to the minute
	Verified   time.Time // when the owner last took a step of a login
	// VerifiedLevel2 is when the owner last took two steps of a login, or signed in with a passkey.
	// It is zero in a session of level 1.
	VerifiedLevel2 time.Time
	Ends           time.Time // when it ends at the latest, however often it is used
	// Idle is how long after Seen the session ends if it is not used.
	Idle   time.Duration
	Origin string
	Agent  string
}

// Live reports whether the session has not expired at the time now. The zero Session has expired.
func (s Session) Live(now time.Time) bool { return s.Ends.After(now) && s.Seen.Add(s.Idle).After(now) }

// clockTolerance is how far apart the clocks of a server and of the one that takes its place may
// be.
const clockTolerance = time.Minute

// unknownTime stands for a time that nobody knows, and that counts as long ago.
var unknownTime = time.UnixMilli(0)

// AsOf returns the session as of now. If it was verified more than clockTolerance after now, the
// clock was wrong then, and AsOf replaces that time with unknownTime, so that the owner does not
// count as just verified until the clock reaches it. If the session was seen after now, AsOf sets
// Seen to now, because callers measure from Seen how long ago the owner was verified.
func (s Session) AsOf(now time.Time) Session {
	for _, at := range []*time.Time{&s.Verified, &s.VerifiedLevel2} {
		if at.Sub(now) > clockTolerance {
			*at = unknownTime
		}
	}
	if s.Seen.After(now) {
		s.Seen = now
	}
	return s
}

// ValidFor reports whether the session is valid for the entry. It does not check whether the
// session has expired. In an entry with a second factor, only sessions of level 2 are valid.
func (s Session) ValidFor(e Entry) bool {
	return s.Generation == e.Generation() && e.Epoch != "" && !e.Disabled && (e.Factor == "" || !s.VerifiedLevel2.IsZero())
}

// A Start asks to store a session for an entry that a login has read.
type Start struct {
	PRK  recordkey.Key
	Seen Entry // the entry as the login read it
	// FirstEpoch is a result of the function FirstEpoch. It becomes the entry's epoch if the entry
	// has none.
	FirstEpoch string
	ID         string
	Life, Idle time.Duration
	Level      int // 2 if the owner took two steps of a login, or signed in with a passkey
	// Verified and VerifiedLevel2 are the times of the session that this one replaces, if its owner
	// was not verified again. If zero, they are now.
	Verified, VerifiedLevel2 time.Time
	Origin                   string
	Agent                    string
	Note                     history.Note
	Now                      time.Time // zero: the server's clock
}

// EpochArgs returns the arguments of epoch.lua. Its key is the entry.
func (s Start) EpochArgs() []string {
	return []string{s.PRK.Type(), s.Seen.Rev, s.Seen.Epoch, s.Seen.Changed, s.FirstEpoch, s.Seen.Factor}
}

// Args returns the arguments of session.lua that store the session, bound to the epoch that
// epoch.lua returned.
func (s Start) Args(epoch string) []string {
	bound := Entry{Epoch: epoch, Changed: s.Seen.Changed}
	return append(Args("begin", s.Now, s.ID, bound.Generation()), arg.Millis(s.Life), arg.Millis(s.Idle),
		recordkey.Escape(s.Origin), recordkey.Escape(s.Agent), strconv.Itoa(Max), strconv.Itoa(max(s.Level, 1)),
		arg.Time(s.Verified), arg.Time(s.VerifiedLevel2))
}

// A Verb says what a call of session.lua does.
type Verb string

// The verbs other than that of [Start.Args].
const (
	Seen   Verb = "seen"
	Verify Verb = "verify"
	End    Verb = "end"
	List   Verb = "list"
	Clear  Verb = "clear"
)

// Args returns the arguments of session.lua. bond is a generation or, for [End], the name of the
// call.
func Args(v Verb, now time.Time, id, bond string) []string {
	return []string{string(v), arg.Time(now), id, bond}
}

// ParseAll parses a reply of session.lua: members, each after its name. It ignores other texts.
func ParseAll(texts []string) (all []Session) {
	for i := 0; i+1 < len(texts); i += 2 {
		if s, err := Parse(texts[i], texts[i+1]); err == nil {
			all = append(all, s)
		}
	}
	return all
}

var errSession = errors.New("not a session")

// maxDigits is the maximum length of a number in a member, here as in session.lua.
const maxDigits = 15

// Parse parses a member of the record. It returns an error for any other text.
func Parse(id, text string) (Session, error) {
	words := strings.Split(text, " ")
	if len(words) != 8 {
		return Session{}, errSession
	}
	var ms [5]int64
	for i := range ms {
		n, err := strconv.ParseUint(words[i], 10, 64)
		if err != nil || len(words[i]) > maxDigits {
			return Session{}, errSession
		}
		ms[i] = int64(n)
	}
	generation, level2, err := parseBond(words[5])
	if err != nil {
		return Session{}, err
	}
	origin, err1 := recordkey.Unescape(words[6])
	agent, err2 := recordkey.Unescape(words[7])
	return Session{
		ID: id, Ends: time.UnixMilli(ms[0]), Idle: time.Duration(ms[1]) * time.Millisecond, Seen: time.UnixMilli(ms[2]),
		Verified: time.UnixMilli(ms[3]), VerifiedLevel2: level2, Begun: time.UnixMilli(ms[4]), Generation: generation, Origin: origin, Agent: agent,
	}, errors.Join(err1, err2)
}

// parseBond returns the generation in a bond, and the time of level 2 if the session has it.
func parseBond(bond string) (generation string, level2 time.Time, err error) {
	epoch, rest, _ := strings.Cut(bond, "/")
	changed, digits, has := strings.Cut(rest, "/")
	if !has {
		return bond, time.Time{}, nil
	}
	ms, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || len(digits) > maxDigits {
		return "", time.Time{}, errSession
	}
	return epoch + "/" + changed, time.UnixMilli(int64(ms)), nil
}
