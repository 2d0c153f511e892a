package onekey

import (
	"context"
	"fmt"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// TicketScript, AcceptScript and EnrolScript run on the record of an entry's factors.
var (
	TicketScript = redisx.NewScript(redisx.IsTexts, factor.TicketLua)
	AcceptScript = redisx.NewScript(redisx.IsTexts, factor.AcceptLua)
	EnrolScript  = redisx.NewScript(redisx.IsTexts, factor.EnrolLua)
)

// IssueTicket implements [store.Factors] with one script, which may be sent again.
func (ks *OneSlot) IssueTicket(ctx context.Context, i factor.Issue) (factor.Ticket, error) {
	texts, err := ks.runOnFactors(ctx, "issuing a ticket", TicketScript, i.PRK, i.Args())
	if err != nil {
		return factor.Ticket{}, err
	}
	if len(texts) < 2 {
		return factor.Ticket{}, fmt.Errorf("%w: not a ticket", store.ErrReply)
	}
	t, err := factor.ParseTicket(texts[0], texts[1])
	if err != nil {
		return factor.Ticket{}, fmt.Errorf("%w: %w", store.ErrReply, err)
	}
	return t, nil
}

// TryTicket implements [store.Factors] with one script, which may be sent again.
func (ks *OneSlot) TryTicket(ctx context.Context, t factor.Try) (factor.Tried, error) {
	texts, err := ks.runOnFactors(ctx, "counting an attempt", TicketScript, t.PRK, t.Args())
	if err != nil {
		return factor.Tried{}, err
	}
	tried, err := factor.ParseTried(texts)
	if err == nil && tried.Wait == 0 && len(tried.Factors) != len(t.Factors) {
		err = fmt.Errorf("%d factors, want %d", len(tried.Factors), len(t.Factors))
	}
	if err != nil {
		return factor.Tried{}, fmt.Errorf("%w: %w", store.ErrReply, err)
	}
	return tried, nil
}

// SpendTicket implements [store.Factors] with one script, which may be sent again.
func (ks *OneSlot) SpendTicket(ctx context.Context, s factor.Spend) error {
	texts, err := ks.runOnFactors(ctx, "spending a ticket", TicketScript, s.PRK, s.Args())
	if err == nil && len(texts) > 1 {
		return store.ErrConflict
	}
	return err
}

// AcceptPasskey implements [store.Factors] with one script, which may be sent again.
func (ks *OneSlot) AcceptPasskey(ctx context.Context, a factor.Accept) (wait time.Duration, err error) {
	texts, err := ks.runOnFactors(ctx, "accepting a passkey", AcceptScript, a.PRK, a.Args())
	if err != nil {
		return 0, err
	}
	wait, accepted, err := factor.ParseAccepted(texts)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: %w", store.ErrReply, err)
	case wait == 0 && !accepted:
		return 0, store.ErrConflict
	}
	return wait, nil
}

// BeginEnrolment implements [store.Factors] with one script, which may be sent again.
func (ks *OneSlot) BeginEnrolment(ctx context.Context, prk recordkey.Key, p factor.Pending, now time.Time) error {
	_, err := ks.runOnFactors(ctx, "storing a pending factor", EnrolScript, prk, p.BeginArgs(now))
	return err
}

// StoreFactors implements [store.Factors] with one script, which may be sent again.
func (ks *OneSlot) StoreFactors(
	ctx context.Context, prk recordkey.Key, pending string, factors []factor.Factor, now time.Time,
) error {
	_, err := ks.runOnFactors(ctx, "storing a factor", EnrolScript, prk, factor.ConfirmArgs(now, pending, factors))
	return err
}

// ForgetFactors implements [store.Factors] with one script, which may be sent again.
func (ks *OneSlot) ForgetFactors(ctx context.Context, prk recordkey.Key, names []string) error {
	_, err := ks.runOnFactors(ctx, "removing factors", EnrolScript, prk, factor.ForgetArgs(names))
	return err
}

// ReplaceFactor implements [store.Factors] with one script, which may be sent again.
func (ks *OneSlot) ReplaceFactor(ctx context.Context, prk recordkey.Key, old, replacement factor.Factor) error {
	_, err := ks.runOnFactors(ctx, "replacing a factor", EnrolScript, prk, factor.ReplaceArgs(old, replacement))
	if err == store.ErrNotFound {
		return store.ErrConflict
	}
	return err
}

// ReadFactors implements [store.Factors].
func (ks *OneSlot) ReadFactors(ctx context.Context, prk recordkey.Key, names []string, now time.Time) (time.Time, []string, error) {
	texts, err := ks.runOnFactors(ctx, "reading factors", EnrolScript, prk, factor.ReadArgs(now, names))
	if err != nil {
		return time.Time{}, nil, redisx.IgnoreUnknownOutcome(err)
	}
	now, values, err := factor.ParseRead(texts)
	if err == nil && len(values) != len(names) {
		err = fmt.Errorf("%d values, want %d", len(values), len(names))
	}
	if err != nil {
		return time.Time{}, nil, fmt.Errorf("%w: %w", store.ErrReply, err)
	}
	return now, values, nil
}

// runOnFactors runs a script on the record of an entry's factors. It returns ErrNotFound if the
// reply is empty.
func (ks *OneSlot) runOnFactors(
	ctx context.Context, step string, script redisx.Script, prk recordkey.Key, args []string,
) ([]string, error) {
	key, err := factor.Key(prk)
	if err != nil {
		return nil, err
	}
	reply, _, err := ks.client.Write(ctx, script, []string{key.String()}, args)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", step, err)
	}
	texts := redisx.Texts(reply)
	if len(texts) == 0 {
		return nil, store.ErrNotFound
	}
	return texts, nil
}
