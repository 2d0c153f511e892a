package inspect

import (
	"bufio"
	"bytes"
	"testing"

	"github.com/coffeenode/userdb/internal/store"
)

func TestHeading(t *testing.T) {
	for _, tt := range []struct {
		r    store.Raw
		want string
	}{
		{store.Raw{Type: "string", TTL: -1}, "string"},
		{store.Raw{Type: "set", Size: 3, TTL: 3_600_000}, "set, 3, expires in 1h0m0s"},
		{store.Raw{Type: "hash", TTL: 400}, "hash, expires in 0s"},
		{store.Raw{Type: "ReJSON-RL"}, "ReJSON-RL"},
		{store.Raw{Type: "list", Problem: "WRONGTYPE\n"}, `list, 0, not readable: "WRONGTYPE\n"`},
	} {
		if got := heading(tt.r); got != tt.want {
			t.Errorf("%+v: got %q, want %q", tt.r, got, tt.want)
		}
	}
}

// TestUnknownType checks that a dump shows only the type of a module's data.
func TestUnknownType(t *testing.T) {
	var b bytes.Buffer
	d := dumper{w: bufio.NewWriter(&b)}
	d.writeLong("key", store.Raw{Type: "ReJSON-RL", TTL: -1})
	d.w.Flush()
	if want := "key  ReJSON-RL\n    (contents of this type are not shown)\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
