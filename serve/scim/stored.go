package scim

import (
	"context"
	"fmt"

	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/userdb"
)

// After a change of the schema has removed an index, nobody is found by it, and while an index is
// being built, only some are. So what was read by an index counts only if the schema under which it
// was read is still the stored one afterwards.

// maxSchemaReads limits how many times a request reads while the schema keeps changing.
const maxSchemaReads = 4

var errSchemaChanged = fmt.Errorf("%w: the schema is being changed", userdb.ErrUnavailable)

// underStoredSchema calls read, and calls it again if the stored schema changed meanwhile. The
// error is userdb.ErrSchemaMismatch if the stored schema lacks something that the collection needs.
func (c *call) underStoredSchema(read func() error) error {
	used := c.used
	for range maxSchemaReads {
		c.used = used
		v := view.Of(c.db)
		if err := read(); err != nil {
			return err
		}
		if same, err := c.isUnder(c.ctx, v); same || err != nil {
			return err
		}
	}
	return errSchemaChanged
}

// isUnder reports whether v has the stored schema of the users. If not, the collection uses the
// stored schema from then on.
func (r *collection) isUnder(ctx context.Context, v *view.View) (bool, error) {
	now, err := view.HooksOf(r.db).RefreshForRead(ctx, v, r.users.Name())
	if err != nil {
		return false, err
	}
	was, is := v.ByName[r.users.Name()], now.ByName[r.users.Name()]
	return was.Guard.Fingerprint == is.Guard.Fingerprint && was.ChangeUnderWay == is.ChangeUnderWay, nil
}
