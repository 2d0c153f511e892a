package console

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/validate"
)

// A typeInfo describes a type for the schema page.
type typeInfo struct {
	Name, Primary, Fold string
	Fields              []fieldInfo
	Records             []fieldInfo // tertiary records
	Policy              schema.Password
	Proofs              []validate.Pair
	Undecided           bool // the proofs are not known yet
	Hints               []string
	Bytes               int // estimate for one account
}

type fieldInfo struct{ Name, Role, Codec, Rule, Note string }

func (c *Console) schema(w http.ResponseWriter, r *http.Request) {
	db, err := c.view(r.Context())
	if err != nil {
		c.fail(w, r, err)
		return
	}
	waitCtx, cancel := withFigureTimeout(r.Context())
	defer cancel()
	var all []typeInfo
	for _, name := range db.Schema().Names() {
		t := db.Schema().Types[name]
		one := describeType(name, t)
		pairs, at := gatherFigure(waitCtx, &c.figures, "proofs/"+name+"/"+t.Fingerprint(), time.Hour, func(context.Context) ([]validate.Pair, error) { return validate.Check(t) })
		one.Proofs, one.Undecided = pairs, at.IsZero()
		for _, p := range check.NotCompact(schema.Schema{Types: map[string]schema.Type{name: t}}) {
			one.Hints = append(one.Hints, p.Text)
		}
		all = append(all, one)
	}
	c.show(w, r, http.StatusOK, page{Name: "schema", Title: "Schema", Data: all})
}

// Estimates of the bytes that an account takes in Redis; see docs/memory.md and docs/schema.md.
const (
	facetBytes      = 44 // eight facets take 350 bytes
	identifierBytes = 150
	orderBytes      = 100
	memberBytes     = 60
)

func describeType(name string, t schema.Type) typeInfo {
	one := typeInfo{Name: name, Primary: t.Primary, Fold: string(t.Fold), Policy: t.Policy()}
	if one.Fold == "" {
		one.Fold = string(schema.FoldCasefold)
	}
	for _, field := range fieldNames(t) {
		f := t.Fields[field]
		codec := string(f.Codec)
		if codec == "" {
			codec = string(schema.CodecText)
		}
		rule := f.Kind
		if f.Pattern != "" {
			rule = strings.TrimSpace(rule + " " + f.Pattern)
		}
		var notes []string
		if f.Required {
			notes = append(notes, "required")
		}
		if most := f.MaxValues(); most > 1 {
			notes = append(notes, fmt.Sprintf("at most %d values", most))
		}
		one.Fields = append(one.Fields, fieldInfo{field, strings.Join(f.Role.Names(), ", "), codec, rule, strings.Join(notes, ", ")})
	}
	for _, record := range t.TertiaryNames() {
		note := ""
		if most := t.Tertiary[record].Limit(); most > 0 {
			note = "at most " + formatNumber(most) + " members"
		}
		if t.Tertiary[record].Indexed {
			note = "indexed, " + note
		}
		one.Records = append(one.Records, fieldInfo{Name: record, Codec: t.Tertiary[record].Kind, Note: note})
	}
	one.Bytes = facetBytes*(len(t.Fields)+1) + identifierBytes*len(t.Secondary()) + orderBytes*len(t.Ordered()) + memberBytes*(len(t.Indexed())+len(t.IndexedTertiary()))
	return one
}

// MiB returns the estimate for a million accounts.
func (d typeInfo) MiB() int { return d.Bytes * 1_000_000 >> 20 }
