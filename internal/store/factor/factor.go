// Package factor owns what an entry keeps for the second step of a login: the key, script, values
// and limits of that record. It sends no commands.
//
// The record is a hash beside its entry, in the entry's slot:
//
//	~/factor/{PRK}    ticket/HASH: UNTIL BOND STEP ORIGIN ATTEMPTS
//	                  ticket/HASH: - UNTIL BOND ATTEMPT    a spent ticket, for an hour
//
// A ticket shows that its holder has taken the first step of a login, and nothing else. HASH is
// that of the ticket's secret. UNTIL is the time in milliseconds at which it expires. The ticket is
// valid while its entry has the generation BOND, as a session is. STEP and ORIGIN are escaped.
// ATTEMPTS are the names of the attempts at the second step, each with a period behind it.
// ticket.lua describes both values.
package factor

import (
	"errors"
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

// Limits on tickets.
const (
	MaxTickets = 8               // tickets of an entry; the oldest of the most frequent origin goes
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

// ValidFor reports whether the ticket, if it belongs to the entry, is valid for it. Whatever ends
// the entry's sessions also ends its tickets.
func (t Ticket) ValidFor(e session.Entry) bool {
	return t.Generation == e.Generation() && e.Epoch != "" && !e.Disabled
}

// An Issue asks to store a ticket for an entry that a first step has read.
type Issue struct {
	PRK    recordkey.Key
	Seen   session.Entry // the entry at that time
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

// A Use asks to count an attempt at the second step, or to spend the ticket after the attempt has
// succeeded.
type Use struct {
	PRK        recordkey.Key
	ID         string
	Generation string // the entry's present one
	// Attempt names the attempt. It shows that a call is sent again, and contains no space, hyphen
	// or period.
	Attempt string
	Now     time.Time // zero: the server's clock
}

// TryArgs returns the arguments of ticket.lua that count the attempt.
func (u Use) TryArgs() []string {
	return []string{"try", arg.Time(u.Now), ticketPrefix + u.ID, u.Generation, u.Attempt, strconv.Itoa(MaxTries)}
}

// SpendArgs returns the arguments of ticket.lua that spend the ticket.
func (u Use) SpendArgs() []string {
	return []string{"spend", arg.Time(u.Now), ticketPrefix + u.ID, u.Generation, u.Attempt}
}

var errTicket = errors.New("not a ticket")

// ParseTicket parses a member of the record that holds a ticket, and returns an error for any other
// one.
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
