package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
)

const (
	widest = 24 // to which width the names of fields are aligned
)

// heading says what a record is: its Redis type, how much it has, and when it expires.
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

// ownFirst orders fields by name, those of the store before the facets.
func ownFirst(a, b store.Facet) int {
	return cmp.Or(-cmp.Compare(rank(a), rank(b)), strings.Compare(a.Field, b.Field))
}

func rank(f store.Facet) int {
	if store.OwnField(f.Field) {
		return 1
	}
	return 0
}

func messagePairs(pairs []store.Facet) string {
	var b strings.Builder
	for _, p := range pairs {
		fmt.Fprintf(&b, "  %s=%s", records.Shorten(p.Field, int64(len(p.Field))), records.Shorten(p.Wire, int64(len(p.Wire))))
	}
	return b.String()
}

// paint colours what is printable already.
type paint struct{ on bool }

func (p paint) key(s string) string   { return p.with(1, s) }
func (p paint) field(s string) string { return p.with(36, s) }
func (p paint) dim(s string) string   { return p.with(2, s) }

func (p paint) with(code int, s string) string {
	if !p.on {
		return s
	}
	return "\x1b[" + strconv.Itoa(code) + "m" + s + "\x1b[0m"
}

const (
	shortBytes = 60 // how much of a value a short dump shows
	shortItems = 5  // how many elements of a record
)

// short writes a record in one line.
func (d *dumper) short(key string, r store.Raw) error {
	var parts []string
	switch r.Type {
	case "string":
		parts = []string{brief(r.Wire)}
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
