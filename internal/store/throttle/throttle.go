// Package throttle owns the records that count login attempts and other limited uses: their keys,
// scripts, replies and limits. It sends no commands.
//
// The counters of login attempts are a hash:
//
//	~/throttle/TYPE/uid/UID        the counters of an account
//	~/throttle/TYPE/nobody/DIGEST  of an identifier that no entry has, by a keyed hash of it
//	~/throttle/TYPE/origin/DIGEST  of an origin, over all accounts of a type
//
// An account's counters, and those of an identifier that no entry has, have
//
//	sn su sa   the failures of strangers, the end of their window, the time of the next attempt
//	o:DIGEST   when the origin with this digest last logged in
//	n:DIGEST   the failures of this origin on its own budget
//	fu         the end of the window of those failures
//
// and those of an origin have sn, su and sa. Both also have, in field k, the calls of the last
// minute, so that a call that is sent again is counted once. Times are in milliseconds.
// throttle.lua describes all fields, and how attempts are counted.
//
// Other counters are texts, "N UNTIL": the number of uses in the current period, and the time at
// which it ends.
//
//	~/visits/TYPE/KIND/DIGEST      the requests of one kind, by an origin or for an address; if
//	                               KIND is use, the uses that the application limits
package throttle

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store/arg"
	"github.com/coffeenode/userdb/recordkey"
)

// Lua is the script that counts login attempts. LimitLua counts other uses.
var (
	//go:embed throttle.lua
	Lua string
	//go:embed limit.lua
	LimitLua string
)

// Limits of throttling. Failures are counted in a window that begins with the first one. An origin
// that logged in to an account before is familiar there; all others are strangers. Each familiar
// origin has its own budget, which no other origin can use up. Its failures beyond the budget count
// as failures of strangers. Strangers therefore cannot lock out the owner, and between two
// successful logins an account has at most StrangerMax + FamiliarOrigins * FamiliarMax = 100
// failures in a window.
const (
	Window          = 24 * time.Hour
	StrangerFree    = 10 // failures before delays begin, which double from one second
	StrangerMax     = 60 // failures in a window
	FamiliarMax     = 8  // failures of one familiar origin in a window
	FamiliarOrigins = 5  // number of familiar origins of an account; the latest ones stay
	FamiliarLife    = 90 * 24 * time.Hour
	OriginWindow    = time.Hour
	OriginFree      = 30 // failures of one origin, over all accounts, before delays begin
	MaxDelay        = 15 * time.Minute
)

// ResendLimit limits the time during which a call may be sent again. It is less than the minute for
// which the counters remember a call.
const ResendLimit = 30 * time.Second

const (
	keyStart  = "throttle" // begins the keys of counters of login attempts
	ofAccount = "uid"
	ofUnknown = "nobody"
	ofOrigin  = "origin"
)

// Key returns the key of the counters of an entry.
func Key(prk recordkey.Key) (recordkey.Key, error) {
	return key(prk.Namespace(), keyStart, prk.Type(), ofAccount, prk.Value())
}

// UnknownKey returns the key of the counters of an identifier that no entry of a type has.
func UnknownKey(ns recordkey.Namespace, typ, digest string) (recordkey.Key, error) {
	return key(ns, keyStart, typ, ofUnknown, digest)
}

// OriginKey returns the key of the counters of an origin, over all accounts of a type.
func OriginKey(ns recordkey.Namespace, typ, digest string) (recordkey.Key, error) {
	return key(ns, keyStart, typ, ofOrigin, digest)
}

// VisitsKey returns the key of the counter of one kind of request.
func VisitsKey(ns recordkey.Namespace, typ, kind, digest string) (recordkey.Key, error) {
	return key(ns, "visits", typ, kind, digest)
}

func key(ns recordkey.Namespace, parts ...string) (recordkey.Key, error) {
	k, err := recordkey.Own(parts...)
	return k.In(ns), err
}

// IsKey reports whether k is the key of counters of login attempts.
func IsKey(k recordkey.Key) bool {
	parts := k.Parts()
	return len(parts) == 4 && parts[0] == keyStart
}

// Counters names the counters for one login attempt.
type Counters struct {
	Account recordkey.Key // counters of an account, or of an identifier that no entry has
	Origin  recordkey.Key // counters of an origin; zero if the origin is unknown
	Name    string        // the origin's name in the account's counters
	Now     time.Time     // zero: the server's clock
}

// Split returns the counters of the account and those of the origin separately. On a cluster they
// are in two slots.
func (c Counters) Split() [2]Counters {
	account, origin := c, c
	account.Origin, origin.Account = recordkey.Key{}, recordkey.Key{}
	return [2]Counters{account, origin}
}

// An Admission says how an attempt was counted.
type Admission struct {
	Wait      time.Duration // time to wait; zero if the attempt is admitted
	OwnBudget bool          // counted on the budget of a familiar origin, not on the common one
	AtOrigin  bool          // also counted at its origin
}

// State describes the login attempts that count against an account.
type State struct {
	Now      time.Time        // the time of the answer, by the clock by which attempts are counted
	Wait     time.Duration    // how long an unfamiliar origin must wait; zero if it need not
	Failures int              // failures of unfamiliar origins in the current window
	Until    time.Time        // the end of the window; zero if there is none
	Familiar []FamiliarOrigin // origins that logged in before, latest first
}

// A FamiliarOrigin describes an origin that logged in before.
type FamiliarOrigin struct {
	LastLogin time.Time
	Failures  int // failures counted on its own budget
}

// A Verb says what a call of throttle.lua does.
type Verb string

