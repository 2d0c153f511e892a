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

// The most of what a schema may declare.
const (
	maxTypes    = 64
	maxFields   = 256 // of one type, and as many tertiary records
	maxReserved = 4096
	maxPattern  = 4096 // bytes
)

// The names that members of a schema may have. Of the kinds of fields, package
// validate holds the rules.
var (
	folds         = []string{string(FoldCasefold), string(FoldExact)}
	roles         = []string{string(RoleIndexed), string(RoleOrdered), string(RoleSecondary)}
	kinds         = []string{"email", "nickname", "pattern", "url", "username"}
	tertiaryKinds = []string{"hash", "list", "set", "string", "zset"}
	codecs        = []string{
		string(CodecBoolean), string(CodecDate), string(CodecIdentity), string(CodecJSON),
		string(CodecNull), string(CodecNumber), string(CodecText),
	}
)

// Validate returns the first thing that is wrong with s, in the order of names,
// as an *Error, or nil. A function that takes a schema from a program calls it once.
func (s Schema) Validate() error { return s.problem().err() }

func (s Schema) problem() *problem {
	if len(s.Types) == 0 {
		return problemf("no type is declared").at("types")
	}
	if len(s.Types) > maxTypes {
		return problemf("more than %d types", maxTypes).at("types")
	}
	for _, name := range s.Names() {
		p := cmp.Or(nameProblem(name), s.Types[name].problem(), s.confusion(name))
		if p != nil {
			return p.at("types", name)
		}
	}
	return nil
}

// confusion finds a field with the name of a type: in the hint ["job","x"] it
// could not be said which is meant.
func (s Schema) confusion(name string) *problem {
	for _, other := range s.Names() {
		t := s.Types[other]
		if _, declared := t.Fields[name]; declared || t.Primary == name {
			return problemf("a field of type %s has this name too", bare(other))
		}
	}
	return nil
}

func (t Type) problem() *problem {
	return cmp.Or(
		t.primaryProblem(),
		choice(string(t.Fold), "fold", folds).at("fold"),
		t.fieldsProblem().at("fields"),
		t.tertiaryProblem().at("tertiary"),
		t.passwordProblem().at("password"),
	)
}

func (t Type) primaryProblem() *problem {
	if t.Primary == "" {
		return problemf("the type has no primary key").at("primary")
	}
	if t.Primary == passwordField {
		return problemf("a password is no key").at("primary")
	}
	if p := nameProblem(t.Primary); p != nil {
		return p.at("primary")
	}
	f := t.Fields[t.Primary]
	if f.Role != "" {
		return problemf("two roles: it is the primary key").at("fields", t.Primary, "role")
	}
	if !isText(f.Codec) {
		return problemf("a key is a text").at("fields", t.Primary, "codec")
	}
	return nil
}

func (t Type) fieldsProblem() *problem {
	if len(t.Fields) > maxFields {
		return problemf("more than %d fields", maxFields)
	}
	for _, name := range sorted(t.Fields) {
		p := cmp.Or(nameProblem(name), t.Fields[name].problem(), passwordRole(name, t.Fields[name]),
			t.wasProblem(name).at("was"))
		if p != nil {
			return p.at(name)
		}
	}
	return nil
}

// wasProblem says why a field cannot have had the name that it says.
func (t Type) wasProblem(name string) *problem {
	was := t.Fields[name].Was
	if was == "" {
		return nil
	}
	if _, declared := t.Fields[was]; declared || was == t.Primary || was == passwordField || name == passwordField || name == t.Primary {
		return problemf("%s is another field still, or a key or a password", bare(was))
	}
	for other, f := range t.Fields {
		if other != name && f.Was == was {
			return problemf("another field was %s, too", bare(was))
		}
	}
	return nameProblem(was)
}

