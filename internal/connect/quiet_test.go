package connect

import (
	"bytes"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/coffeenode/userdb/internal/store"
)

// TestQuiet starts another process that runs into errors that go-redis logs, and checks that the
// process prints nothing.
func TestQuiet(t *testing.T) {
	var reply atomic.Pointer[string]
	refusal := "-ERR no\r\n"
	reply.Store(&refusal)
	child := exec.Command(os.Args[0], "-test.run=^TestQuietChild$")
	child.Env = append(os.Environ(), "QUIET_CHILD="+startLiar(t, &reply))
	var out, printed bytes.Buffer
	child.Stdout, child.Stderr = &out, &printed
	if err := child.Run(); err != nil {
		t.Fatalf("%v: %s", err, out.Bytes())
	}
	if printed.Len() > 0 {
		t.Errorf("the process printed %q, want nothing", printed.Bytes())
	}
}

func TestQuietChild(t *testing.T) {
	addr := os.Getenv("QUIET_CHILD")
	if addr == "" {
		t.Skip("only in a process of its own")
	}
	e, err := Open(t.Context(), "redis+sentinel://"+addr+"?master_name=m", store.Cache{})
	if err != nil {
		t.Fatal(err)
	}
	if e.Ping(t.Context()) == nil {
		t.Error("Ping of a server that refuses every command: no error")
	}
}
