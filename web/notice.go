package web

import (
	"context"

	"github.com/coffeenode/userdb/userdb"
)

// maxNotices limits the addresses that receive a notice of one change.
const maxNotices = 8

// maxNotices returns how many mails a notice to the addresses of one account has at most.
func (f *Flows) maxNotices() int { return min(f.maxAddresses(), maxNotices) }

// reserveNotice takes places in the queue for a notice to the addresses of one account.
func (f *Flows) reserveNotice() (*place, error) { return f.Mail.reserve(f.maxNotices()) }

// mailNotice mails m, which is about a change in how the owner of m.Entry signs in, to each address
// of the entry that receives notices.
func (f *Flows) mailNotice(ctx context.Context, places *place, m Mail) {
	for _, m.To = range f.noticeAddresses(m.Entry) {
		if places.left > 0 {
			places.fill(ctx, m)
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
