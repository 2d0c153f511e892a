package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coffeenode/userdb/userdb"
)

// A MailKind says what a mail is about.
type MailKind string

// The kinds of mails that Flows sends.
const (
	MailWelcome    MailKind = "welcome"    // the link creates an account for To
	MailInvited    MailKind = "invited"    // the same, for a visitor whom another one invited
	MailRegistered MailKind = "registered" // To has an account; the link leads to the sign-in
	MailReset      MailKind = "reset"      // the link sets a new password
	MailPassword   MailKind = "password"   // tells To that Entry has a new password
	MailProve      MailKind = "prove"      // the link verifies To, which Entry was created with
	MailChange     MailKind = "change"     // the link makes To the address of Entry
	MailAdd        MailKind = "add"        // the link adds To to the addresses of Entry
	MailChanging   MailKind = "changing"   // tells To that Address may become the address of Entry
	MailAdding     MailKind = "adding"     // tells To that Entry may also get Address
	MailFirst      MailKind = "first"      // tells To that Address is now the first one of Entry
	MailRemoved    MailKind = "removed"    // tells To that Entry no longer has Address
	MailLinked     MailKind = "linked"     // tells To that Entry can sign in with a provider
	MailUnlinked   MailKind = "unlinked"   // tells To that Entry can no longer do so

	MailFactorAdded   MailKind = "factor-added"   // tells To that Entry has another second factor
	MailFactorRemoved MailKind = "factor-removed" // tells To that Entry has one fewer
	MailNewCodes      MailKind = "new-codes"      // tells To that Entry has new recovery codes

	MailPasskeyAdded   MailKind = "passkey-added"   // tells To that Entry has another passkey
	MailPasskeyRemoved MailKind = "passkey-removed" // tells To that Entry has one fewer
)

// A Mail is a mail to send to one address.
type Mail struct {
	Kind MailKind
	To   string
	Link string
	// Address is the address that MailChanging, MailAdding, MailFirst and MailRemoved are about, or
	// the label of the provider that MailLinked and MailUnlinked are about.
	Address string
	// Entry belongs to the visitor who caused the mail. It is the zero Entry unless that visitor is
	// signed in, or has just created the account or set its password.
	Entry userdb.Entry
	// Language is that of the page from which the mail was sent.
	Language string
}

// Subject returns the subject in the language of the mail.
func (m Mail) Subject() string {
	return catalogueOf(m.Language).lookup("mail " + string(m.Kind) + " subject")
}

// Text returns the text in the language of the mail, to be followed by the link.
func (m Mail) Text() string {
	return strings.NewReplacer("{address}", m.Address, "{account}", mailName(m.Entry)).Replace(catalogueOf(m.Language).lookup("mail " + string(m.Kind)))
}

// maxMailName limits the names of accounts in mails, in characters.
const maxMailName = 40

// mailName returns the name of an account for a mail: its facet name or, if that is empty or may be
// more than a name, its UID without the characters that no name has. Some mails go to strangers,
// and a name must not become a message or a link to them.
func mailName(e userdb.Entry) string {
	if name := e.Text("name"); name != "" && utf8.RuneCountInString(name) <= maxMailName && cleanName(name) == name {
		return name
	}
	uid := []rune(cleanName(e.UID()))
	return string(uid[:min(len(uid), maxMailName)])
}

// cleanName returns a text without the characters that names of people do not have. A dot stays at
// the end of a word.
func cleanName(text string) string {
	all := []rune(text)
	var kept []rune
	for i, r := range all {
		isDot := r == '.' && (i+1 == len(all) || all[i+1] == ' ')
		if isDot || unicode.In(r, unicode.L, unicode.M, unicode.Nd) || strings.ContainsRune(" '’-_", r) {
			kept = append(kept, r)
		}
	}
	return string(kept)
}

// A MailQueue sends mails in the background, so that no visitor waits for a mail server or can
// measure whether a mail is sent. It needs only Send. It is safe for concurrent use; do not change
// its fields after the first mail. The queue is in memory: mails that wait are lost if the process
// is killed, and the visitor asks again.
type MailQueue struct {
	// Send sends one mail. It must return when its context ends. The context has the values of the
	// one that was passed to Mail. The queue calls Send once for each mail; if a mail may be sent
	// again after an error, Send must do that.
	Send func(ctx context.Context, m Mail) error
	// Size limits the mails that wait or are being sent. If 0, it is 1,000. An empty queue takes
	// all mails of one flow, up to nine, whatever its Size.
	Size int
	// Workers limits the calls of Send at a time. If 0, it is 4.
	Workers int
	// Timeout limits a call of Send. If 0, it is 30 seconds.
	Timeout time.Duration
	// Failed is called for each mail in the queue that was not sent. If nil, the kind of the mail
	// and the error go to slog's default logger, without the address and the link.
	Failed func(m Mail, err error)

	mu      sync.Mutex
	waiting []queuedMail
	slots   int // mails that wait or are being sent, and slots that are reserved
	workers int
	closed  bool
	idle    chan struct{} // closed when the queue is closed and no slot is taken
	stop    context.CancelFunc
	stopped context.Context // ends when Close stops waiting
}

// A queuedMail is a mail in the queue. If it has no kind, it only takes up a slot, and is not
// sent.
type queuedMail struct {
	ctx  context.Context
	mail Mail
}

