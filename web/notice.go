package web

import (
	"context"

	"github.com/coffeenode/userdb/userdb"
)

// maxNoticeAddresses limits the addresses that receive a notice of one change.
const maxNoticeAddresses = 8

// noticeSlots returns how many mails a notice to the addresses of one account has at most.
func (f *Flows) noticeSlots() int { return min(f.maxAddresses(), maxNoticeAddresses) }

// reserveNotice takes slots in the queue for a notice to the addresses of one account.
func (f *Flows) reserveNotice() (*reservation, error) { return f.Mail.reserve(f.noticeSlots()) }

// mailNotice mails m, which is about a change in how the owner of m.Entry signs in, to the
// addresses of the entry that receive notices, the first ones first, as many as slots has room for.
func (f *Flows) mailNotice(ctx context.Context, slots *reservation, m Mail) {
	for _, m.To = range f.noticeAddresses(m.Entry) {
		if slots.left > 0 {
			slots.fill(ctx, m)
		}
	}
}

// noticeAddresses returns the addresses of an account that receive notices: the first one and all
// others that are verified, so that the owner learns of a change even if somebody else reads one of
// the mailboxes. An unproven account has none, because nobody has verified its address.
func (f *Flows) noticeAddresses(e userdb.Entry) (all []string) {
	if e.Unproven() {
		return nil
	}
	for n, address := range e.Texts(f.Address) {
		if n == 0 || e.VerifiedText(f.Address, address) {
			all = append(all, address)
		}
	}
	return all
}
