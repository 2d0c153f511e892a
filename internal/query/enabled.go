package query

import (
	"context"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// An enabledSet holds PRKs of entries that are not disabled. A listing of disabled entries does not
// read these.
type enabledSet map[recordkey.Key]bool

func (e enabledSet) has(prk recordkey.Key) bool { return e[prk] }

// findEnabled returns the PRKs whose entries are not disabled, in one round trip. It leaves out
// records of another Redis type, so the listing reads and reports them. It cannot tell damaged
// entries without ~disabled from enabled ones: it includes them, so the listing does not report
// them.
func (rd *Reader) findEnabled(ctx context.Context, s Selection, prks []recordkey.Key) (enabledSet, error) {
	if len(prks) == 0 {
		return nil, nil
	}
	reads := make([]store.RawRead, len(prks))
	for i, prk := range prks {
		reads[i] = store.RawRead{Key: prk.String(), As: store.RawField, Field: store.FieldDisabled}
	}
	raws, err := rd.Engine.ReadRaw(ctx, reads)
	if err != nil {
		return nil, err
	}
	enabled := enabledSet{}
	for i, raw := range raws {
		if !raw.WrongType && raw.Wire == "" {
			enabled[prks[i]] = true
		}
	}
	if s.left != nil {
		*s.left -= len(prks) / checksPerRead
	}
	return enabled, nil
}

// cut returns the longest prefix of the slice all that has at most n elements for which skip is
// false.
func cut[T any](all []T, n int, skip func(T) bool) []T {
	for i, one := range all {
		switch {
		case skip(one):
		case n == 0:
			return all[:i]
		default:
			n--
		}
	}
	return all
}
