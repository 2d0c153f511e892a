package schema

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Relation says how a program's declaration of a type compares with the stored one, which is in
// force.
type Relation int

// The relations. If several apply, Compare returns the last.
const (
	// Same: neither declaration has anything that the other lacks.
	Same Relation = iota
	// Lacks: the stored declaration has more fields, roles or tertiary records. A program can work
	// with that.
	Lacks
	// Adds: the program's declaration has more, but no record has to change.
	Adds
	// Builds: the program's declaration has more, and records must be migrated: for example, it
	// adds roles, requires a field or renames one.
	Builds
	// Differs: the declarations contradict each other, or the program declares a retired name.
	Differs
)

// Compare compares t, a program's declaration, with the stored declaration of the same type. It
// returns the relation and explains it for people: `codec of "age": stored number; here text`.
//
// It ignores the parts that the stored declaration alone decides: password policies, reserved
// values, holds, retired UIDs, second factors, and limits of tertiary records. It also ignores the
// versions of the canonical form and of ordered indexes.
func (t Type) Compare(stored Type) (Relation, string) {
	c := comparison{differences: map[Relation][]string{}}
	c.compareText("primary field", stored.Primary, t.Primary)
	c.compareText("fold", string(cmp.Or(stored.Fold, FoldCasefold)), string(cmp.Or(t.Fold, FoldCasefold)))
	c.comparePresence("an open type", stored.Open, t.Open, Adds)
	for _, name := range sorted(t.Fields) {
		c.compareField(name, t.Fields[name], stored)
	}
	for _, name := range sorted(stored.Fields) {
		if _, has := t.Fields[name]; !has {
			c.add(Lacks, "the stored schema has the field %s, which is not declared here", quoteIfUnclear(name))
		}
	}
	for _, name := range sorted(t.Tertiary) {
		c.compareTertiary(name, t.Tertiary[name], stored)
	}
	for _, name := range sorted(stored.Tertiary) {
		if _, has := t.Tertiary[name]; !has {
			c.add(Lacks, "the stored schema has the tertiary record %s, which is not declared here", quoteIfUnclear(name))
		}
	}
	return c.relation, strings.Join(c.differences[c.relation], ", and ")
}

// A comparison collects the differences between two declarations.
type comparison struct {
	relation    Relation
	differences map[Relation][]string
}

func (c *comparison) add(r Relation, format string, args ...any) {
	c.relation = max(c.relation, r)
	c.differences[r] = append(c.differences[r], fmt.Sprintf(format, args...))
}

func (c *comparison) compareText(what, stored, here string) {
	if stored != here {
		c.add(Differs, "%s: stored %s; here %s", what, quoteIfUnclear(stored), quoteIfUnclear(here))
	}
}

// comparePresence compares a property that either declaration may have. If only the program's
// declaration has it, the relation is the argument adding.
func (c *comparison) comparePresence(what string, stored, here bool, adding Relation) {
	switch {
	case here && !stored:
		c.add(adding, "%s: not stored", what)
	case stored && !here:
		c.add(Lacks, "%s: stored", what)
	}
}

func (c *comparison) compareField(name string, here Field, storedType Type) {
	stored, has := storedType.Fields[name]
	_, renamed := storedType.Fields[here.Was]
	what := "field " + quoteIfUnclear(name)
	switch {
	case !has && slices.Contains(storedType.Retired, name):
		c.add(Differs, "%s: retired", what)
	case !has && renamed:
		c.add(Builds, "%s: stored as %s", what, quoteIfUnclear(here.Was))
	case !has && here.Role == 0 && !here.Required:
		c.add(Adds, "%s: not stored", what)
	}
	if has {
		c.compareText("codec of "+what, string(cmp.Or(stored.Codec, CodecText)), string(cmp.Or(here.Codec, CodecText)))
		c.compareText("kind of "+what, cmp.Or(stored.Kind, "none"), cmp.Or(here.Kind, "none"))
		c.compareText("pattern of "+what, stored.Pattern, here.Pattern)
	}
	for _, r := range roleNames {
		c.comparePresence(what+": role "+r.name, stored.Role.Has(r.role), here.Role.Has(r.role), Builds)
	}
	c.comparePresence(what+": required", stored.Required, here.Required, Builds)
	if stored.Role.Has(RoleSecondary) && here.Role.Has(RoleSecondary) {
		c.comparePresence(what+": typed", stored.IsTyped(), here.IsTyped(), Builds)
	}
	switch values := fmt.Sprintf("values of %s: stored at most %d; here %d", what, stored.MaxValues(), here.MaxValues()); {
	case here.MaxValues() > stored.MaxValues():
		c.add(Builds, "%s", values)
	case here.MaxValues() < stored.MaxValues():
		c.add(Lacks, "%s", values)
	}
}

