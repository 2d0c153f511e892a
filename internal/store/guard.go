package store

import (
	"context"

	"github.com/coffeenode/userdb/recordkey"
)

// NoEntries answers a MismatchError where entries match the pattern of a Guard: entries that no stored
// schema describes, since there is none.
func NoEntries(ctx context.Context, e Engine, pattern string) error {
	for cursor := ""; ; {
		keys, next, err := e.Scan(ctx, pattern, cursor, 1000)
		if err != nil {
			return err
		}
		for _, k := range keys {
			key, err := recordkey.Parse(k)
			if err == nil && key.Kind() != recordkey.KindPRK {
				continue
			}
			return &MismatchError{}
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}
