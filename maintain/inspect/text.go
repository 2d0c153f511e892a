package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/maintain/internal/records"
)

const (
	maxFieldWidth = 24 // maximum width to which field names are aligned
	shortBytes    = 60 // number of bytes shown of a value in a short dump
	shortItems    = 5  // number of elements shown of a record in a short dump
)

// writeLong writes a record with its contents, one element a line.
func (d *dumper) writeLong(key string, r store.Raw) {
	fmt.Fprintf(d.w, "%s  %s\n", d.key(records.Printable(key)), d.dim(heading(r)))
	shown := int64(0)
	line := func(text string) {
		fmt.Fprintf(d.w, "    %s\n", text)
		shown++
	}
	switch r.Type {
	case "string":
		line(records.Shorten(r.Wire, r.Size))
		shown = r.Size
	case "hash":
		d.sortFields(r.Pairs)
		pairs := r.Pairs[:min(len(r.Pairs), dumpElements)]
		width := 0
		for _, p := range pairs {
			width = max(width, min(len(p.Field), maxFieldWidth))
		}
		for _, p := range pairs {
			line(d.field(fmt.Sprintf("%-*s", width, shorten(p.Field))) + "  " + d.value(p, shorten))
		}
	case "set", "list":
		for _, item := range sortedItems(r)[:min(len(r.Items), dumpElements)] {
			line(shorten(item))
		}
	case "zset":
		for i, member := range r.Items {
			line(d.field(fmt.Sprint(r.Scores[i])) + "  " + shorten(member))
		}
	case "stream":
		for _, m := range r.Messages {
			text := d.field(records.Printable(m.ID))
			for _, p := range m.Pairs {
				text += "  " + shorten(p.Field) + "=" + shorten(p.Wire)
			}
			line(text)
		}
	default:
		line(d.dim("(contents of this type are not shown)"))
		shown = 0
	}
	if r.Size > shown {
		line(d.dim(fmt.Sprintf("… %d more", r.Size-shown)))
	}
}

// heading describes a record: its Redis type and, if there are any, the number of its elements, the
// time until it expires, and what is wrong with it. It does not count the fields of a hash.
func heading(r store.Raw) string {
	text := records.Printable(r.Type)
	switch r.Type {
	case "set", "list", "zset", "stream":
		text += fmt.Sprintf(", %d", r.Size)
	}
	if r.TTL > 0 {
		text += ", expires in " + (time.Duration(r.TTL) * time.Millisecond).Round(time.Second).String()
	}
	if r.Problem != "" {
		text += ", not readable: " + records.Printable(r.Problem)
	}
	return text
}

// writeShort writes a record in one line.
func (d *dumper) writeShort(key string, r store.Raw) {
	var parts []string
	switch r.Type {
	case "string":
		parts = []string{brief(r.Wire)}
	case "hash":
		d.sortFields(r.Pairs)
		for _, p := range r.Pairs {
			parts = append(parts, d.field(brief(p.Field))+"="+d.value(p, brief))
		}
	case "set", "list":
		for _, item := range sortedItems(r) {
			parts = append(parts, brief(item))
		}
	case "zset":
		for i, item := range r.Items {
			parts = append(parts, brief(item)+"="+fmt.Sprint(r.Scores[i]))
		}
	}
	shown := min(len(parts), shortItems)
	text := strings.Join(parts[:shown], "  ")
	if more := r.Size - int64(shown); r.Type != "string" && more > 0 {
		text += d.dim(fmt.Sprintf("  … %d more", more))
	}
	fmt.Fprintf(d.w, "%s  %s  %s\n", d.key(records.Printable(key)), d.dim(records.Printable(r.Type)), text)
}

// sortFields sorts the fields of a hash by name. The store's own fields come before the facets in a
// long dump, and after them in a short one.
func (d *dumper) sortFields(pairs []store.Facet) {
	slices.SortFunc(pairs, func(a, b store.Facet) int {
		own := store.OwnField(a.Field)
		switch {
		case own == store.OwnField(b.Field):
			return strings.Compare(a.Field, b.Field)
		case own == (d.Format == FormatShort):
			return 1
		}
		return -1
	})
}

// sortedItems returns the elements of a set, sorted, or those of a list in their order.
func sortedItems(r store.Raw) []string {
	if r.Type == "set" {
		slices.Sort(r.Items)
	}
	return r.Items
}

// value returns the text to show for a field, or (hidden) if the field is secret and Reveal is not
// set.
func (d *dumper) value(p store.Facet, show func(string) string) string {
	if (p.Field == store.FieldPassword || p.Field == factor.FieldHash) && !d.Reveal {
		return d.dim("(hidden)")
	}
	return show(p.Wire)
}

func shorten(text string) string { return records.Shorten(text, int64(len(text))) }

// brief returns a printable, short form of a value.
func brief(text string) string {
	if len(text) <= shortBytes {
		return records.Printable(text)
	}
	return records.Printable(strings.ToValidUTF8(text[:shortBytes], "")) + "…"
}

// key, field and dim add color to printable text.
func (d *dumper) key(s string) string   { return d.paint(1, s) }
func (d *dumper) field(s string) string { return d.paint(36, s) }
func (d *dumper) dim(s string) string   { return d.paint(2, s) }

func (d *dumper) paint(code int, s string) string {
	if !d.Color {
		return s
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", code, s)
}
