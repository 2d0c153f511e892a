package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/coffeenode/userdb/internal/store"
)

// A handle re-reads the schema's fingerprint when it is older than fresh, and refuses to write when
// it could not for as long as stale: a schema change waits longer than that before it relies on it.
const (
	fresh = 5 * time.Second
	stale = 10 * time.Second
)

// A checkedSchema is when the stored fingerprint was last the one of this handle.
type checkedSchema struct{ at time.Time }

// guard compares the stored schema, and stores it where there is none.
func (e *Engine) guard(ctx context.Context, g store.Guard) error {
	name := g.Key.String() + " " + g.Fingerprint
	e.mu.Lock()
	last, known := e.checked[name]
	e.mu.Unlock()
	age := e.now().Sub(last.at)
	if known && age < fresh {
		return nil
	}
	begin := e.now()
	err := e.compareSchema(ctx, g, known)
	if errors.Is(err, store.ErrUnavailable) && known && age < stale {
		return nil
	}
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.checked[name] = checkedSchema{begin}
	e.mu.Unlock()
	return nil
}

// compareSchema stores the schema where none is. If it was known to be there, all records have been
// removed behind our back, and ours are the first again.
func (e *Engine) compareSchema(ctx context.Context, g store.Guard, known bool) error {
	may := "0"
	var foreign error // entries that no stored schema described a moment ago
	for range 3 {
		r, err := e.run(ctx, on(schemaScript, g.Key.String(), g.Fingerprint, g.JSON, may))
		if err != nil {
			return harmless(err)
		}
		reply, _ := r.value.([]any)
		switch item(reply, 0) {
		case "ok":
			return nil
		case "schema":
			return &store.MismatchError{Stored: item(reply, 1)}
		case "unstored":
		default:
			return store.Fail(store.Unknown(item(reply, 0)))
		}
		if foreign != nil {
			return foreign
		}
		if !g.Exact && !known {
			foreign = store.NoEntries(ctx, e, g.Entries)
		}
		if errors.Is(foreign, store.ErrSchemaMismatch) {
			continue // unless another has stored it meanwhile, and the entries are its first
		}
		if foreign != nil {
			return foreign
		}
		if err := e.write(ctx, "sadd", g.Types.String(), g.Key.Parts()[1]); err != nil {
			return err
		}
		may = "1"
	}
	return store.ErrConflict
}
