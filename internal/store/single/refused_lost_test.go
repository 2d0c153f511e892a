package single

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
)

// A refusalLoser loses the reply that says that a write was refused. The script is then sent again,
// and is not refused.
type refusalLoser struct{ refuser *refuser }

func (refusalLoser) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l refusalLoser) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err != nil && strings.Contains(err.Error(), "refused in the middle") {
			l.refuser.mu.Lock()
			l.refuser.command = ""
			l.refuser.mu.Unlock()
			err = io.EOF
			cmd.SetErr(err)
		}
		return err
	}
}

func (refusalLoser) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// lostRefusals lists, for each call, the commands that the server refuses, one at a time.
var lostRefusals = map[string][]string{
	"update":       {"HDEL", "UNLINK", "SREM", "EXPIRE"},
	"replace tags": {"HDEL", "UNLINK", "SREM", "EXPIRE"},
	"delete":       {"HDEL", "UNLINK", "SREM", "EXPIRE"},
}

// TestRefusalIsLost has the server refuse a command, and loses the reply that says so. When the
// script is sent again, the change may have been made already, with only its removals left to do.
// The change must still leave its history line.
func TestRefusalIsLost(t *testing.T) {
	srv := redistest.Start(t)
	for name, commands := range lostRefusals {
		refusals := 0
		for _, command := range commands {
			if loseRefusal(t, srv, name, &refuser{command: command}) {
				refusals++
			}
		}
		if refusals == 0 {
			t.Errorf("%s: no command was refused", name)
		}
	}
}

// loseRefusal makes a call while r refuses one of its commands and the reply that says so is lost.
// It reports whether r refused anything.
func loseRefusal(t *testing.T, srv *redistest.Server, name string, r *refuser) bool {
	t.Helper()
	client := srv.Client()
	defer client.Close()
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	p, command := newFixture(t, srv), r.command
	p.apply(p.draft("a", "x", []string{"red", "blue"}))
	p.apply(p.updated("a", map[string]string{"uid": "a", "name": "X", "email": "e"}))
	client.AddHook(refusalLoser{r})
	client.AddHook(r)
	err := refusedCalls[name](p, New(client, Options{}))
	if err != nil {
		p.report("%s, %s refused: %v", name, command, err)
	}
	p.checkNotes(fmt.Sprintf("%s, %s refused", name, command), name, err == nil)
	return r.refused
}
