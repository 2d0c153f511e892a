// Package inspect is for operators. It reports the status of a store, prints records, lists keys,
// and removes records.
package inspect

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/userdb"
)

// Options say what Dump writes and how. The zero Options write all records.
type Options struct {
	Pattern string // a Redis glob for keys, relative to the view's namespace; empty for all
	Format  string // FormatLong (the default), FormatShort or FormatKeys
	Reveal  bool   // show password hashes
	Color   bool   // add colors for terminals
}

// The formats of a dump.
const (
	FormatLong  = "long"  // each record with its contents
	FormatShort = "short" // one line per record: its key and the start of its contents
	FormatKeys  = "keys"  // keys only
)

const (
	dumpSorted   = 10_000 // maximum number of records that are sorted
	dumpBatch    = 50     // number of records read at a time
	dumpElements = 100    // number of elements shown of a record
)

// Dump writes records in readable form. It writes every record of the view's namespace, and of
// namespaces inside it, whose key matches Pattern, whatever its Redis type; it leaves out
// tombstones and the store's own records. Up to 10,000 records are sorted by key. Larger dumps are
// in the order of SCAN, in sorted parts, and a record may appear twice. Dump shows up to 100
// elements of a record and 200 bytes of a value, and says how much it left out. Password hashes are
// hidden unless Reveal is set. All output is printable: other text is quoted as in Go.
//
// Dump returns ErrFormat for an unknown format; other errors are those of the store and of w.
func Dump(ctx context.Context, db *userdb.DB, w io.Writer, o Options) error {
	switch o.Format {
	case "":
		o.Format = FormatLong
	case FormatLong, FormatShort, FormatKeys:
	default:
		return fmt.Errorf("%w: %s; want %s, %s or %s", ErrFormat, records.Quoted(o.Format), FormatLong, FormatShort, FormatKeys)
	}
	if o.Pattern == "" {
		o.Pattern = "*"
	}
	d := dumper{View: view.Of(db), Options: o, w: bufio.NewWriter(w)}
	return d.writeAll(ctx, Keys(ctx, db, o.Pattern))
}

// ErrFormat is returned if Dump does not know a format.
var ErrFormat = coded.New(userdb.CodeUsage, "no such format of a dump")

type dumper struct {
	*view.View
	Options
	w *bufio.Writer
}

// writeAll writes the records sorted if there are at most dumpSorted of them, and otherwise in
// parts that are each sorted.
func (d *dumper) writeAll(ctx context.Context, keys iter.Seq2[string, error]) error {
	var buffered []string
	limit := dumpSorted
	for key, err := range keys {
		if err != nil {
			return err
		}
		if buffered = append(buffered, key); len(buffered) <= limit {
			continue
		}
		if err := d.writeRecords(ctx, buffered); err != nil {
			return err
		}
		buffered, limit = nil, records.ScanBatch
	}
	return d.writeRecords(ctx, buffered)
}

// writeRecords writes records, sorted and without duplicates.
func (d *dumper) writeRecords(ctx context.Context, keys []string) error {
	slices.Sort(keys)
	keys = slices.Compact(keys)
	if d.Format == FormatKeys {
		for _, k := range keys {
			fmt.Fprintln(d.w, d.key(records.Printable(k)))
		}
		return d.w.Flush()
	}
	for batch := range slices.Chunk(keys, dumpBatch) {
		raw := records.Map(batch, func(k string) string { return d.NS.String() + k })
		found, err := store.Inspect(ctx, d.Engine, raw, dumpElements)
		if err != nil {
			return err
		}
		for i, r := range found {
			switch {
			case r.Type == store.KindNone: // removed meanwhile
			case d.Format == FormatShort:
				d.writeShort(batch[i], r)
			default:
				d.writeLong(batch[i], r)
			}
		}
		if err := d.w.Flush(); err != nil {
			return err
		}
	}
	return nil
}
