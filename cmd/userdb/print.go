package main

import (
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// flat is an entry as one JSON object; hash is "" unless it was asked for.
func flat(e userdb.Entry, hash string) schema.Facets {
	all := schema.Facets{"~isa": schema.Text(e.Type()), "~prk": schema.Text(e.Key().String())}
	for name := range e.Fields() {
		all[name], _ = e.Get(name)
	}
	if e.Disabled() {
		all[disabledField] = schema.Bool(true)
	}
	if e.Rev() != "" {
		all["~rev"] = schema.Text(e.Rev())
	}
	if hash != "" {
		all[passwordField] = schema.Text(hash)
	}
	return all
}

// entry prints an entry: for people its PRK, and below it the facets, sorted.
func (s *session) entry(e userdb.Entry, hash string) error {
	all := flat(e, hash)
	if s.JSON {
		return s.out.say(all, "")
	}
	return s.out.say(nil, block(e.Key().String(), all))
}

// disabledField says of an entry in JSON that it may not log in.
const disabledField = "~disabled"

// headline is a PRK, and the word for an entry that may not log in. No facet can look like that.
func headline(prk string, all schema.Facets) string {
	if _, disabled := all[disabledField]; disabled {
		return shown(prk) + "  disabled"
	}
	return shown(prk)
}

func block(prk string, all schema.Facets) string {
	var b strings.Builder
	b.WriteString(headline(prk, all))
	b.WriteByte('\n')
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if name != "~isa" && name != "~prk" && name != disabledField {
			columns.Write([]byte("  " + shown(name) + "\t" + shown(all[name].Wire()) + "\n"))
		}
	}
	columns.Flush() // a strings.Builder takes everything
	return strings.TrimSuffix(b.String(), "\n")
}

// entryLine prints an entry of a listing: for people PRK and facets on one line.
func (s *session) entryLine(e userdb.Entry) error {
	all := flat(e, "")
	if s.JSON {
		return s.out.say(all, "")
	}
	words := []string{headline(e.Key().String(), all)}
	for name := range e.Fields() {
		words = append(words, pair(name, all[name].Wire()))
	}
	return s.out.say(nil, strings.Join(words, "  "))
}

// pair is FIELD=VALUE, in quotes where the value could be taken for more than one.
func pair(name, value string) string {
	quoted := shown(value)
	if strings.Contains(value, "  ") && quoted == value {
		quoted = `"` + value + `"`
	}
	return shown(name) + "=" + quoted
}
