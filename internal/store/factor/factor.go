// Package factor owns the record that an entry keeps for the second step of a login: its key,
// scripts, values and limits. It sends no commands.
//
// The record is a hash beside its entry, in the entry's slot:
//
//	~/factor/{PRK}    ticket/HASH: UNTIL GENERATION STEP ORIGIN ATTEMPTS
//	                  ticket/HASH: - UNTIL GENERATION ATTEMPT    a spent ticket, for an hour
//	                  KIND/ID: MADE USED LABEL ACCEPTED SEALED   a factor
//	                  pending/ID: UNTIL LABEL SEALED             a factor that is being enrolled
//	                  tries/ORIGIN: SINCE COUNT                  wrong attempts
//	                  origin/ORIGIN: USED                        an origin that has signed in
//	                  spent/HASH: UNTIL ATTEMPT                  a passkey's answer that signed in
//
// A ticket shows only that its holder has taken the first step of a login. HASH is the hash of the
// ticket's secret. UNTIL is the time in milliseconds at which it expires. The ticket is valid while
// its entry has GENERATION, as a session is. STEP and ORIGIN are escaped. ATTEMPTS are the names of
// the attempts at the second step, each followed by a period. ticket.lua describes these values,
// those of the counters, and ACCEPTED.
//
// A factor counts only while the mark of its entry lists it (see [Mark]). KIND is totp, recovery or
// passkey. SEALED holds its encrypted secret, or the encrypted data that verifies answers of a
// passkey. accept.lua describes how a passkey signs in without a ticket.
package factor

import (
	"errors"
	"iter"
	"strconv"
	"strings"
	"time"

	_ "embed"

	"github.com/coffeenode/userdb/internal/store/arg"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/recordkey"
)

// TicketLua runs on the record of an entry.
//
//go:embed ticket.lua
var TicketLua string

// AcceptLua runs on the record of an entry.
//
//go:embed accept.lua
var AcceptLua string

// EnrolLua runs on the record of an entry.
//
//go:embed enrol.lua
var EnrolLua string

// Kinds of factors.
const (
	TOTP     = "totp"
	Recovery = "recovery" // a set of recovery codes
	Passkey  = "passkey"
)

func isKind(kind string) bool { return kind == TOTP || kind == Recovery || kind == Passkey }

// Limits on factors.
const (
	Max         = 8             // factors of an entry, without recovery codes
	maxPending  = 3             // factors of an entry that are being enrolled
	PendingLife = 1 * time.Hour // how long they stay
	maxOrigins  = 10            // origins that have signed in

	// MaxGuesses is how many codes may be wrong within GuessWindow, over all tickets: from each
	// origin that has signed in before, and from all others together. An attacker who knows the
	// password and tries for a year guesses a code of six digits, of which three are valid at a
	// time, with a probability of two percent.
	MaxGuesses  = 20
	GuessWindow = 24 * time.Hour
)

// Limits on tickets.
const (
	MaxTickets = 8               // tickets of an entry; see ticket.lua for which one ends
	MaxTries   = 5               // attempts at the second step with one ticket
	TicketLife = 5 * time.Minute // how long a ticket is valid

	// maxSpent limits the spent tickets that the record remembers, so that somebody who keeps
	// signing in does not make it grow.
	maxSpent = 100
)

const ticketPrefix = "ticket/"

// Key returns the key of an entry's record, a hash in the entry's slot.
func Key(prk recordkey.Key) (recordkey.Key, error) { return prk.Own("factor") }

// A Ticket describes a ticket as it is stored.
type Ticket struct {
	ID         string // hash of its secret
	Until      time.Time
	Generation string // the entry's Generation when the first step was taken
	Step       string // the first step, such as "password"; not empty
	Origin     string
	Tries      int // attempts at the second step
}

// ValidFor reports whether a ticket of the entry is valid. It does not check Until. Everything that
// ends the entry's sessions also ends its tickets.
func (t Ticket) ValidFor(e session.Entry) bool {
	return t.Generation == e.Generation() && e.Epoch != "" && !e.Disabled
}

// An Issue asks to store a ticket for an entry that a first step has read.
type Issue struct {
	PRK    recordkey.Key
	Seen   session.Entry // the entry as the first step read it
	ID     string
	Step   string
	Origin string
	Now    time.Time // zero: the server's clock
}

// Args returns the arguments of ticket.lua that store the ticket.
func (i Issue) Args() []string {
	return []string{
		"issue", arg.Time(i.Now), ticketPrefix + i.ID, i.Seen.Generation(), arg.Millis(TicketLife), recordkey.Escape(i.Step),
		recordkey.Escape(i.Origin), strconv.Itoa(MaxTickets), strconv.Itoa(maxSpent),
	}
}

