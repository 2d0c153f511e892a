package inspect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
)

const (
	shortBytes = 60 // how much of a value a short dump shows
	shortItems = 5  // how many elements of a record
)

// short writes a record in one line.
func (d *dumper) short(key string, r store.Raw) error {
	var parts []string
	switch r.Type {
	case "string":
		parts = []string{brief(r.Text)}
	case "hash":
		slices.SortFunc(r.Pairs, ownLast)
		for _, p := range r.Pairs {
			parts = append(parts, d.shortPair(p))
		}
	case "set":
		slices.Sort(r.Items)
		fallthrough
	case "list":
		for _, item := range r.Items {
			parts = append(parts, brief(item))
		}
	case "zset":
		for i, item := range r.Items {
			parts = append(parts, brief(item)+"="+fmt.Sprint(r.Scores[i]))
		}
	}
	shown := int64(min(len(parts), shortItems))
	text := strings.Join(parts[:shown], "  ")
	if more := r.Size - shown; r.Type != "string" && more > 0 {
		text += d.paint.dim(fmt.Sprintf("  … %d more", more))
	}
	_, err := fmt.Fprintf(d.w, "%s  %s  %s\n", d.paint.key(records.Printable(key)), d.paint.dim(records.Printable(r.Type)), text)
	return err
}

func (d *dumper) shortPair(p store.Facet) string {
	value := brief(p.Wire)
	if p.Field == store.FieldPassword && !d.reveal {
		value = d.paint.dim("(hidden)")
	}
	return d.paint.field(brief(p.Field)) + "=" + value
}

// brief makes a value printable and short.
func brief(text string) string {
	if len(text) <= shortBytes {
		return records.Printable(text)
	}
	return records.Printable(strings.ToValidUTF8(text[:shortBytes], "")) + "…"
}

// ownLast orders fields by name, the facets before those of the store.
func ownLast(a, b store.Facet) int {
	if x, y := rank(a), rank(b); x != y {
		return x - y
	}
	return strings.Compare(a.Field, b.Field)
}