var (
	// ErrMailQueueFull means that a MailQueue has no room. It wraps userdb.ErrUnavailable.
	ErrMailQueueFull = fmt.Errorf("the queue of mails is full: %w", userdb.ErrUnavailable)
	// ErrMailQueueClosed means that a MailQueue was closed. It wraps userdb.ErrUnavailable.
	ErrMailQueueClosed = fmt.Errorf("the queue of mails is closed: %w", userdb.ErrUnavailable)
)

// Mail adds a mail to the queue. It never waits. The error is ErrMailQueueFull or
// ErrMailQueueClosed.
func (q *MailQueue) Mail(ctx context.Context, m Mail) error {
	p, err := q.reserve(1)
	if err == nil {
		p.fill(ctx, m)
	}
	return err
}

// Len returns the number of mails that wait or are being sent, including slots that a flow has
// reserved.
func (q *MailQueue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.slots
}

// Close refuses further mails and waits until all others are sent, and until no flow may still add
// one to a slot that it has reserved. If ctx ends first, Close ends the contexts of all calls of
// Send, and returns an error that says how many mails were not sent. It calls Failed for those that
// no worker had begun.
func (q *MailQueue) Close(ctx context.Context) error {
	q.mu.Lock()
	q.init()
	q.closed = true
	q.closeIfIdle()
	q.mu.Unlock()
	select {
	case <-q.idle:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	if q.slots == 0 { // all mails are sent, although ctx has also ended
		q.mu.Unlock()
		return nil
	}
	q.stop()
	lost := q.waiting
	q.waiting = nil
	q.slots -= len(lost)
	unsent := q.workers
	q.closeIfIdle()
	q.mu.Unlock()
	for _, m := range lost {
		if m.mail.Kind != "" {
			unsent++
			q.reportUnsent(m.mail, ctx.Err())
		}
	}
	return fmt.Errorf("mails that were not sent: %d: %w", unsent, ctx.Err())
}

// closeIfIdle lets Close return if the queue is closed and no slot is taken. Only then can no mail
// follow. The caller must hold q.mu.
func (q *MailQueue) closeIfIdle() {
	if !q.closed || q.slots > 0 {
		return
	}
	select {
	case <-q.idle:
	default:
		close(q.idle)
	}
}

func (q *MailQueue) init() {
	if q.idle == nil {
		q.idle = make(chan struct{})
		q.stopped, q.stop = context.WithCancel(context.Background())
	}
}

// A reservation is a number of slots for mails in a queue.
type reservation struct {
	q    *MailQueue
	left int
}

// reserve takes slots for n mails, before a flow finds out whether anybody gets one. So a full
// queue refuses visitors who name an account and those who name none alike.
func (q *MailQueue) reserve(n int) (*reservation, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.init()
	switch {
	case q.closed:
		return nil, ErrMailQueueClosed
	case q.slots > 0 && q.slots+n > cmp.Or(q.Size, 1000):
		return nil, ErrMailQueueFull
	}
	q.slots += n
	return &reservation{q, n}, nil
}

// fill puts a mail into one of the slots.
func (p *reservation) fill(ctx context.Context, m Mail) {
	q := p.q
	q.mu.Lock()
	defer q.mu.Unlock()
	p.left--
	m.Language = cmp.Or(m.Language, Language(ctx))
	q.waiting = append(q.waiting, queuedMail{context.WithoutCancel(ctx), m})
	if q.workers < cmp.Or(q.Workers, 4) {
		q.workers++
		go q.work()
	}
}

// leave gives back the slots that were not filled. A slot goes through the queue like a mail, so
// that the queue has the same room left whether or not there was a mail.
func (p *reservation) leave(ctx context.Context) {
	for p.left > 0 {
		p.fill(ctx, Mail{})
	}
}

// giveBack gives back at once the slots that were not filled. Flows call it if that shows nothing
// about the account of another person. So visitors whom a limit or a wrong password stops do not
// fill the queue while the mail server hangs.
func (p *reservation) giveBack() {
	p.q.mu.Lock()
	defer p.q.mu.Unlock()
	p.q.slots -= p.left
	p.left = 0
	p.q.closeIfIdle()
}

// work sends mails until none waits.
func (q *MailQueue) work() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) > 0 {
		m := q.waiting[0]
		q.waiting[0] = queuedMail{}
		q.waiting = q.waiting[1:]
		q.mu.Unlock()
		if m.mail.Kind != "" {
			if err := q.send(m); err != nil {
				q.reportUnsent(m.mail, err)
			}
		}
		q.mu.Lock()
		q.slots--
	}
	q.workers--
	q.closeIfIdle()
}

// send calls Send. A panic in it becomes an error, because no visitor's request would catch it.
func (q *MailQueue) send(m queuedMail) (err error) {
	ctx, cancel := context.WithTimeout(m.ctx, cmp.Or(q.Timeout, 30*time.Second))
	defer cancel()
	defer context.AfterFunc(q.stopped, cancel)()
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("sending a mail panicked")
		}
	}()
	return q.Send(ctx, m.mail)
}

func (q *MailQueue) reportUnsent(m Mail, err error) {
	if q.Failed != nil {
		q.Failed(m, err)
		return
	}
	slog.Error("userdb: a mail was not sent", slog.String("kind", string(m.Kind)), slog.Any("error", err))
}
