package schema

import (
	"cmp"
	"errors"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/coffeenode/userdb/recordkey"
)

// Limits on what a schema may declare.
const (
	maxTypes    = 64
	maxFields   = 256 // of one type; also the limit for tertiary records
	maxReserved = 4096
	maxPeriod   = 3653 * Day
	maxPattern  = 4096 // bytes
	maxRetired  = 4096 // names
	maxMembers  = 100_000
	maxMany     = 100
)

// Known values of schema members. Package validate implements the kinds of fields.
var (
	folds         = []Fold{FoldCasefold, FoldExact}
	codecs        = []Codec{CodecBoolean, CodecDate, CodecIdentity, CodecJSON, CodecNull, CodecNumber, CodecText}
	kinds         = []string{"email", "email-dots", "nickname", "pattern", "url", "username"}
	typedKinds    = []string{"email", "email-dots", "nickname", "username"} // only for typed fields
	tertiaryKinds = []string{"hash", "list", "set", "string", "zset"}
)

// Validate returns the first problem of s, in the order of names, as an *Error, or nil if s is
// valid. Functions that accept a schema from a program call it once.
func (s Schema) Validate() error { return s.problem().err() }

func (s Schema) problem() *problem {
	if len(s.Types) == 0 {
		return problemf("no type is declared").at("types")
	}
	return firstProblem(s.Types, maxTypes, "types", s.typeProblem).at("types")
}

// firstProblem returns a problem if declared has more than limit members; noun names the members in
// its text. Otherwise firstProblem checks their names and values, in the order of names, and
// returns the first problem.
func firstProblem[V any](declared map[string]V, limit int, noun string, problemOf func(string, V) *problem) *problem {
	if len(declared) > limit {
		return problemf("more than %d %s", limit, noun)
	}
	for _, name := range sorted(declared) {
		if p := cmp.Or(nameProblem(name), problemOf(name, declared[name])); p != nil {
			return p.at(name)
		}
	}
	return nil
}

func (s Schema) typeProblem(name string, t Type) *problem {
	policy := t.Policy()
	return cmp.Or(
		t.primaryProblem(),
		choice(t.Fold, "fold", folds).at("fold"),
		firstProblem(t.Fields, maxFields, "fields", t.fieldProblem).at("fields"),
		firstProblem(t.Tertiary, maxFields, "records", t.tertiaryProblem).at("tertiary"),
		t.retiredProblem().at("retired"),
		t.buildingProblem().at("building"),
		rangeProblem(policy.Cost, 4, 15).at("password", "cost"),
		rangeProblem(policy.Min, 0, 72).at("password", "min"),
		rangeProblem(policy.Strength, 0, 4).at("password", "strength"),
		s.nameConflict(name),
	)
}

// nameConflict returns a problem if a field has the name of a type, because the hint ["job","x"]
// would then be ambiguous.
func (s Schema) nameConflict(name string) *problem {
	for _, other := range s.Names() {
		t := s.Types[other]
		if _, declared := t.Fields[name]; declared || t.Primary == name {
			return problemf("a field of type %s also has this name", quoteIfUnclear(other))
		}
	}
	return nil
}

// passwordField is the facet that holds a password hash.
const passwordField = "password"

func (t Type) primaryProblem() *problem {
	f := t.Fields[t.Primary]
	return cmp.Or(
		problemIf(t.Primary == "", "the type has no primary key").at("primary"),
		problemIf(t.Primary == passwordField, "a password cannot be a key").at("primary"),
		nameProblem(t.Primary).at("primary"),
		problemIf(f.Role != 0, "the primary field cannot have a role").at("fields", t.Primary, "role"),
		problemIf(!isText(f.Codec), "a key must be text").at("fields", t.Primary, "codec"),
	)
}

func (t Type) fieldProblem(name string, f Field) *problem {
	notText := !isText(f.Codec) && slices.Contains(codecs, f.Codec)
	return cmp.Or(
		problemIf(f.Role.Has(RoleSecondary) && notText, "a key must be text").at("codec"),
		problemIf(f.Role&^allRoles != 0, "unknown role; want one of %s", allRoles).at("role"),
		choice(f.Codec, "codec", codecs).at("codec"),
		choice(f.Kind, "kind", kinds).at("kind"),
		f.patternProblem().at("pattern"),
		f.reservedProblem().at("reserved"),
		rangeProblem(f.Many, 0, maxMany).at("many"),
		problemIf(f.Many > 0 && !f.Role.Has(RoleSecondary), "only a secondary field can have several values").at("many"),
		problemIf(f.Hold < 0 || f.Hold > maxPeriod, "over ten years").at("hold"),
		problemIf(f.Hold > 0 && !f.Role.Has(RoleSecondary), "only the values of a secondary field can be held").at("hold"),
		problemIf(!f.IsTyped() && !f.Role.Has(RoleSecondary), "only a secondary field can be untyped").at("typed"),
		problemIf(!f.IsTyped() && slices.Contains(typedKinds, f.Kind), "people type values of the kind %s", f.Kind).at("typed"),
		problemIf(f.Role.Has(RoleSecondary) && strings.Contains(name, ":") && t.namesValues(), "in a type with many or hold, the name of a secondary field cannot have a colon"),
		problemIf(name == passwordField && f.Role != 0, "a password cannot be a key or be indexed").at("role"),
		problemIf(name == passwordField && notText, "a password must be text").at("codec"),
		t.wasProblem(name, f.Was).at("was"),
	)
}

