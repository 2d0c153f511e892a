package inspect

import (
	"context"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// A Claim is a record that assigns a value to an entry.
type Claim struct {
	Field  string `json:"field"`
	Record string `json:"record"` // the SRK of the value, relative to the view's namespace
	// Holds is the PRK that the SRK names, relative to the namespace. It may hold any bytes.
	Holds string `json:"holds"`
}

// Claims returns the current claims of a value, ordered by field name. It covers the fields in
// which a search in any field looks. It does not check the claims: the entry that a record names
// may not have the value, which a check reports. A value that no SRK can hold has no claims. For an
// unknown type, Claims returns the error of userdb.DB.Type.
func Claims(ctx context.Context, db *userdb.DB, typ, value string) ([]Claim, error) {
	v := view.Of(db)
	t, err := v.Type(typ)
	if err != nil {
		return nil, err
	}
	var all []Claim
	var at []store.RawRead
	for _, field := range t.Typed {
		key, err := recordkey.SRK(t.Name, field, t.Schema.Canonical(value))
		if err != nil {
			continue // too long, or empty
		}
		all = append(all, Claim{Field: field, Record: key.String()})
		at = append(at, store.RawRead{Key: key.In(v.NS).String(), As: store.RawText})
	}
	if len(at) == 0 {
		return nil, nil
	}
	found, err := v.Engine.ReadRaw(ctx, at)
	if err != nil {
		return nil, err
	}
	var claims []Claim
	for i, raw := range found {
		if raw.Exists {
			// On a cluster, the rev of a change follows the PRK.
			all[i].Holds, _, _ = strings.Cut(raw.Wire, " ")
			claims = append(claims, all[i])
		}
	}
	return claims, nil
}
