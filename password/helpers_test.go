package password

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// cost is that of the hashes that these tests make: the least that bcrypt has.
const cost = 4

var (
	pepperA = []byte("pepper A, of 16+ bytes")
	pepperB = []byte("pepper B, of 16+ bytes")
)

// cheap is a Hasher that is New's but for its cost.
func cheap(t testing.TB, peppers ...[]byte) *Hasher {
	t.Helper()
	h, err := New(Options{Peppers: peppers})
	if err != nil {
		t.Fatal(err)
	}
	return h.at(cost)
}

func (h *Hasher) at(cost int) *Hasher {
	h.cost = cost
	return h
}

// work is what Work returns.
type work struct{ rounds, foreign uint64 }

func (h *Hasher) work() (w work) {
	w.rounds, w.foreign = h.Work()
	return w
}

// during is the work that do makes.
func (h *Hasher) during(do func()) work {
	before := h.work()
	do()
	after := h.work()
	return work{after.rounds - before.rounds, after.foreign - before.foreign}
}

func (h *Hasher) must(t testing.TB, password string) string {
	t.Helper()
	hash, err := h.Hash(password)
	if err != nil {
		t.Fatalf("Hash(%q): %v", password, err)
	}
	return hash
}

// wantError fails unless err reads want, "" being none.
func wantError(t testing.TB, what string, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("%s: error %q, want %q", what, got, want)
	}
}

// eachLine decodes a file of JSON lines.
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
