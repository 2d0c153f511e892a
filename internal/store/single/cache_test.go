package single

import (
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/store"
)

// harmless are the methods of an engine that change no entry's hash, so that no copy of one grows
// old by them. A new method is put here or, if it changes one, forgets it in cache.go.
var harmless = []string{
	"Admit", "Bulk", "Forgive", "Holds", "Linger", "Look", "Order", "Peek", "Ping", "Read", "Reset", "Scan", "Secret", "Sizes", "Tertiary",
}

// TestForgetful: every method of an engine either changes no entry, or is one of Cached's own.
func TestForgetful(t *testing.T) {
	engine, cached := reflect.TypeFor[store.Engine](), reflect.TypeFor[*Cached]()
	methods := map[string]bool{}
	for i := range engine.NumMethod() {
		name := engine.Method(i).Name
		methods[name] = true
		m, _ := cached.MethodByName(name)
		file, _ := runtime.FuncForPC(m.Func.Pointer()).FileLine(m.Func.Pointer())
		own := strings.HasSuffix(file, "cache.go")
		if own == slices.Contains(harmless, name) {
			t.Errorf("%s changes entries, by the list: %v, and forgets their copies, in cache.go: %v", name, !slices.Contains(harmless, name), own)
		}
	}
	for _, name := range harmless {
		if !methods[name] {
			t.Errorf("%s is no method of an engine, but one of %v", name, slices.Sorted(maps.Keys(methods)))
		}
	}
}
