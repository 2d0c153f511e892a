package view

import "context"

// UntilKept calls do until a call fails, or until no server restarted and no replica took over
// during a call. If one did, changes that the call made may be lost, and UntilKept calls do again.
// Each call must recognize what an earlier one did. On servers that do not report their replication
// IDs, UntilKept calls do once.
func (v *View) UntilKept(ctx context.Context, do func() error) error {
	before, err := v.replIDs(ctx)
	for err == nil {
		if err = do(); err != nil {
			break
		}
		var after string
		if after, err = v.replIDs(ctx); after == before || after == "" {
			break
		}
		before = after
	}
	return err
}

func (v *View) replIDs(ctx context.Context) (string, error) {
	s, err := v.Engine.Survey(ctx, false)
	return s.ReplIDs(), err
}