func (f Field) problem() *problem {
	if f.Role == RoleSecondary && !isText(f.Codec) && slices.Contains(codecs, string(f.Codec)) {
		return problemf("a key is a text").at("codec")
	}
	return cmp.Or(
		choice(string(f.Role), "role", roles).at("role"),
		choice(string(f.Codec), "codec", codecs).at("codec"),
		choice(f.Kind, "kind", kinds).at("kind"),
		f.patternProblem().at("pattern"),
		f.reservedProblem().at("reserved"),
	)
}

func (f Field) patternProblem() *problem {
	if f.Pattern == "" && f.Kind == "pattern" {
		return problemf("the kind pattern needs one")
	}
	if len(f.Pattern) > maxPattern {
		return problemf("longer than %d bytes", maxPattern)
	}
	_, err := syntax.Parse(f.Pattern, syntax.Perl)
	var bad *syntax.Error
	if errors.As(err, &bad) {
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
			return problemf("%q is no value", shorten(value))
		}
	}
	return nil
}

// passwordField is the facet that holds the hash of a password.
const passwordField = "password"

func passwordRole(name string, f Field) *problem {
	switch {
	case name != passwordField:
		return nil
	case f.Role != "":
		return problemf("a password is no key, and no index may hold it").at("role")
	case !isText(f.Codec):
		return problemf("a password is a text").at("codec")
	}
	return nil
}

func (t Type) tertiaryProblem() *problem {
	if len(t.Tertiary) > maxFields {
		return problemf("more than %d records", maxFields)
	}
	for _, name := range t.TertiaryNames() {
		p := cmp.Or(nameProblem(name), t.Tertiary[name].problem(), t.indexTwice(name))
		if p != nil {
			return p.at(name)
		}
	}
	return nil
}

func (t Tertiary) problem() *problem {
	if t.Kind == "" {
		return problemf("missing; known are %s", list(tertiaryKinds)).at("kind")
	}
	if t.Indexed && t.Kind != "set" {
		return problemf("only a set can be indexed").at("indexed")
	}
	return choice(t.Kind, "kind", tertiaryKinds).at("kind")
}

// indexTwice finds a field and a tertiary record whose indexes would be one.
func (t Type) indexTwice(name string) *problem {
	role := t.Fields[name].Role
	if t.Tertiary[name].Indexed && (role == RoleIndexed || role == RoleOrdered) {
		return problemf("the field of this name has an index already").at("indexed")
	}
	return nil
}

func (t Type) passwordProblem() *problem {
	if t.Password == nil {
		return nil
	}
	p := *t.Password
	for _, l := range []struct {
		name               string
		value, least, most int
	}{{"cost", p.Cost, 4, 15}, {"min", p.Min, 0, 72}, {"strength", p.Strength, 0, 4}} {
		if (l.value < l.least || l.value > l.most) && (l.name != "cost" || l.value != 0) {
			return problemf("%d is not from %d to %d", l.value, l.least, l.most).at(l.name)
		}
	}
	return nil
}

// nameProblem says why a type, a field or a tertiary record cannot have a name.
func nameProblem(name string) *problem {
	switch {
	case name == "*":
		return problemf("the name * is reserved: in a hint it is every secondary field")
	case strings.HasPrefix(name, "~"):
		return problemf("names that begin with ~ are reserved for the store")
	case !utf8.ValidString(name):
		return problemf("the name is not UTF-8")
	}
	prk, err := recordkey.PRK("type", "field", "value")
	if err == nil {
		_, err = prk.Tertiary(name)
	}
	var bad *recordkey.SyntaxError
	if errors.As(err, &bad) {
		return problemf("%s", bad.Reason)
	}
	return nil
}

// choice is the problem with a name that must be one of a few, or left out.
func choice(name, what string, known []string) *problem {
	if name == "" || slices.Contains(known, name) {
		return nil
	}
	return problemf("unknown %s %s; known are %s", what, bare(name), list(known))
}

// isText reports whether values of codec c are texts as they are.
func isText(c Codec) bool { return c == "" || c == CodecText || c == CodecIdentity }