// The verbs, which throttle.lua explains.
const (
	Admit    Verb = "admit"
	Ask      Verb = "ask"
	Forgive  Verb = "forgive"
	Withdraw Verb = "withdraw"
	Reset    Verb = "reset"
	Look     Verb = "look"
)

// A Call is one call of throttle.lua.
type Call struct {
	Keys []string
	Args []string
}

// sinceArg is the index of the argument that says how long ago the call was first sent.
const sinceArg = 14

// NewCall returns the call for a verb. id, a text of twelve random characters, identifies the call
// if it is sent again. as says how the attempt that [Forgive] or [Withdraw] undoes was counted.
func NewCall(v Verb, id string, c Counters, as Admission) Call {
	call := Call{Args: []string{string(v), arg.Time(c.Now), c.Name, arg.Bool(as.OwnBudget)}}
	for _, n := range []int64{
		Window.Milliseconds(), StrangerFree, StrangerMax, FamiliarMax, FamiliarOrigins, FamiliarLife.Milliseconds(),
		OriginWindow.Milliseconds(), OriginFree, MaxDelay.Milliseconds(),
	} {
		call.Args = append(call.Args, strconv.FormatInt(n, 10))
	}
	call.Args = append(call.Args, id, "")
	if c.Account.IsValid() {
		call.Keys, call.Args = append(call.Keys, c.Account.String()), append(call.Args, "account")
	}
	if c.Origin.IsValid() {
		call.Keys, call.Args = append(call.Keys, c.Origin.String()), append(call.Args, "origin")
	}
	return call
}

// Resend changes the arguments for a call that was sent before and may have been carried out.
func (c Call) Resend(since time.Duration) { c.Args[sinceArg] = arg.Millis(since) }

// A DamagedError is the index of the key that does not hold counters.
type DamagedError int

func (DamagedError) Error() string { return "not a record of login counters" }

// ErrMaybeCounted means that the reply to a call was lost, and that the counters no longer remember
// the call because too many others followed.
var ErrMaybeCounted = errors.New("a reply was lost, and it is unknown whether the attempt was counted")

// damage returns a DamagedError if a reply says that a key does not hold counters.
func (c Call) damage(reply []int64) error {
	if len(reply) == 2 && reply[0] == -2 && 1 <= reply[1] && int(reply[1]) <= len(c.Keys) {
		return DamagedError(reply[1] - 1)
	}
	return nil
}

// Admission parses the reply to a call with a verb other than [Look]. The error is a DamagedError,
// ErrMaybeCounted, or the error for a reply that throttle.lua never returns.
func (c Call) Admission(reply []int64) (Admission, error) {
	switch err := c.damage(reply); {
	case err != nil:
		return Admission{}, err
	case len(reply) == 1:
		return Admission{}, ErrMaybeCounted
	case len(reply) != 3:
		return Admission{}, fmt.Errorf("a list of %d numbers, want 3", len(reply))
	}
	return Admission{Wait: millis(reply[0]), OwnBudget: reply[1] == 1, AtOrigin: reply[2] == 1}, nil
}

// stateHeader is the number of items in a reply to Look that precede those of familiar origins.
const stateHeader = 5

// State parses the reply to a call with [Look]. The error is a DamagedError, or the error for a
// reply that throttle.lua never returns.
func (c Call) State(reply []int64) (State, error) {
	switch err := c.damage(reply); {
	case err != nil:
		return State{}, err
	case len(reply) < stateHeader || len(reply)%2 != stateHeader%2:
		return State{}, fmt.Errorf("a list of %d numbers, want %d", len(reply), stateHeader)
	}
	s := State{Now: time.UnixMilli(reply[1]), Wait: millis(reply[2]), Failures: int(reply[3])}
	if reply[4] > 0 {
		s.Until = time.UnixMilli(reply[4])
	}
	for pair := range slices.Chunk(reply[stateHeader:], 2) {
		s.Familiar = append(s.Familiar, FamiliarOrigin{LastLogin: time.UnixMilli(pair[0]), Failures: int(pair[1])})
	}
	slices.SortFunc(s.Familiar, func(a, b FamiliarOrigin) int {
		return cmp.Or(b.LastLogin.Compare(a.LastLogin), a.Failures-b.Failures)
	})
	return s, nil
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

var counterForm = regexp.MustCompile(`^[0-9]{1,15}$`)

// Unreadable returns a field of login counters that throttle.lua rejects, with its value, or "". It
// does the same checks as is_valid there. Field k holds the list of calls.
func Unreadable(fields map[string]string) (field, value string) {
	for field, value := range fields {
		counter := len(field) == 2 || strings.HasPrefix(field, "n:") || strings.HasPrefix(field, "o:")
		if field == "k" && !isCallList(value) || field != "k" && counter && !counterForm.MatchString(value) {
			return field, value
		}
	}
	return "", ""
}

// isCallList reports whether text is a list of calls. Each call is a token of twelve bytes followed
// by eleven digits.
func isCallList(text string) bool {
	const token, call = 12, 12 + 11
	for ; len(text) >= call; text = text[call:] {
		if !counterForm.MatchString(text[token:call]) {
			return false
		}
	}
	return text == ""
}

// A Limit says how often something may be done in a period of time.
type Limit struct {
	Counter recordkey.Key
	Max     int
	Window  time.Duration
	Now     time.Time // zero: the server's clock
}

// Args returns the arguments of limit.lua. Its key is the counter; its reply is the time to wait in
// milliseconds.
func (l Limit) Args() []string {
	return []string{strconv.Itoa(l.Max), arg.Millis(l.Window), arg.Time(l.Now)}
}
