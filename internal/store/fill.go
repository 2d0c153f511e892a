package store

import (
	"strings"
	"time"

	"github.com/coffeenode/userdb/recordkey"
)

// On a cluster, tertiary records that are born with an entry are laid ready in a place of the attempt's own,
// ~/fill/TOKEN/{KEY}, whose braces put it into the slot of the record; the entry's field ~fill says that they belong to it,
// until they are in place.

// A Fill is what a ~fill field says: records that were laid ready under a token.
type Fill struct {
	Token string
	Parts []FillPart
}

// A FillPart is one of them. Replaces: in place of what is there; otherwise members join those of the set.
type FillPart struct {
	Set      recordkey.Key
	Indexed  bool
	Replaces bool
}

// String is the field: the token, then each record's name with marks.
func (f Fill) String() string {
	text := f.Token
	for _, p := range f.Parts {
		mark := " -"
		if p.Indexed {
			mark = " i"
		}
		if p.Replaces {
			mark += "r"
		}
		text += mark + ":" + recordkey.Escape(p.Set.Name())
	}
	return text
}

// ParseFill reads the field of an entry. What no record can be called is left out.
func ParseFill(entry recordkey.Key, text string) Fill {
	token, names, _ := strings.Cut(text, " ")
	f := Fill{Token: token}
	for mark := range strings.FieldsSeq(names) {
		marks, escaped, _ := strings.Cut(mark, ":")
		name, err := recordkey.Unescape(escaped)
		if err != nil {
			continue
		}
		if set, err := entry.Tertiary(name); err == nil {
			f.Parts = append(f.Parts, FillPart{set, strings.HasPrefix(marks, "i"), strings.HasSuffix(marks, "r")})
		}
	}
	return f
}

// StageLife is how long a record lies ready: until somebody has looked what became of its attempt. Redis counts
// it down, which tells when it was laid.
const StageLife = 10 * 365 * 24 * time.Hour

const stagePrefix = "~/fill/"

// StageKey is where a record lies ready.
func StageKey(set recordkey.Key, token string) string {
	return set.Namespace().String() + stagePrefix + token + "/{" + set.String() + "}"
}

// ParseStage reads such a key.
func ParseStage(raw string) (set recordkey.Key, token string, ok bool) {
	namespace, rest, ok := strings.Cut(raw, stagePrefix)
	token, rest, cut := strings.Cut(rest, "/{")
	inner, closed := strings.CutSuffix(rest, "}")
	set, err := recordkey.Parse(inner)
	ok = ok && cut && closed && err == nil && set.Kind() == recordkey.KindTertiary && set.Namespace().String() == namespace
	return set, token, ok
}
