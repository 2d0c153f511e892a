// Package inspect is for operators: it tells about a store, shows the records themselves, lists their keys, and removes them.
package inspect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/userdb"
)

// Options say what Dump shows, and how. The zero Options show all records.
type Options struct {
	Pattern string // a Redis glob for keys, relative to the view's namespace; "": all
	Format  string // FormatLong (also ""), FormatShort or FormatKeys
	Reveal  bool   // also hashes of passwords
	Color   bool   // for terminals
}

// The formats of a dump.
const (
	FormatLong  = "long"  // every record with its contents
	FormatShort = "short" // one line a record: its key, and the beginning of its contents
	FormatKeys  = "keys"  // keys only
)

const (
	dumpSorted   = 10_000 // up to so many records are sorted
	dumpBatch    = 50     // how many are read at a time
	dumpElements = 100    // how much of one record is shown
)

// Dump writes records for people to read: every record of the view's namespace and of those inside it whose key
// matches, of whatever Redis type, with its contents; not the store's own records. Up to 10,000 records are sorted by
// key; more come as SCAN finds them, in sorted parts, and one perhaps twice. Of one record 100 elements are shown, of a
// value 200 bytes, and how much is left. Facets named password are hidden unless Reveal says otherwise. All text is
// printable: what is not, is quoted as in Go. ErrFormat is another format; other errors are the store's and w's own.
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

// ErrFormat is a format of records that Dump does not know.
var ErrFormat = errors.New("no such format of a dump")

type dumper struct {
	*view.View
	Options
	w *bufio.Writer
}

// all holds back the first records, and sorts them if there are no more.
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

// records writes some records, sorted, each once.
func (d *dumper) writeRecords(ctx context.Context, keys []string) error {
	slices.Sort(keys)
	keys = slices.Compact(keys)
	if d.Format == FormatKeys {
		for _, k := range keys {
			fmt.Fprintln(d.w, d.key(records.Printable(k)))
		}
		return d.w.Flush()
	}
	for some := range slices.Chunk(keys, dumpBatch) {
		raw := records.Map(some, func(k string) string { return d.NS.String() + k })
		found, err := store.Inspect(ctx, d.Engine, raw, dumpElements)
		if err != nil {
			return err
		}
		for i, r := range found {
			switch {
			case r.Type == store.KindNone: // gone meanwhile
			case d.Format == FormatShort:
				d.writeShort(some[i], r)
			default:
				d.writeLong(some[i], r)
			}
		}
		if err := d.w.Flush(); err != nil {
			return err
		}
	}
	return nil
}
