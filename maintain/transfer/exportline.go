package transfer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/strictjson"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// An exportLine is one line of an export, which describes an entry. Content that JSON cannot
// express exactly is in base64: facets in Wire, and the values of a tertiary record in its value64.
type exportLine struct {
	Type     string                     `json:"type,omitempty"`
	Facets   map[string]json.RawMessage `json:"facets"`
	Wire     map[string][]byte          `json:"wire,omitempty"`
	Tertiary map[string]tertiaryRecord  `json:"tertiary,omitempty"`
	Password string                     `json:"password,omitempty"`
	// Imported is the mark of a password that an import set, and "" for any other password. It is
	// absent if Password is.
	Imported *string `json:"imported,omitempty"`
	Changed  string  `json:"password_changed,omitempty"`
	Disabled string  `json:"disabled,omitempty"`
	// Factors holds the second factors of an entry whose Password is exported. If it is absent,
	// SecondFactor is true if the entry has factors.
	Factors      map[string]string `json:"factors,omitempty"`
	SecondFactor bool              `json:"second_factor,omitempty"`
	// Unproven says that the entry was self-registered and that its address is not verified yet.
	Unproven bool `json:"unproven,omitempty"`
	// Verified lists the fields whose facets are verified: the owner of the entry has proved that
	// messages to these addresses arrive.
	Verified []string `json:"verified,omitempty"`
	// Values lists all values of the fields that have several.
	Values map[string][]lineValue `json:"values,omitempty"`
}

type tertiaryRecord struct {
	name      string          // set by an import only
	inputName string          // the name in the input line
	raw64     string          // Value64 of an import, before it is decoded
	Kind      string          `json:"kind"`
	Value     json.RawMessage `json:"value,omitempty"`
	Value64   [][]byte        `json:"value64,omitempty"`
}

// newExportLine returns the line for an entry, with its password if secret is true, and with the
// given second factors.
func newExportLine(
	t *change.Type, read store.EntryRead, w store.Entry, secret bool, factors map[string]string,
) (exportLine, error) {
	x := exportLine{Factors: factors, Type: t.Name, Facets: map[string]json.RawMessage{}, Wire: map[string][]byte{}, Tertiary: map[string]tertiaryRecord{}}
	var digests []string // fields with the digests of passkeys that are not exported
	if len(factors) == 0 {
		digests = digestFields(t, w.Record)
	}
	for field, wire := range w.Record.Fields {
		switch {
		case slices.Contains(digests, field):
		case field == store.FieldPassword && secret:
			if x.Password = w.Record.PasswordHash(); x.Password != "" {
				x.Imported = new(w.Record.Fields[store.FieldImported])
			}
		case store.FieldOfVerified(field) != "":
			if facet := store.FieldOfVerified(field); utf8.ValidString(facet) && wire == store.Verified(w.Record.Fields[facet]) {
				x.Verified = append(x.Verified, facet)
			}
		case field == store.FieldPassword || store.OwnField(field) && !store.IsLost(field):
		case !utf8.ValidString(field):
			return x, fmt.Errorf("a facet's name is not UTF-8: %s", records.Quoted(field))
		default:
			x.addFacet(t.Schema.Codec(field), field, wire)
		}
	}
	slices.Sort(x.Verified)
	x.Values = lineValues(t, w.Record.Fields)
	maps.DeleteFunc(x.Values, func(field string, _ []lineValue) bool { return slices.Contains(digests, field) })
	x.Changed, x.Disabled = w.Record.Fields[store.FieldChanged], w.Record.Fields[store.FieldDisabled]
	x.SecondFactor = w.Record.Factors().Any() && len(factors) == 0
	x.Unproven = w.Record.Fields[store.FieldUnproven] != ""
	for i, part := range w.Parts {
		if part.Kind != store.KindNone {
			x.Tertiary[read.Keys[i].Name()] = tertiaryRecordOf(part)
		}
	}
	return x, nil
}

// addFacet adds a facet as JSON if JSON preserves it exactly, and otherwise to Wire.
func (x *exportLine) addFacet(c schema.Codec, field, wire string) {
	v, err := schema.Decode(c, wire)
	if err == nil && utf8.ValidString(wire) {
		raw, err := v.MarshalJSON()
		if err == nil && c != schema.CodecText && c != schema.CodecIdentity {
			v, err = schema.ParseJSON(c, raw)
		}
		if err == nil && v.Wire() == wire {
			x.Facets[field] = raw
			return
		}
	}
	x.Wire[field] = []byte(wire)
}

func tertiaryRecordOf(part store.Part) tertiaryRecord {
	values := part.Values
	if part.Kind == "set" {
		values = slices.Sorted(slices.Values(values))
	}
	if slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }) {
		return tertiaryRecord{Kind: part.Kind, Value64: records.Map(values, func(v string) []byte { return []byte(v) })}
	}
	var value any = append([]string{}, values...)
	switch part.Kind {
	case "zset":
		value = scoredPairs(values)
	case "hash":
		members := map[string]string{}
		for pair := range slices.Chunk(values, 2) {
			members[pair[0]] = pair[1]
		}
		value = members
	case "string":
		value = values[0]
	}
	text, _ := strictjson.Marshal(value) // marshaling strings and numbers cannot fail
	return tertiaryRecord{Kind: part.Kind, Value: bytes.TrimSpace(text)}
}

