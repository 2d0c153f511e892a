package onekey

import (
	"context"
	"fmt"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// TicketScript runs on the record that an entry keeps for the second step of a login.
var TicketScript = redisx.NewScript(redisx.IsTexts, factor.TicketLua)

// IssueTicket implements [store.Tickets] with one script, which may be sent again.
func (ks *Keys) IssueTicket(ctx context.Context, i factor.Issue) (factor.Ticket, error) {
	return ks.ticket(ctx, "issuing a ticket", i.PRK, i.Args())
}

// TryTicket implements [store.Tickets] with one script, which may be sent again.
func (ks *Keys) TryTicket(ctx context.Context, u factor.Use) (factor.Ticket, error) {
	return ks.ticket(ctx, "counting an attempt", u.PRK, u.TryArgs())
}

// SpendTicket implements [store.Tickets] with one script, which may be sent again.
func (ks *Keys) SpendTicket(ctx context.Context, u factor.Use) error {
	_, err := ks.runTickets(ctx, "spending a ticket", u.PRK, u.SpendArgs())
	return err
}

// ticket runs the script, and returns the ticket in its reply.
func (ks *Keys) ticket(ctx context.Context, step string, prk recordkey.Key, args []string) (factor.Ticket, error) {
	texts, err := ks.runTickets(ctx, step, prk, args)
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

// runTickets runs the script. It returns ErrNotFound if there is no such ticket.
func (ks *Keys) runTickets(ctx context.Context, step string, prk recordkey.Key, args []string) ([]string, error) {
	key, err := factor.Key(prk)
	if err != nil {
		return nil, err
	}
	reply, _, err := ks.client.Write(ctx, TicketScript, []string{key.String()}, args)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", step, err)
	}
	texts := redisx.Texts(reply)
	if len(texts) == 0 {
		return nil, store.ErrNotFound
	}
	return texts, nil
}
