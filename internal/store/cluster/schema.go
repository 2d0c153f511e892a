package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// A handle re-reads the schema's fingerprint when it is older than fresh, and refuses to write when it could not for as
// long as stale: a schema change waits longer than that before it relies on it. A process may stand still between its last
// look and a commit. So the commit carries until when the look holds, by the clock of the node that answered, and its own
// node refuses it after that. Nodes whose clocks agree within apart let no commit through that a schema change does not
// wait for.
const (
	fresh = 5 * time.Second
	stale = 10 * time.Second
	apart = store.Apart
)

// A checkedSchema is when the stored fingerprint was last found to be this one.
type checkedSchema struct {
	fingerprint string
	at          time.Time
	until       int64 // milliseconds of the server's clock
}

// guard compares the stored schema, and stores it where there is none. It returns until when a commit may rely on that.
func (e *Engine) guard(ctx context.Context, g store.Guard) (until int64, err error) {
	found, _ := e.checked.Load(g.Key)
	last, _ := found.(checkedSchema)
	known, begin := last.fingerprint == g.Fingerprint, e.now()
	age := begin.Sub(last.at)
	if known && age < fresh {
		return last.until, nil
	}
	read, err := e.compareSchema(ctx, g, known)
	switch {
	case errors.Is(err, store.ErrUnavailable) && known && age < stale:
		return last.until, nil
	case err != nil:
		return 0, err
	}
	until = read + stale.Milliseconds()
	e.checked.Store(g.Key, checkedSchema{g.Fingerprint, begin, until})
	return until, nil
}

// stillStored is guard for what must not store a schema where there is none: a schema that is not stored is ErrConflict.
func (e *Engine) stillStored(ctx context.Context, g store.Guard) (until int64, err error) {
	found, _ := e.checked.Load(g.Key)
	last, _ := found.(checkedSchema)
	begin := e.now()
	if last.fingerprint == g.Fingerprint && begin.Sub(last.at) < fresh {
		return last.until, nil
	}
	answer, _, err := e.run(ctx, schemaScript, []string{g.Key.String()}, g.Fingerprint, g.JSON, "0")
	if err != nil {
		return 0, redisx.Harmless(err)
	}
	reply := redisx.Items(answer)
	if redisx.Text(reply, 0) != "ok" {
		return 0, store.ErrConflict
	}
	at, err := redisx.Numbers(reply[1:])
	if err != nil || len(at) != 1 {
		return 0, redisx.Fail(redisx.Unknown("ok"))
	}
	until = at[0] + stale.Milliseconds()
	e.checked.Store(g.Key, checkedSchema{g.Fingerprint, begin, until})
	return until, nil
}

// compareSchema stores the schema where none is. If it was known to be there, all records have been
// removed by another process, and ours are the first again. It returns when it was so, in milliseconds of the
// clock of the node that has the schema.
func (e *Engine) compareSchema(ctx context.Context, g store.Guard, known bool) (int64, error) {
	may := "0"
	var foreign error // entries that no stored schema described a moment ago
	for range 3 {
		args := append([]string{g.Fingerprint, g.JSON, may}, g.Named()...)
		answer, _, err := e.run(ctx, schemaScript, []string{g.Key.String()}, args...)
		if err != nil {
			return 0, redisx.Harmless(err)
		}
		reply := redisx.Items(answer)
		switch redisx.Text(reply, 0) {
		case "ok":
			at, err := redisx.Numbers(reply[1:])
			if err == nil && len(at) == 1 {
				return at[0], nil
			}
			return 0, redisx.Fail(redisx.Unknown("ok"))
		case "schema":
			return 0, &store.MismatchError{Stored: redisx.Text(reply, 1)}
		case "unstored":
		default:
			return 0, redisx.Fail(redisx.Unknown(redisx.Text(reply, 0)))
		}
		if foreign != nil {
			return 0, foreign
		}
		if !g.Exact && !known {
			foreign = store.NoEntries(ctx, e, g.Entries)
		}
		if errors.Is(foreign, store.ErrSchemaMismatch) {
			continue // unless another has stored it meanwhile, and the entries are its first
		}
		if foreign != nil {
			return 0, foreign
		}
		if _, err := e.command(ctx, redisx.IsNumber, "sadd", g.Types.String(), g.Key.Parts()[1]); err != nil {
			return 0, err
		}
		may = "1"
	}
	return 0, store.ErrConflict
}