// A Try asks to count an attempt at the second step and to read factors.
type Try struct {
	PRK        recordkey.Key
	ID         string // of the ticket
	Generation string // of the entry, as last read
	// Attempt names the attempt: a second call with the same name was sent again. It contains no
	// space, comma, hyphen or period.
	Attempt   string
	Guessable bool   // the proof is short enough to be guessed, so MaxGuesses applies
	Origin    string // of the attempt
	Factors   []string
	Now       time.Time // zero: the server's clock
}

// Args returns the arguments of ticket.lua.
func (t Try) Args() []string {
	limit := ""
	if t.Guessable {
		limit = strconv.Itoa(MaxGuesses)
	}
	args := []string{
		"try", arg.Time(t.Now), ticketPrefix + t.ID, t.Generation, t.Attempt, strconv.Itoa(MaxTries),
		recordkey.Escape(t.Origin), limit, arg.Millis(GuessWindow),
	}
	return append(args, t.Factors...)
}

// A Tried holds the reply to a Try.
type Tried struct {
	Ticket Ticket
	Now    time.Time
	Last   bool // if this attempt is wrong, MaxGuesses allows no further one
	// Wait is the time until MaxGuesses allows the attempt, or 0 if it does now. A refused attempt
	// is not counted.
	Wait    time.Duration
	Factors []string // the values of the factors, "" if they are absent
}

// ParseTried parses the reply of ticket.lua to a Try.
func ParseTried(texts []string) (t Tried, err error) {
	if len(texts) < 4 {
		return Tried{}, errTicket
	}
	t.Ticket, err = ParseTicket(texts[0], texts[1])
	ms, err2 := strconv.ParseUint(texts[2], 10, 64)
	if err = errors.Join(err, err2); err != nil {
		return Tried{}, err
	}
	t.Now, t.Last, t.Factors = time.UnixMilli(int64(ms)), texts[3] == "last", texts[4:]
	if texts[3] == "refused" && len(texts) == 5 {
		left, err := strconv.ParseInt(texts[4], 10, 64)
		t.Wait, t.Factors = max(time.Duration(left)*time.Millisecond, time.Second), nil
		return t, err
	}
	return t, nil
}

// A Spend asks to spend a ticket for an attempt whose proof was right, and to have the factor
// accept the proof.
type Spend struct {
	PRK        recordkey.Key
	ID         string // of the ticket
	Generation string
	Attempt    string
	Factor     string // the name of its member
	Number     int64  // a TOTP time step, the index of a recovery code, or a passkey counter
	Origin     string
	Now        time.Time // zero: the server's clock
}

// Args returns the arguments of ticket.lua.
func (s Spend) Args() []string {
	order := "once"
	switch kind, _, _ := strings.Cut(s.Factor, "/"); kind {
	case TOTP:
		order = "later"
	case Passkey:
		order = "counter"
	}
	return []string{
		"spend", arg.Time(s.Now), ticketPrefix + s.ID, s.Generation, s.Attempt, s.Factor, strconv.FormatInt(s.Number, 10), order,
		recordkey.Escape(s.Origin), strconv.Itoa(maxOrigins),
	}
}

var errTicket = errors.New("not a ticket")

// ParseTicket parses a member of the record that holds a ticket, and returns an error for other
// members.
func ParseTicket(name, text string) (Ticket, error) {
	id, ok := strings.CutPrefix(name, ticketPrefix)
	words := strings.Split(text, " ")
	if !ok || len(words) != 5 {
		return Ticket{}, errTicket
	}
	ms, err := strconv.ParseUint(words[0], 10, 64)
	if err != nil || len(words[0]) > maxDigits {
		return Ticket{}, errTicket
	}
	step, err1 := recordkey.Unescape(words[2])
	origin, err2 := recordkey.Unescape(words[3])
	return Ticket{
		ID: id, Until: time.UnixMilli(int64(ms)), Generation: words[1], Step: step, Origin: origin, Tries: strings.Count(words[4], "."),
	}, errors.Join(err1, err2)
}

// maxDigits is the maximum length of a time in a member, here as in ticket.lua.
const maxDigits = 15

// A Factor describes a factor as it is stored.
type Factor struct {
	Kind, ID string
	Made     time.Time
	Used     time.Time // when it last accepted a proof
	Label    string    // the name that its owner gave it
	Accepted string    // see ticket.lua
	Sealed   string
}

// Name returns the name of the factor's member.
func (f Factor) Name() string { return f.Kind + "/" + f.ID }

// Place returns the place of the secret in a member of an entry's record. The encryption
// authenticates it, so that the secret cannot be decrypted in another place.
func Place(prk recordkey.Key, name string) []string {
	return []string{prk.Namespace().Path(), prk.In(recordkey.Namespace{}).String(), name}
}

// Value returns the value of the factor's member.
func (f Factor) Value() string {
	return strings.Join([]string{arg.Time(f.Made), arg.Time(f.Used), recordkey.Escape(f.Label), f.Accepted, f.Sealed}, " ")
}

