package core

import (
	"cmp"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/schema"
)

// SetPassword adds to the facets and the own fields that a record shall have what another hash brings with it:
// a time behind the last one, and the end of its single-use tokens. Whoever gives an entry another hash goes through
// here; Secrets.PasswordSet follows when it is written. A hash that was only renewed is none other.
func (c *Core) SetPassword(now store.Record, hash string, facets, own map[string]string) {
	facets[store.FieldPassword] = hash
	own[store.FieldChanged] = c.later(now)
	own[store.FieldTokens] = ""
}

// Disable adds to the own fields that a record shall have what keeps its entry from logging in, and ends its tokens.
// Secrets.Disabled follows.
func (c *Core) Disable(now store.Record, own map[string]string) {
	own[store.FieldDisabled] = cmp.Or(now.Fields[store.FieldDisabled], schema.Date(c.Now()).Wire())
	own[store.FieldTokens] = ""
}

// later is now, but always after the last change.
func (c *Core) later(r store.Record) string {
	at := c.Now()
	if last := ChangedAt(r); !at.Truncate(time.Millisecond).After(last) {
		at = last.Add(time.Millisecond)
	}
	return schema.Date(at).Wire()
}

// ChangedAt is when the password of a record was last set; the zero time where that is not known.
func ChangedAt(r store.Record) time.Time {
	v, err := schema.Decode(schema.CodecDate, r.Fields[store.FieldChanged])
	if err != nil {
		return time.Time{}
	}
	at, _ := v.Time()
	return at
}
