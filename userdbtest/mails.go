package userdbtest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coffeenode/userdb/web"
)

// Mails receives the mails that an application sends in a test. Use its method Send as
// web.MailQueue.Send. It is safe for concurrent use.
type Mails struct {
	t       TB
	mu      sync.Mutex
	left    []web.Mail
	arrived chan struct{} // closed when a mail arrives
}

// NewMails returns a mailbox that gets the mails to all addresses.
func NewMails(t TB) *Mails { return &Mails{t: t, arrived: make(chan struct{})} }

// Send keeps a mail until To returns it.
func (m *Mails) Send(_ context.Context, mail web.Mail) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = append(m.left, mail)
	close(m.arrived)
	m.arrived = make(chan struct{})
	return nil
}

// mailTimeout is how long To waits for a mail.
const mailTimeout = 10 * time.Second

// To returns the earliest mail to an address that it has not returned before. It waits for the mail
// if there is none yet, and ends the test if none arrives.
func (m *Mails) To(address string) web.Mail {
	m.t.Helper()
	timeout := time.After(mailTimeout)
	for {
		m.mu.Lock()
		i := slices.IndexFunc(m.left, func(mail web.Mail) bool { return mail.To == address })
		if i >= 0 {
			mail := m.left[i]
			m.left = slices.Delete(m.left, i, i+1)
			m.mu.Unlock()
			return mail
		}
		arrived := m.arrived
		m.mu.Unlock()
		select {
		case <-arrived:
		case <-timeout:
			m.t.Fatalf("userdbtest: no mail to %s arrived; there are mails to: %s", address, strings.Join(m.addresses(), ", "))
			return web.Mail{}
		}
	}
}

// Left returns the mails that To has not returned. Close the MailQueue first, so that no mail is on
// its way.
func (m *Mails) Left() []web.Mail {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.left)
}

func (m *Mails) addresses() (all []string) {
	for _, mail := range m.Left() {
		all = append(all, mail.To)
	}
	return all
}
