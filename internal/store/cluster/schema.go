package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// An engine reads the stored schema's fingerprint again if its last reading is older than freshFor.
// An engine that cannot read it refuses to write once the last reading is older than staleAfter. A
// schema change waits longer than that before it assumes that every writer has seen the new schema.
// Because a process may be suspended between its last check and a commit, the commit carries the
// time at which the check expires, by the clock of the node that answered. The entry's node refuses
// the commit after that time. If the nodes' clocks differ by less than maxClockSkew, no commit
// under the old schema gets through later than the schema change expects.
const (
	freshFor     = 5 * time.Second
	staleAfter   = 10 * time.Second
	maxClockSkew = store.MaxClockSkew
)

// A schemaCheck records when the stored schema was last found to have this fingerprint.
type schemaCheck struct {
	fingerprint string
	at          time.Time
	until       int64 // when the check expires, by the server's clock in milliseconds
}

// checkSchema compares the stored schema with g, and stores g if there is none. It returns the time
// until which a commit may rely on the result, by the server's clock in milliseconds.
func (e *Engine) checkSchema(ctx context.Context, g store.Guard) (until int64, err error) {
	found, _ := e.schemaChecks.Load(g.Key)
	last, _ := found.(schemaCheck)
	known, begin := last.fingerprint == g.Fingerprint, e.now()
	age := begin.Sub(last.at)
	if known && age < freshFor {
		return last.until, nil
	}
	read, err := e.compareSchema(ctx, g, known)
	switch {
	case errors.Is(err, store.ErrUnavailable) && known && age < staleAfter:
		return last.until, nil
	case err != nil:
		return 0, err
	}
	until = read + staleAfter.Milliseconds()
	e.schemaChecks.Store(g.Key, schemaCheck{g.Fingerprint, begin, until})
	return until, nil
}

// requireSchema works like checkSchema, but stores nothing. It returns ErrConflict unless g is the
// stored schema.
func (e *Engine) requireSchema(ctx context.Context, g store.Guard) (until int64, err error) {
	found, _ := e.schemaChecks.Load(g.Key)
	last, _ := found.(schemaCheck)
	begin := e.now()
	if last.fingerprint == g.Fingerprint && begin.Sub(last.at) < freshFor {
		return last.until, nil
	}
	answer, _, err := e.run(ctx, schemaScript, []string{g.Key.String()}, g.Fingerprint, g.JSON, "0")
	if err != nil {
		return 0, redisx.IgnoreUnknownOutcome(err)
	}
	reply := redisx.Items(answer)
	if redisx.Text(reply, 0) != "ok" {
		return 0, store.ErrConflict
	}
	at, err := redisx.Numbers(reply[1:])
	if err != nil || len(at) != 1 {
		return 0, redisx.Fail(redisx.UnknownWord("ok"))
	}
	until = at[0] + staleAfter.Milliseconds()
	e.schemaChecks.Store(g.Key, schemaCheck{g.Fingerprint, begin, until})
	return until, nil
}

// compareSchema compares the stored schema with g, and stores g if there is none. Before it stores
// g, it checks that no entries exist, unless g.MayStore is set or g was known to be stored. In the
// latter case another process has removed all records. compareSchema returns the time of the
// comparison, in milliseconds, by the clock of the node that has the schema.
func (e *Engine) compareSchema(ctx context.Context, g store.Guard, known bool) (int64, error) {
	mayStore := "0"
	var foreign error // the error about entries that existed while no schema was stored
	for range 3 {
		args := append([]string{g.Fingerprint, g.JSON, mayStore}, g.TertiaryFields()...)
		answer, _, err := e.run(ctx, schemaScript, []string{g.Key.String()}, args...)
		if err != nil {
			return 0, redisx.IgnoreUnknownOutcome(err)
		}
		reply := redisx.Items(answer)
		switch redisx.Text(reply, 0) {
		case "ok":
			at, err := redisx.Numbers(reply[1:])
			if err == nil && len(at) == 1 {
				return at[0], nil
			}
			return 0, redisx.Fail(redisx.UnknownWord("ok"))
		case "schema":
			return 0, &store.MismatchError{Stored: redisx.Text(reply, 1)}
		case "unstored":
		default:
			return 0, redisx.Fail(redisx.UnknownWord(redisx.Text(reply, 0)))
		}
		if foreign != nil {
			return 0, foreign
		}
		if !g.MayStore && !known {
			foreign = store.CheckNoEntries(ctx, e, g.Entries)
		}
		if errors.Is(foreign, store.ErrSchemaMismatch) {
			continue // another process may have stored a schema and then made the entries
		}
		if foreign != nil {
			return 0, foreign
		}
		if _, err := e.do(ctx, redisx.IsNumber, "sadd", g.Types.String(), g.Key.Parts()[1]); err != nil {
			return 0, err
		}
		mayStore = "1"
	}
	return 0, store.ErrConflict
}
