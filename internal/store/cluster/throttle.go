package cluster

import (
	"context"

	"github.com/coffeenode/userdb/internal/store"
)

// Admit implements [store.Engine]: a script for each counter, at the same time. Where one refuses,
// the other takes back what it counted, unless the account has a budget of its own for the origin. What
// cannot be taken back stays counted.
func (e *Engine) Admit(ctx context.Context, a store.Attempt) (store.Admission, error) {
	account, origin := a.Parts()
	if !origin.Origin.IsValid() {
		return e.Keys.Admit(ctx, a)
	}
	var as [2]store.Admission
	err := parallel(2, func(i int) (err error) {
		as[i], err = e.Keys.Admit(ctx, [2]store.Attempt{account, origin}[i])
		return err
	})
	if err != nil {
		return store.Admission{}, err
	}
	switch of, at := as[0], as[1]; {
	case of.Wait > 0 && at.Wait == 0:
		_ = e.Keys.Withdraw(ctx, origin, at)
		return of, nil
	case of.Wait == 0 && at.Wait > 0 && !of.Own:
		_ = e.Keys.Withdraw(ctx, account, of)
		return store.Admission{Wait: at.Wait}, nil
	case of.Wait > 0:
		return store.Admission{Wait: max(of.Wait, at.Wait)}, nil
	default:
		return store.Admission{Own: of.Own, At: at.At}, nil
	}
}

// Forgive implements [store.Engine].
func (e *Engine) Forgive(ctx context.Context, a store.Attempt, as store.Admission) error {
	return e.each(a, as, func(part store.Attempt) error { return e.Keys.Forgive(ctx, part, as) })
}

// Withdraw takes back an admission whose attempt did not happen.
func (e *Engine) Withdraw(ctx context.Context, a store.Attempt, as store.Admission) error {
	return e.each(a, as, func(part store.Attempt) error { return e.Keys.Withdraw(ctx, part, as) })
}

// each does something for both counters of an admitted attempt, at the same time.
func (e *Engine) each(a store.Attempt, as store.Admission, do func(store.Attempt) error) error {
	account, origin := a.Parts()
	if !as.At {
		return do(account)
	}
	return parallel(2, func(i int) error { return do([2]store.Attempt{account, origin}[i]) })
}
