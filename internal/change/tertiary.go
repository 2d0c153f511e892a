package change

import (
	"math"
	"slices"
	"strconv"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A Content is a tertiary record: its values are as in store.Members.
type Content struct {
	Name, Kind string
	Values     []string
}

// fill adds tertiary records to a change.
func (t *Type) fill(c *store.Change, contents []Content) error {
	for _, content := range contents {
		m, err := t.content(c.Key, content)
		if err != nil {
			return err
		}
		if len(m.Values) > 0 {
			c.Add = append(c.Add, m)
		}
	}
	return nil
}

func (t *Type) content(prk recordkey.Key, content Content) (store.Members, error) {
	values, err := elements(content)
	if err != nil {
		return store.Members{}, err
	}
	for _, v := range values {
		if len(v) > schema.MaxFacet {
			return store.Members{}, Invalid(content.Name, "size", "an element of over 64 KiB")
		}
	}
	var indexed []string
	if content.Kind == "set" {
		values = slices.Compact(slices.Sorted(slices.Values(values)))
		indexed = values
	}
	key, index, err := t.Tertiary(prk, content.Name, content.Kind, indexed)
	return store.Members{Key: key, Kind: content.Kind, Values: values, Index: index}, err
}

// elements are a record's values as Redis takes them: what it would refuse in the middle of a change is found here.
func elements(c Content) ([]string, error) {
	paired := c.Kind == "zset" || c.Kind == "hash"
	switch {
	case paired && len(c.Values)%2 != 0, c.Kind == "string" && len(c.Values) > 1:
		return nil, Invalid(c.Name, "kind", "not the elements of a "+c.Kind)
	case c.Kind != "zset":
		return c.Values, nil
	}
	values := slices.Clone(c.Values)
	for i := 0; i < len(values); i += 2 {
		score, err := strconv.ParseFloat(values[i], 64)
		if err != nil || math.IsNaN(score) {
			return nil, Invalid(c.Name, "kind", "a score is no number")
		}
		values[i] = strconv.FormatFloat(score, 'g', -1, 64)
	}
	return values, nil
}

// Replace adds to a change of a live entry that tertiary records take the place of those it has; one
// without values only goes.
func (t *Type) Replace(c *store.Change, contents []Content) error {
	for _, content := range contents {
		m, err := t.content(c.Key, content)
		if err != nil {
			return err
		}
		c.Drop = append(c.Drop, store.Container{Key: m.Key, Indexed: t.Schema.Tertiary[content.Name].Indexed})
		if len(m.Values) > 0 {
			c.Add = append(c.Add, m)
		}
	}
	return nil
}
