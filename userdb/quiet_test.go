package userdb_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

// TestNoLoggerIsSilent checks that a process that loses its server prints nothing. It also checks
// that the process does print with go-redis' own logger, so that the silence means something.
func TestNoLoggerIsSilent(t *testing.T) {
	t.Parallel()
	redistest.Shared(t) // skips without Redis
	for _, loud := range []string{"", "loud"} {
		child := exec.Command(os.Args[0], "-test.run=^TestSilentChild$", "-test.timeout=1m")
		child.Env = append(os.Environ(), "SILENT_CHILD=1", "SILENT_LOUD="+loud)
		var out, printed bytes.Buffer
		child.Stdout, child.Stderr = &out, &printed
		if err := child.Run(); err != nil {
			t.Fatalf("%v: %s%s", err, out.Bytes(), printed.Bytes())
		}
		if got := out.String(); got != "PASS\n" {
			t.Errorf("the child process printed %q, want only PASS", got)
		}
		if logged := printed.Len() > 0; logged != (loud != "") {
			t.Errorf("with go-redis' own logger: %v; got %q on stderr, want output only with that logger", loud != "", printed.Bytes())
		}
	}
}

// TestSilentChild runs in the process that TestNoLoggerIsSilent starts.
func TestSilentChild(t *testing.T) {
	if os.Getenv("SILENT_CHILD") == "" {
		t.Skip("runs only in a child process")
	}
	if os.Getenv("SILENT_LOUD") != "" {
		logging.Enable()
	}
	s := redistest.Start(t)
	byURL, err := userdb.Open(t.Context(), s.URL(), userdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	byClient, err := redisdb.New(t.Context(), s.Client(), userdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.Kill()
	for _, db := range []*userdb.DB{byURL, byClient} {
		users, err := db.Type("user")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err = users.Find(ctx, hints.UID("x"))
		_, loginErr := users.Login(ctx, "x", "correct horse", userdb.Attempt{})
		cancel()
		if !errors.Is(err, userdb.ErrUnavailable) || !errors.Is(loginErr, userdb.ErrUnavailable) {
			t.Errorf("Find: %v; Login: %v; want ErrUnavailable from both", err, loginErr)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