// Last returns the largest number that the factor has accepted, or -1.
func (f Factor) Last() int64 {
	last := int64(-1)
	for n := range f.numbers() {
		last = max(last, n)
	}
	return last
}

// HasAccepted reports whether the factor has accepted a number.
func (f Factor) HasAccepted(number int64) bool {
	for n := range f.numbers() {
		if n == number {
			return true
		}
	}
	return false
}

// Uses returns the number of accepted numbers that the factor remembers.
func (f Factor) Uses() (n int) {
	for range f.numbers() {
		n++
	}
	return n
}

func (f Factor) numbers() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for pair := range strings.SplitSeq(f.Accepted, ",") {
			digits, _, _ := strings.Cut(pair, ":")
			if n, err := strconv.ParseInt(digits, 10, 64); err == nil && !yield(n) {
				return
			}
		}
	}
}

var errFactor = errors.New("not a factor")

// Parse parses a member of the record that holds a factor, and returns an error for other members.
func Parse(name, value string) (Factor, error) {
	kind, id, _ := strings.Cut(name, "/")
	words := strings.Split(value, " ")
	if !isKind(kind) || id == "" || len(words) != 5 || words[4] == "" {
		return Factor{}, errFactor
	}
	made, err1 := parseTime(words[0])
	used, err2 := parseTime(words[1])
	label, err3 := recordkey.Unescape(words[2])
	return Factor{Kind: kind, ID: id, Made: made, Used: used, Label: label, Accepted: words[3], Sealed: words[4]}, errors.Join(err1, err2, err3)
}

// parseTime parses a time in milliseconds.
func parseTime(digits string) (time.Time, error) {
	ms, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || len(digits) > maxDigits {
		return time.Time{}, errFactor
	}
	return time.UnixMilli(int64(ms)), nil
}

// StrangersTries is the name of the member that counts wrong attempts from all origins that have
// not signed in before.
const StrangersTries = "tries/"

// ParseTries returns the number of wrong attempts that a member counts at the time now, and how
// long the store refuses further ones. An absent or unreadable member counts none, as in
// ticket.lua.
func ParseTries(text string, now time.Time) (count int, wait time.Duration) {
	first, second, _ := strings.Cut(text, " ")
	since, err1 := parseTime(first)
	count, err2 := strconv.Atoi(second)
	if err1 != nil || err2 != nil || !now.Before(since.Add(GuessWindow)) {
		return 0, 0
	}
	if count >= MaxGuesses {
		wait = min(since.Add(GuessWindow).Sub(now), GuessWindow)
	}
	return count, wait
}

// A Pending describes a factor that is being enrolled, as it is stored.
type Pending struct {
	ID     string
	Until  time.Time
	Label  string
	Sealed string
}

// Name returns the name of the member.
func (p Pending) Name() string { return "pending/" + p.ID }

// ParsePending parses a member of the record that holds a pending factor.
func ParsePending(name, value string) (Pending, error) {
	id, is := strings.CutPrefix(name, "pending/")
	words := strings.Split(value, " ")
	if !is || len(words) != 3 {
		return Pending{}, errFactor
	}
	until, err1 := parseTime(words[0])
	label, err2 := recordkey.Unescape(words[1])
	return Pending{ID: id, Until: until, Label: label, Sealed: words[2]}, errors.Join(err1, err2)
}

// BeginArgs returns the arguments of enrol.lua that store a pending factor. It ignores Until.
func (p Pending) BeginArgs(now time.Time) []string {
	return []string{
		"begin", arg.Time(now), p.Name(), arg.Millis(PendingLife), recordkey.Escape(p.Label) + " " + p.Sealed, strconv.Itoa(maxPending),
	}
}

// ConfirmArgs returns the arguments of enrol.lua that store factors. If pending is not "", they
// replace that pending factor.
func ConfirmArgs(now time.Time, pending string, factors []Factor) []string {
	args := []string{"confirm", arg.Time(now), pending}
	for _, f := range factors {
		args = append(args, f.Name(), f.Value())
	}
	return args
}

// ForgetArgs returns the arguments of enrol.lua that remove factors by the names of their members.
func ForgetArgs(names []string) []string { return append([]string{"forget", ""}, names...) }

// ReplaceArgs returns the arguments of enrol.lua that replace a factor if it has not changed.
func ReplaceArgs(old, replacement Factor) []string {
	return []string{"replace", "", old.Name(), old.Value(), replacement.Value()}
}

// ReadArgs returns the arguments of enrol.lua that read members of the record.
func ReadArgs(now time.Time, names []string) []string {
	return append([]string{"read", arg.Time(now)}, names...)
}

// ParseRead parses the reply of enrol.lua to ReadArgs.
func ParseRead(texts []string) (now time.Time, values []string, err error) {
	if len(texts) < 2 {
		return time.Time{}, nil, errFactor
	}
	now, err = parseTime(texts[1])
	return now, texts[2:], err
}
