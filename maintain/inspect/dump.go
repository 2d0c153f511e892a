// Package inspect is for operators who look at records themselves: it shows them, lists their keys, and removes them.
package inspect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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

// Dump writes records for people to read: every record of the view's namespace and of those inside
// it whose key matches, of whatever Redis type, with its contents; not the store's own records. Up to
// 10,000 records are sorted by key; more come as SCAN finds them, in sorted parts, and one perhaps
// twice. Of one record 100 elements are shown, of a value 200 bytes, and how much is left. Facets
// named password are hidden unless Reveal says otherwise. All text is printable: what is not, is
// quoted as in Go. ErrFormat is another format; other errors are the store's and w's own.
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
	d := dumper{View: view.Of(db), w: bufio.NewWriter(w), paint: paint{o.Color}, reveal: o.Reveal, format: o.Format}
	if err := d.all(ctx, o.Pattern); err != nil {
		d.w.Flush() // what was read is good
		return err
	}
	return d.w.Flush()
}

type dumper struct {
	*view.View
	w      *bufio.Writer
	paint  paint
	reveal bool
	format string
}

// all holds back the first records, and sorts them if there are no more.
func (d *dumper) all(ctx context.Context, pattern string) error {
	var held []string
	holding := true
	for keys, err := range keys(ctx, d.View, pattern) {
		if err != nil {
			return err
		}
		if holding {
			if held = append(held, keys...); len(held) <= dumpSorted {
				continue
			}
			holding, keys, held = false, held, nil
		}
		if err := d.records(ctx, keys); err != nil {
			return err
		}
	}
	return d.records(ctx, held)
}

// records writes some records, sorted, each once.
func (d *dumper) records(ctx context.Context, keys []string) error {
	slices.Sort(keys)
	if d.format == FormatKeys {
		for _, k := range slices.Compact(keys) {
			fmt.Fprintln(d.w, d.paint.key(records.Printable(k)))
		}
		return nil
	}
	for some := range slices.Chunk(slices.Compact(keys), dumpBatch) {
		raw := make([]string, len(some))
		for i, k := range some {
			raw[i] = d.NS.String() + k
		}
		records, err := store.Inspect(ctx, d.Engine, raw, dumpElements)
		if err != nil {
			return err
		}
		for i, r := range records {
			if r.Type == store.KindNone {
				continue // gone meanwhile
			}
			if err := d.record(some[i], r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *dumper) record(key string, r store.Raw) error {
	if d.format == FormatShort {
		return d.short(key, r)
	}
	fmt.Fprintf(d.w, "%s  %s\n", d.paint.key(records.Printable(key)), d.paint.dim(heading(r)))
	shown := len(r.Items)
	switch r.Type {
	case "string":
		d.line(records.Shorten(r.Wire, r.Size))
		shown = int(r.Size)
	case "hash":
		shown = d.pairs(r.Pairs)
	case "set":
		slices.Sort(r.Items)
		shown = d.items(r.Items)
	case "list":
		shown = d.items(r.Items)
	case "zset":
		shown = d.scored(r)
	case "stream":
		shown = d.messages(r.Messages)
	default:
		d.line(d.paint.dim("(contents of this type are not shown)"))
	}
	if more := r.Size - int64(shown); more > 0 {
		d.line(d.paint.dim(fmt.Sprintf("… %d more", more)))
	}
	_, err := d.w.WriteString("") // the first error of a writer stays
	return err
}

func (d *dumper) line(text string) { fmt.Fprintf(d.w, "    %s\n", text) }

func (d *dumper) items(items []string) int {
	items = items[:min(len(items), dumpElements)]
	for _, item := range items {
		d.line(records.Shorten(item, int64(len(item))))
	}
	return len(items)
}

func (d *dumper) pairs(pairs []store.Facet) int {
	slices.SortFunc(pairs, ownFirst)
	pairs = pairs[:min(len(pairs), dumpElements)]
	width := 0
	for _, p := range pairs {
		width = max(width, min(len(p.Field), widest))
	}
	for _, p := range pairs {
		value := records.Shorten(p.Wire, int64(len(p.Wire)))
		if p.Field == store.FieldPassword && !d.reveal {
			value = d.paint.dim("(hidden)")
		}
		d.line(d.paint.field(fmt.Sprintf("%-*s", width, records.Shorten(p.Field, int64(len(p.Field))))) + "  " + value)
	}
	return len(pairs)
}

func (d *dumper) scored(r store.Raw) int {
	for i, member := range r.Items {
		d.line(d.paint.field(fmt.Sprint(r.Scores[i])) + "  " + records.Shorten(member, int64(len(member))))
	}
	return len(r.Items)
}

func (d *dumper) messages(messages []store.Message) int {
	for _, m := range messages {
		d.line(d.paint.field(records.Printable(m.ID)) + messagePairs(m.Pairs))
	}
	return len(messages)
}

// ErrFormat is a format of records that Dump does not know.
var ErrFormat = errors.New("no such format of a dump")
