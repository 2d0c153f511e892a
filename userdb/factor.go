package userdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
)

// The possible first steps of a login, as tickets record them.
const (
	stepPassword    = "password"
	stepToken       = "token"       // by Redeem or RedeemSession
	stepApplication = "application" // by StartSession, with an entry that the application found
	stepSession     = "session"     // by VerifySession, before RaiseSession
	stepLink        = "link"        // by LoginLinked
)

// A FactorError says that an entry has a second factor, so that one step does not suffice to sign
// in. It wraps ErrFactor. Methods return it in place of the entry.
type FactorError struct {
	// Methods lists the methods by which the second step can be taken, such as "totp" and
	// "recovery".
	Methods []string

	// Ticket proves for five minutes that the first step was taken. It is a secret. It is "" after
	// ResetPassword, which is not a step of a login.
	Ticket string

	// Done says that the method made its change, such as redeeming a token or setting a password,
	// but signed nobody in.
	Done bool
}

func (e *FactorError) Error() string {
	text := ErrFactor.Error()
	if len(e.Methods) > 0 {
		text += ": " + strings.Join(e.Methods, " or ")
	}
	if e.Done {
		text += "; the change was made, but nobody was signed in"
	}
	return text
}

// LogValue returns the text of Error, without the ticket.
func (e *FactorError) LogValue() slog.Value { return slog.StringValue(e.Error()) }

// Unwrap returns ErrFactor.
func (e *FactorError) Unwrap() error { return ErrFactor }

// Format writes the text of Error, not the ticket, whatever the formatting verb.
func (e *FactorError) Format(f fmt.State, _ rune) { fmt.Fprint(f, e.Error()) }

// FactorMethods returns the methods by which the second step of a login can be taken, sorted, or
// nil if the entry has no second factor.
func (e Entry) FactorMethods() []string { return factor.Mark(e.fields[factor.FieldMark]).Methods() }

// FactorIDs returns the IDs of the entry's second factors, or nil if it has none.
func (e Entry) FactorIDs() (ids []string) {
	for _, name := range factor.Mark(e.fields[factor.FieldMark]).Names() {
		_, id, _ := strings.Cut(name, "/")
		ids = append(ids, id)
	}
	return ids
}

// requireFactor issues a ticket to a caller who took the first step of a login to an entry with a
// factor, and returns the *FactorError that holds it. Everything that ends the sessions of the
// entry after it was read also ends the ticket.
func (t *Type) requireFactor(ctx context.Context, r store.Record, step, origin string) error {
	refused := newFactorError(r)
	ticket, err := newSecret(r.Key.Value())
	if err == nil {
		err = t.issueTicket(ctx, r, hashSecret(ticket), step, origin)
	}
	if err != nil {
		return fmt.Errorf("issuing a ticket for the second factor: %w", err)
	}
	refused.Ticket = ticket
	return refused
}

// issueTicket stores a ticket under id, the hash of its secret.
func (t *Type) issueTicket(ctx context.Context, r store.Record, id, step, origin string) error {
	digest, err := t.db.countedOrigin(ctx, origin)
	if err != nil {
		return err
	}
	_, err = t.view.Engine.IssueTicket(ctx, factor.Issue{
		PRK: r.Key, Seen: r.ForSessions(), ID: id, Step: step, Origin: digest, Now: t.view.StoreTime(),
	})
	return err
}

// requireFactorAfter does what requireFactor does, after a change was made. If no ticket can be
// issued, it returns ErrOutcomeUnknown, because the caller cannot tell from another error that the
// change was made. unconfirmed is the error that the change returned, or nil.
func (t *Type) requireFactorAfter(ctx context.Context, r store.Record, step, origin string, unconfirmed error) error {
	err := t.requireFactor(ctx, r, step, origin)
	refused, ok := errors.AsType[*FactorError](err)
	if !ok {
		return fmt.Errorf("%w: the change was made, but perhaps no ticket was issued: %w", ErrOutcomeUnknown, err)
	}
	return doneWithoutLogin(refused, unconfirmed)
}

// doneWithoutLogin returns refused with Done set, joined with unconfirmed if that is not nil.
func doneWithoutLogin(refused *FactorError, unconfirmed error) error {
	refused.Done = true
	if unconfirmed == nil {
		return refused
	}
	return errors.Join(refused, unconfirmed)
}

// newFactorError returns the error for an entry with a factor, without a ticket.
func newFactorError(r store.Record) *FactorError {
	return &FactorError{Methods: r.Factors().Methods()}
}
