package main

import (
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// orderFlags say in which order entries are listed, and from where to where. A range without a value is
// none; for the empty text there is nothing to bound.
type orderFlags struct {
	Order   string  `placeholder:"FIELD" help:"By the values of an ordered field: text by code points, numbers by size, dates by time."`
	Gt      *string `placeholder:"VALUE" help:"With --order: only greater values."`
	Gte     *string `placeholder:"VALUE" help:"With --order: only this value or greater ones."`
	Lt      *string `placeholder:"VALUE" help:"With --order: only lesser values."`
	Lte     *string `placeholder:"VALUE" help:"With --order: only this value or lesser ones."`
	Prefix  string  `placeholder:"TEXT" help:"With --order: only values that begin so."`
	Reverse bool    `help:"With --order: from the greatest value down."`
}

func (o orderFlags) order(q *userdb.Query, t schema.Type) error {
	if o.Order == "" {
		if o.Gt != nil || o.Gte != nil || o.Lt != nil || o.Lte != nil || o.Prefix != "" || o.Reverse {
			return usagef("--gt, --gte, --lt, --lte, --prefix and --reverse need --order FIELD")
		}
		return nil
	}
	q.Order, q.Reverse, q.Range.Prefix = o.Order, o.Reverse, o.Prefix
	for _, b := range []struct {
		text *string
		to   **schema.Value
	}{{o.Gt, &q.Range.GT}, {o.Gte, &q.Range.GTE}, {o.Lt, &q.Range.LT}, {o.Lte, &q.Range.LTE}} {
		if b.text == nil {
			continue
		}
		v, err := schema.ParseText(t.Codec(o.Order), *b.text)
		if err != nil {
			return refused(o.Order, err)
		}
		*b.to = &v
	}
	return nil
}
