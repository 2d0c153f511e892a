package inspect

import (
	"cmp"
	"fmt"
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
