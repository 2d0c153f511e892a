package web_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

func mailTo(i int) web.Mail {
	return web.Mail{Kind: web.MailWelcome, To: fmt.Sprintf("%d@example.com", i)}
}

// TestMailQueueSendsAll checks that Close waits until every mail is sent once, and that the queue
// does not send more at a time than it has workers.
func TestMailQueueSendsAll(t *testing.T) {
	var now, most atomic.Int32
	var sent sync.Map
	q := &web.MailQueue{Workers: 3, Send: func(_ context.Context, m web.Mail) error {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if _, twice := sent.LoadOrStore(m.To, true); twice {
			t.Errorf("%s got a second mail, want one", m.To)
		}
		return nil
	}}
	for i := range 1000 {
		if err := q.Mail(t.Context(), mailTo(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := 0
	sent.Range(func(any, any) bool { n++; return true })
	if n != 1000 || most.Load() > 3 {
		t.Errorf("sent %d mails, up to %d at a time; want 1,000 and at most 3", n, most.Load())
	}
	if err := q.Mail(t.Context(), mailTo(0)); !errors.Is(err, web.ErrMailQueueClosed) || !errors.Is(err, userdb.ErrUnavailable) {
		t.Errorf("after Close: got %v, want ErrMailQueueClosed", err)
	}
	if err := errors.Join(q.Close(t.Context()), new(web.MailQueue).Close(t.Context())); err != nil {
		t.Errorf("closing again, and without any mail: got %v, want no error", err)
	}
}

// TestMailQueueCloseTooLate checks that closing an empty queue returns no error, even if the
// context has already ended.
func TestMailQueueCloseTooLate(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // a select between two channels that are both ready picks either
		if err := new(web.MailQueue).Close(ended); err != nil {
			t.Fatalf("closing an empty queue: got %v, want no error", err)
		}
	}
}

// TestMailQueueHangs checks that a mailer that hangs blocks nobody: mails are refused when there is
// no room, and Close returns when its context ends, and ends the calls of Send.
func TestMailQueueHangs(t *testing.T) {
	var mu sync.Mutex
	failed := map[string]error{}
	q := &web.MailQueue{
		Size: 10, Workers: 2, Timeout: time.Hour,
		Send: func(ctx context.Context, _ web.Mail) error { <-ctx.Done(); return ctx.Err() },
		Failed: func(m web.Mail, err error) {
			mu.Lock()
			defer mu.Unlock()
			failed[m.To] = err
		},
	}
	begin := time.Now()
	for i := range 20 {
		if err := q.Mail(t.Context(), mailTo(i)); (i < 10) != (err == nil) || err != nil && !errors.Is(err, web.ErrMailQueueFull) {
			t.Errorf("mail %d: got %v, want ErrMailQueueFull after ten mails", i, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := q.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || err.Error() != "mails that were not sent: 10: context deadline exceeded" {
		t.Errorf("closing: got %v, want an error that 10 mails were not sent", err)
	}
	if err := q.Close(t.Context()); err != nil { // the calls of Send have ended by now
		t.Error(err)
	}
	if mu.Lock(); len(failed) != 10 || time.Since(begin) > time.Minute {
		t.Errorf("%d mails failed after %v, want 10 at once", len(failed), time.Since(begin))
	}
	mu.Unlock()
}

// TestMailQueueTimeout checks that a call of Send ends after Timeout, that a panic fails only one
// mail, and that Send gets the values of the caller's context but not its end.
func TestMailQueueTimeout(t *testing.T) {
	type key struct{}
	var failed, sent atomic.Int32
	q := &web.MailQueue{
		Workers: 1, Timeout: 20 * time.Millisecond,
		Send: func(ctx context.Context, m web.Mail) error {
			switch m.To {
			case "0@example.com":
				<-ctx.Done()
				return ctx.Err()
			case "1@example.com":
				panic("broken")
			}
			// On a busy machine, the time may be over by now.
			if m.To == "2@example.com" && ctx.Value(key{}) == "value" && !errors.Is(ctx.Err(), context.Canceled) {
				sent.Add(1)
			}
			return nil
		},
		Failed: func(web.Mail, error) { failed.Add(1) },
	}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	for i := range 3 {
		if err := q.Mail(ctx, mailTo(i)); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := q.Close(t.Context()); err != nil || failed.Load() != 2 || sent.Load() != 1 {
		t.Errorf("got %v, %d mails failed and %d were sent; want no error, 2 and 1", err, failed.Load(), sent.Load())
	}
}

// TestMailQueueClosesDuringFlow checks that Close waits for a flow that has not sent its mail yet.
// If the context of Close ends first, that mail fails, and nothing else happens.
func TestMailQueueClosesDuringFlow(t *testing.T) {
	for _, waits := range []bool{true, false} {
		t.Run(fmt.Sprintf("Close waits %v", waits), func(t *testing.T) {
			closed, failed := make(chan error, 1), make(chan error, 1)
			s := newFlows(t, "memory:", func(f *web.Flows) {
				f.SignUp = web.SignUpAtOnce
				if !waits {
					f.Mail.Send = func(ctx context.Context, _ web.Mail) error { <-ctx.Done(); return ctx.Err() }
				}
				f.Mail.Failed = func(_ web.Mail, err error) { failed <- err }
				f.New = func(*http.Request, userdb.Invitation, *userdb.NewEntry) error {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if waits {
						go func() { closed <- f.Mail.Close(t.Context()) }()
						for f.Mail.Mail(ctx, web.Mail{}) == nil {
							time.Sleep(time.Millisecond)
						}
						return nil
					}
					cancel()
					closed <- f.Mail.Close(ctx)
					return nil
				}
			})
			status, _, body := s.send(s.client(), "/signup", "email", "ada@example.com", "name", "ada", "password", goodPassword)
			if status != http.StatusSeeOther {
				t.Fatalf("signing up: got %d, want 303\n%s", status, body)
			}
			err := <-closed
			if waits && (err != nil || len(s.sent()) != 1) || !waits && !errors.Is(err, context.Canceled) {
				t.Errorf("closing: got %v and the mails %q, want one mail or, if Close does not wait, an error", err, s.sent())
			}
			if err := s.flows.Mail.Close(t.Context()); err != nil {
				t.Errorf("closing again: got %v, want no error", err)
			}
			if err := context.Canceled; !waits && !errors.Is(<-failed, err) {
				t.Errorf("a mail after Close: want it to fail with %v", err)
			}
		})
	}
}

// TestLimitedRequestsTakeNoRoom checks that visitors who send one form again and again do not fill
// the queue while the mail server hangs: a request that a limit or a mistake stops leaves its
// slots at once.
func TestLimitedRequestsTakeNoRoom(t *testing.T) {
	release := make(chan struct{})
	s := newFlows(t, "memory:", func(f *web.Flows) {
		f.Mail = &web.MailQueue{Size: 50, Timeout: time.Hour, Send: func(context.Context, web.Mail) error { <-release; return nil }}
	})
	defer close(release)
	s.create("ada")
	c := s.client()
	s.send(c, "/signin", "identifier", "ada", "password", goodPassword)
	const perOrigin = 30 // tokens and invitations in an hour
	for i := range perOrigin {
		s.send(s.client(), "/signup", "email", fmt.Sprintf("%d@example.com", i))
	}
	for _, form := range [][]string{
		{"/signup", "email", "new@example.com"},
		{"/signup", "email", "not an address"},
		{"/forgot", "identifier", "ada"},
		{"/account/password", "old", "wrong", "new", goodPassword + "1"},
		{"/account/email", "email", "not an address", "password", goodPassword},
		{"/account/addresses", "do", "first", "address", "other@example.com"},
		{"/account/security", "do", "remove", "id", "x"},
	} {
		for range 50 {
			if status, _, body := s.send(c, form[0], form[1:]...); status == http.StatusServiceUnavailable {
				t.Fatalf("%v: got 503, want another answer\n%s", form, body)
			}
		}
	}
	if n := s.flows.Mail.Len(); n > perOrigin {
		t.Errorf("%d slots are taken, want at most %d", n, perOrigin)
	}
}
