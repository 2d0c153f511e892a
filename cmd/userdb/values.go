package main

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// Operators of valueEdit. The first three separate a field from its value in the words of 'userdb
// set'; the last one is a flag.
const (
	opSet    = "="
	opAdd    = "+="
	opRemove = "-="
	opFirst  = "--first"
)

// A valueEdit sets a field, or adds a value to it, removes one or makes one the first.
type valueEdit struct{ op, field, text string }

// words returns the words of a valueEdit for a message, without the value.
func (v valueEdit) words() string {
	if v.op == opFirst {
		return opFirst + " " + printable(v.field) + "=VALUE"
	}
	return printable(v.field) + v.op + "VALUE"
}

// apply changes a copy of an entry. It returns an error if the entry already has the value to add,
// or lacks the value to remove or move.
func (v valueEdit) apply(e *userdb.Entry) error {
	before, reason := len(e.Texts(v.field)), ""
	switch v.op {
	case opAdd:
		if e.AddText(v.field, v.text); len(e.Texts(v.field)) == before {
			reason = "the entry has this value already"
		}
	case opRemove:
		if e.DropText(v.field, v.text); len(e.Texts(v.field)) == before {
			reason = "the entry does not have this value"
		}
	case opFirst:
		if e.PutFirst(v.field, v.text); len(e.Texts(v.field)) > before {
			reason = "the entry does not have this value; write " + printable(v.field) + "+=VALUE as well to add it"
		}
	}
	if reason != "" {
		return &userdb.FieldError{Err: userdb.ErrInvalid, Field: v.field, Rule: "many", Reason: printable(v.text) + ": " + reason}
	}
	return nil
}

// cutEdit cuts a word of set into its field, operator and value. A field that the type declares may
// itself end with + or -.
func cutEdit(t schema.Type, word string) valueEdit {
	name, text, _ := strings.Cut(word, opSet)
	if _, declared := t.Fields[name]; !declared {
		for _, op := range []string{opAdd, opRemove} {
			if field, ok := strings.CutSuffix(name, op[:1]); ok && field != "" {
				return valueEdit{op, field, text}
			}
		}
	}
	return valueEdit{opSet, name, text}
}

// checkEdits returns an error if a word is not FIELD=VALUE, FIELD+=VALUE or FIELD-=VALUE, or if a
// field is the password or is set twice.
func checkEdits(words []string) error {
	if err := checkWords(words); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, word := range words {
		v := cutEdit(schema.Type{}, word)
		if seen[v.field] && v.op == opSet {
			return usagef("the field %s is given twice; %[1]s+=VALUE adds a value, if the schema allows several", printable(v.field))
		}
		seen[v.field] = seen[v.field] || v.op == opSet
	}
	return nil
}

// checkSeveral returns an error unless a field of a type is secondary. Whether the schema allows
// the field several values is checked when the entry is written.
func (s *session) checkSeveral(typ *userdb.Type, field string) error {
	t, err := view.Of(s.db).Type(typ.Name())
	if err != nil || slices.Contains(t.Secondary, field) {
		return err
	}
	if reason := t.UndeclaredReason(field); reason != "" && !t.Schema.Open {
		return &userdb.FieldError{Err: userdb.ErrInvalid, Field: field, Rule: "undeclared", Reason: reason}
	}
	return &userdb.FieldError{Err: userdb.ErrInvalid, Field: field, Rule: "many", Reason: "only a secondary field can have several values"}
}

// parseSet parses the words of set, and the values of --first.
func (s *session) parseSet(typ *userdb.Type, words, first []string) (entryEdit, error) {
	t := s.db.Schema().Types[typ.Name()]
	var texts []string
	var values []valueEdit
	set := map[string]bool{}
	for _, word := range words {
		v := cutEdit(t, word)
		if v.op == opSet {
			texts, set[v.field] = append(texts, word), true
			continue
		}
		values = append(values, v)
	}
	for _, word := range first {
		field, text, _ := strings.Cut(word, opSet)
		values = append(values, valueEdit{opFirst, field, text})
	}
	for _, v := range values {
		if set[v.field] {
			return nil, usagef("%s=VALUE replaces the first value, so it excludes %s", printable(v.field), v.words())
		}
		if err := s.checkSeveral(typ, v.field); err != nil {
			return nil, err
		}
	}
	facets, err := parseFacets(t, texts)
	if err != nil {
		return nil, err
	}
	return func(e *userdb.Entry) error {
		for name, v := range facets {
			e.Put(name, v)
		}
		for _, v := range values {
			if err := v.apply(e); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// splitRepeated splits texts of the form FIELD=VALUE. It returns, by field, the values of the
// fields that occur more than once, and the remaining texts.
func splitRepeated(t schema.Type, texts []string) (values map[string][]string, rest []string, err error) {
	given := map[string][]string{}
	for _, text := range texts {
		name, value, _ := strings.Cut(text, opSet)
		given[name] = append(given[name], value)
	}
	for _, text := range texts {
		name, _, _ := strings.Cut(text, opSet)
		_, declared := t.Fields[name]
		switch all := given[name]; {
		case len(all) == 1:
			rest = append(rest, text)
		case !declared && !t.Open && name != t.Primary: // refused later, with a suggestion
			rest = append(rest, text)
		case t.Fields[name].MaxValues() < 2:
			return nil, nil, usagef("the field %s is given twice, but takes one value; to allow several, set \"many\" in the schema and run 'userdb schema apply'", printable(name))
		case values[name] == nil:
			if values == nil {
				values = map[string][]string{}
			}
			values[name] = all
		}
	}
	return values, rest, nil
}

// valuesField is the key under which a flat entry holds all values of fields that may have several.
const valuesField = "~values"

// severalValues returns the values under valuesField, by field.
func severalValues(all schema.Facets) map[string][]string {
	var values map[string][]string
	if v, has := all[valuesField]; has {
		_ = json.Unmarshal([]byte(v.Wire()), &values) // it comes from Entry.Flat
	}
	return values
}

// printableList formats texts for a cell.
func printableList(texts []string) string {
	var list []string
	for _, text := range texts {
		if text = printable(text); strings.Contains(text, ",") && text[0] != '"' {
			text = `"` + text + `"`
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// splitFlag declares --split FIELD=CHAR.
func splitFlag(c *cobra.Command, to *map[string]rune, usage string) {
	c.Flags().Func("split", usage, func(text string) error {
		field, char, ok := strings.Cut(text, "=")
		switch char {
		case `\t`, "tab":
			char = "\t"
		case `\n`:
			char = "\n"
		}
		separator, size := utf8.DecodeRuneInString(char)
		switch {
		case !ok || field == "":
			return usagef("want FIELD=CHAR, such as 'email=;'")
		case size == 0:
			return usagef("the character after = is missing: is FIELD=CHAR in quotes, such as 'email=;'?")
		case size != len(char) || separator == utf8.RuneError || slices.Contains([]rune{'"', '\r'}, separator):
			return usagef("want one character after =, and neither a quote nor a carriage return")
		}
		if *to == nil {
			*to = map[string]rune{}
		}
		if was, given := (*to)[field]; given && was != separator {
			return usagef("%s is already split at another character", printable(field))
		}
		(*to)[field] = separator
		return nil
	})
}
