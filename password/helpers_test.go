package password

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// cost is the cost of hashes in these tests: the minimum of bcrypt.
const cost = 4

var (
	pepperA = []byte("pepper A, of 16+ bytes")
	pepperB = []byte("pepper B, of 16+ bytes")
)

// cheap returns a Hasher with the given peppers and a low cost.
func cheap(t testing.TB, peppers ...[]byte) *Hasher {
	t.Helper()
	h, err := New(Options{Peppers: peppers})
	if err != nil {
		t.Fatal(err)
	}
	return h.withCost(cost)
}

// withCost sets the cost of h and returns h.
func (h *Hasher) withCost(cost int) *Hasher {
	h.cost = cost
	return h
}

// work holds the results of Hasher.Work.
type work struct{ rounds, foreign uint64 }

func (h *Hasher) work() (w work) {
	w.rounds, w.foreign = h.Work()
	return w
}

// workOf returns the work that do causes.
func (h *Hasher) workOf(do func()) work {
	before := h.work()
	do()
	after := h.work()
	return work{after.rounds - before.rounds, after.foreign - before.foreign}
}

func (h *Hasher) mustHash(t testing.TB, password string) string {
	t.Helper()
	hash, err := h.Hash(password)
	if err != nil {
		t.Fatalf("Hash(%q): %v", password, err)
	}
	return hash
}

// checkError fails the test unless the text of err is want. "" means no error.
func checkError(t testing.TB, what string, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("%s: error %q, want %q", what, got, want)
	}
}

// eachLine decodes each line of a JSON lines file and calls do with the result.
func eachLine[T any](t *testing.T, path string, do func(T)) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var v T
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		do(v)
	}
	if err := lines.Err(); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