// scoredPairs returns pairs of member and score. A score is a number, or the string inf or -inf.
func scoredPairs(values []string) [][2]any {
	pairs := [][2]any{}
	for scored := range slices.Chunk(values, 2) {
		pair := [2]any{scored[1], scored[0]}
		if f, err := strconv.ParseFloat(scored[0], 64); err == nil && !math.IsInf(f, 0) {
			pair[1] = json.Number(strconv.FormatFloat(f, 'g', -1, 64))
		}
		pairs = append(pairs, pair)
	}
	return pairs
}

// contentFor returns a tertiary record of an import in the form of a change of an entry of type t.
// It decodes no record of another kind than the schema declares, and no more members than the
// schema allows. Of a set it decodes up to maxMembers, since some may be equal.
func (rec tertiaryRecord) contentFor(t *change.Type) (change.Content, error) {
	declared := t.Schema.Tertiary[rec.name]
	if rec.Kind != declared.Kind && slices.Contains(tertiaryKinds, rec.Kind) {
		_, _, err := t.TertiaryKey(recordkey.Key{}, rec.name, rec.Kind, nil)
		return change.Content{}, err
	}
	limit := max(declared.Limit(), 1)
	if rec.Kind == "set" {
		limit = maxMembers
	}
	content, err := rec.content(limit)
	if errors.Is(err, errTooMany) {
		err = t.TooManyError(rec.name)
	}
	return content, err
}

// content returns a tertiary record of an import in the form of a change. It decodes at most limit
// members.
func (rec tertiaryRecord) content(limit int) (change.Content, error) {
	values, err := rec.values(limit)
	if err != nil {
		err = fmt.Errorf("tertiary record %s: %w", records.Quoted(rec.name), err)
	}
	return change.Content{Name: rec.name, Kind: rec.Kind, Values: values}, err
}

// values returns the elements of a tertiary record, as in store.Members. Elements from value64 are
// validated with the change.
func (rec tertiaryRecord) values(limit int) ([]string, error) {
	switch {
	case !slices.Contains(tertiaryKinds, rec.Kind):
		return nil, fmt.Errorf("its kind is %s; want hash, list, set, string or zset", records.Quoted(rec.Kind))
	case rec.raw64 != "" && rec.Value != nil:
		return nil, errors.New("both value and value64")
	case rec.raw64 != "":
		return rec.values64(limit)
	}
	texts, err := rec.texts(limit)
	if errors.Is(err, errTooMany) {
		return nil, err
	}
	if err != nil || slices.Contains(texts, nil) {
		return nil, rec.kindError()
	}
	return records.Map(texts, func(text *string) string { return *text }), nil
}

func (rec tertiaryRecord) kindError() error {
	return fmt.Errorf("its value is not of kind %s", records.Quoted(rec.Kind))
}

// values64 returns the elements in raw64.
func (rec tertiaryRecord) values64(limit int) (values []string, err error) {
	if rec.Kind == "hash" || rec.Kind == "zset" {
		limit *= 2
	}
	s := scanner{text: rec.raw64, limit: limit}
	s.array(func() { values = append(values, string(decodeAs[[]byte](&s, "value64", s.value()))) })
	if rec.Kind == "string" && (s.err == errTooMany || s.err == nil && len(values) != 1) {
		return nil, rec.kindError()
	}
	return values, s.err
}

// texts returns the elements in Value; nil stands for null.
func (rec tertiaryRecord) texts(limit int) (texts []*string, err error) {
	s := scanner{text: string(rec.Value), limit: limit}
	switch rec.Kind {
	case "set", "list":
		s.array(func() { texts = append(texts, s.stringOrNull()) })
	case "string":
		texts = append(texts, s.stringOrNull())
	case "hash":
		s.object(func(name string) { texts = append(texts, &name, s.stringOrNull()) })
	case "zset":
		s.array(func() {
			member, score := s.pair()
			texts = append(texts, &score, member)
		})
	}
	return texts, s.err
}

// pair reads a pair of member and score, which is a number or a string.
func (s *scanner) pair() (member *string, score string) {
	if !s.accept('[') {
		s.fail(errNoPair)
		return nil, ""
	}
	if member = s.stringOrNull(); !s.accept(',') {
		s.fail(errNoPair)
		return nil, ""
	}
	score = s.value()
	_ = json.Unmarshal([]byte(score), &score) // a number stays as it is
	if !s.accept(']') {
		s.fail(errNoPair)
	}
	return member, score
}

var errNoPair = errors.New("not a pair of member and score")

// tertiaryKinds are the kinds of tertiary records.
var tertiaryKinds = []string{"hash", "list", "set", "string", "zset"}