func (c *comparison) compareTertiary(name string, here Tertiary, storedType Type) {
	stored, has := storedType.Tertiary[name]
	what := "tertiary record " + quoteIfUnclear(name)
	switch {
	case has:
		c.compareText("kind of "+what, stored.Kind, here.Kind)
		c.comparePresence(what+": indexed", stored.Indexed, here.Indexed, Builds)
	case slices.Contains(storedType.Retired, name):
		c.add(Differs, "%s: retired", what)
	default:
		c.add(Adds, "%s: not stored", what)
	}
}

// Merge returns stored plus everything that only t has. It is for a relation of at most Adds, so
// that no record has to change.
func (t Type) Merge(stored Type) Type {
	union := stored
	union.Open = stored.Open || t.Open
	union.Fields = mergeMaps(stored.Fields, t.Fields)
	for name, f := range union.Fields {
		f.Was = ""
		union.Fields[name] = f
	}
	union.Tertiary = mergeMaps(stored.Tertiary, t.Tertiary)
	return union
}

// mergeMaps returns the members of both maps, or nil if both are empty. If both have a member with
// the same name, it takes the one in preferred.
func mergeMaps[V any](preferred, other map[string]V) map[string]V {
	if len(preferred)+len(other) == 0 {
		return nil
	}
	all := make(map[string]V, len(preferred)+len(other))
	maps.Copy(all, other)
	maps.Copy(all, preferred)
	return all
}

// WithoutBuilding returns t without the roles and rules that are still being built. Queries use the
// result.
func (t Type) WithoutBuilding() Type {
	if t.Building == nil {
		return t
	}
	finished := t
	if slices.ContainsFunc(sorted(t.Building.What), t.Building.PlacesUnset) {
		finished.Orders = firstOrders
	}
	finished.Building, finished.Fields, finished.Tertiary = nil, maps.Clone(t.Fields), maps.Clone(t.Tertiary)
	for name, building := range t.Building.What {
		f, isField := finished.Fields[name]
		r, isTertiary := finished.Tertiary[name]
		for _, what := range building {
			role, _ := roleOf(what)
			f.Role &^= role
			f.Required = f.Required && what != RequiredRule
			if what == TypedRule {
				f.Typed = new(false)
			}
			if what == ManyRule || !f.Role.Has(RoleSecondary) {
				f.Many = 0
			}
			if !f.Role.Has(RoleSecondary) {
				f.Hold = 0
			}
			r.Indexed = r.Indexed && role != RoleIndexed
		}
		if isField {
			finished.Fields[name] = f
		}
		if isTertiary {
			finished.Tertiary[name] = r
		}
	}
	return finished
}

// Additions returns the roles and rules that t has and other lacks, by the name of the field or
// tertiary record. Queries can use these only after all entries have been migrated. Entries may
// have several values in a field only after all programs have read the schema.
func (t Type) Additions(other Type) map[string][]string {
	more := map[string][]string{}
	for name, f := range t.Fields {
		before := other.Fields[name]
		additions := (f.Role &^ before.Role).Names()
		if f.Required && !before.Required {
			additions = append(additions, RequiredRule)
		}
		if f.BecomesTyped(before) {
			additions = append(additions, TypedRule)
		}
		if f.MaxValues() > 1 && before.MaxValues() == 1 {
			additions = append(additions, ManyRule)
		}
		if f.Role.Has(RoleOrdered) && before.Role.Has(RoleOrdered) && t.ListsUnset() && !other.ListsUnset() {
			additions = append(additions, UnsetRule)
		}
		if len(additions) > 0 {
			more[name] = additions
		}
	}
	for name, r := range t.Tertiary {
		if r.Indexed && !other.Tertiary[name].Indexed {
			more[name] = append(more[name], RoleIndexed.String())
		}
	}
	return more
}