// namesValues reports whether some field of t may have several values, or holds values. The records
// of such values are ambiguous if the name of a field contains a colon.
func (t Type) namesValues() bool {
	for _, f := range t.Fields {
		if f.MaxValues() > 1 || f.Hold > 0 {
			return true
		}
	}
	return false
}

func (f Field) patternProblem() *problem {
	if f.Pattern == "" && f.Kind == "pattern" {
		return problemf("the kind pattern requires a pattern")
	}
	if len(f.Pattern) > maxPattern {
		return problemf("longer than %d bytes", maxPattern)
	}
	_, err := syntax.Parse(f.Pattern, syntax.Perl)
	if bad, ok := errors.AsType[*syntax.Error](err); ok {
		return problemf("%s: %q", bad.Code, shorten(bad.Expr))
	}
	return nil
}

func (f Field) reservedProblem() *problem {
	if len(f.Reserved) > maxReserved {
		return problemf("more than %d values", maxReserved)
	}
	for _, value := range f.Reserved {
		if value == "" || !utf8.ValidString(value) {
			return problemf("%q is not a value", shorten(value))
		}
	}
	return nil
}

// wasProblem returns why the field name cannot have been renamed from was, or nil.
func (t Type) wasProblem(name, was string) *problem {
	if was == "" {
		return nil
	}
	if _, declared := t.Fields[was]; declared || was == t.Primary || was == passwordField || name == passwordField || name == t.Primary {
		return problemf("%s is still declared, or is a key or a password", quoteIfUnclear(was))
	}
	for other, f := range t.Fields {
		if other != name && f.Was == was {
			return problemf("%s is also the previous name of another field", quoteIfUnclear(was))
		}
	}
	return nameProblem(was)
}

func (t Type) tertiaryProblem(name string, r Tertiary) *problem {
	role := t.Fields[name].Role
	return cmp.Or(
		problemIf(r.Kind == "", "missing; want one of %s", list(tertiaryKinds)).at("kind"),
		problemIf(r.Indexed && r.Kind != "set", "only a set can be indexed").at("indexed"),
		choice(r.Kind, "kind", tertiaryKinds).at("kind"),
		problemIf(r.Kind == "string" && r.Max != 0, "a string has no members").at("max"),
		rangeProblem(r.Max, 0, maxMembers).at("max"),
		problemIf(r.Indexed && role.Has(RoleIndexed|RoleOrdered), "the field of this name already has an index").at("indexed"),
	)
}

// retiredProblem returns a problem if t.Retired has too many names, an invalid name, the primary
// field, or a name that t declares both as a field and as a tertiary record.
func (t Type) retiredProblem() *problem {
	if len(t.Retired) > maxRetired {
		return problemf("more than %d names", maxRetired)
	}
	for _, name := range t.Retired {
		_, field := t.Fields[name]
		_, tertiary := t.Tertiary[name]
		if p := cmp.Or(nameProblem(name), problemIf(field && tertiary || name == t.Primary, "%s is also declared", quoteIfUnclear(name))); p != nil {
			return p
		}
	}
	return nil
}

// buildingProblem returns a problem if t.Building contains something that t does not declare.
func (t Type) buildingProblem() *problem {
	if t.Building == nil {
		return nil
	}
	for _, name := range sorted(t.Building.What) {
		f := t.Fields[name]
		for _, what := range t.Building.What[name] {
			role, _ := roleOf(what)
			indexed := t.Tertiary[name].Indexed && role == RoleIndexed
			rule := what == RequiredRule && f.Required || what == UnsetRule && f.Role.Has(RoleOrdered) ||
				what == TypedRule && f.Role.Has(RoleSecondary) && f.IsTyped() ||
				what == ManyRule && f.MaxValues() > 1
			if !f.Role.Has(role) && !indexed && !rule {
				return problemf("not declared: %s", quoteIfUnclear(what)).at("what", name)
			}
		}
	}
	return nil
}

func rangeProblem(value, least, most int) *problem {
	return problemIf(value < least || value > most, "%d is not between %d and %d", value, least, most)
}

// nameProblem returns why name cannot name a type, a field or a tertiary record, or nil.
func nameProblem(name string) *problem {
	switch {
	case name == "*":
		return problemf("the name * is reserved: in a hint it means every secondary field")
	case strings.HasPrefix(name, "~"):
		return problemf("names that begin with ~ are reserved for the store")
	case !utf8.ValidString(name):
		return problemf("the name is not UTF-8")
	}
	prk, err := recordkey.PRK("type", "field", "value")
	if err == nil {
		_, err = prk.Tertiary(name)
	}
	if bad, ok := errors.AsType[*recordkey.SyntaxError](err); ok {
		return problemf("%s", bad.Reason)
	}
	return nil
}

// choice returns a problem unless name is empty or one of the allowed names.
func choice[T ~string](name T, what string, allowed []T) *problem {
	if name == "" || slices.Contains(allowed, name) {
		return nil
	}
	return problemf("unknown %s %s; want one of %s", what, quoteIfUnclear(string(name)), list(allowed))
}

// isText reports whether codec c stores texts unchanged.
func isText(c Codec) bool { return c == "" || c == CodecText || c == CodecIdentity }
