package single

import (
	"slices"
	"testing"

	"github.com/coffeenode/userdb/recordkey"
)

// TestAppendKeys checks that the texts of keys are right, however long, and that they share memory.
func TestAppendKeys(t *testing.T) {
	long := make([]byte, 900)
	for i := range long {
		long[i] = '/'
	}
	var keys []recordkey.Key
	var want []string
	for _, value := range []string{"a", "b c", string(long), "ä", "z"} {
		k, err := recordkey.PRK("user", "uid", value)
		if err != nil {
			t.Fatal(err)
		}
		keys, want = append(keys, k), append(want, k.String())
	}
	if got := appendKeys([]string{"first"}, keys); !slices.Equal(got, append([]string{"first"}, want...)) {
		t.Errorf("got %.200q, want first, then %.200q", got, want)
	}
	into := make([]string, 0, 2)
	if n := testing.AllocsPerRun(100, func() { appendKeys(into, keys[:2]) }); n != 1 {
		t.Errorf("two keys need %v allocations, want one", n)
	}
}
