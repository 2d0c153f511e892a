package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/internal/strictjson"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/validate"
)

func diffSchemaCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "diff",
		Short: "Compare a program's schema with the stored one",
		Long: `Compare each type as it is stored with the type that a program declares, in the schema of --schema,
or else with the built-in one. A program that declares no schema follows the stored one. Any other
program, when it opens the store:

  same     it goes on
  lacks    the stored type has more: the program follows it, but does not write
           fields that it does not know
  adds     the program's type has more, and no record changes: it is stored when
           the program opens the store
  builds   the program's type has more, and entries must be converted: the
           program is refused until 'userdb schema apply' has done that
  differs  they contradict each other: the program is refused`,
		Example: `  userdb schema diff
  userdb schema diff --schema schema.json --json`,
		RunE: s.run(func(ctx context.Context, _ []string) error {
			own, err := s.namedSchema(ctx, schema.User())
			if err == nil {
				err = s.open(ctx)
			}
			if err != nil {
				return err
			}
			stored, err := migrate.StoredSchema(ctx, s.db)
			if err != nil {
				return err
			}
			names := maps.Clone(own.Types)
			maps.Copy(names, stored.Types)
			for _, name := range slices.Sorted(maps.Keys(names)) {
				if err := s.out.printDiff(name, stored.Types, own.Types, s.Schema == "", s.std.width > 0); err != nil {
					return err
				}
			}
			return nil
		}, reading),
	}
}

// A typeDiff compares the declaration of a type with the stored one.
type typeDiff struct {
	Type       string       `json:"type"`
	Relation   string       `json:"relation"`   // same, lacks, adds, builds, differs
	Difference string       `json:"difference"` // in words
	Then       string       `json:"then"`       // what happens to a program with this schema
	Stored     *schema.Type `json:"stored,omitempty"`
	Here       *schema.Type `json:"here,omitempty"`
}

// outcomes holds the name of each relation and what it means for a program that opens the store.
var outcomes = map[schema.Relation][2]string{
	schema.Same:    {"same", "it goes on"},
	schema.Lacks:   {"lacks", "it follows the stored schema, but does not write fields that it does not know"},
	schema.Adds:    {"adds", "it stores its additions when it opens the store"},
	schema.Builds:  {"builds", "it is refused until 'userdb schema apply' has converted the entries"},
	schema.Differs: {"differs", "it is refused"},
}

// printDiff prints how the declaration of a type compares with the stored one. builtin says that
// the declaration is the built-in one: a program without a schema of its own follows the stored
// one. brief leaves out the two declarations, which are long lines. They are also left out if
// nothing differs.
func (o *output) printDiff(name string, stored, own map[string]schema.Type, builtin, brief bool) error {
	storedType, isStored := stored[name]
	ownType, isDeclared := own[name]
	d := typeDiff{Type: name}
	relation := schema.Same
	switch {
	case !isStored:
		relation, d.Difference = schema.Adds, "the type is not stored"
	case !isDeclared:
		relation, d.Difference = schema.Lacks, "the type is stored"
	case ownType.HasOtherForm(storedType):
		relation, d.Difference = schema.Differs, ownType.Difference(storedType)
	default:
		relation, d.Difference = ownType.Compare(storedType.WithoutBuilding())
	}
	d.Relation, d.Then = outcomes[relation][0], outcomes[relation][1]
	if builtin && isStored {
		d.Then = "it follows the stored schema, because it declares none"
	}
	if isStored {
		d.Stored = &storedType
	}
	if isDeclared {
		d.Here = &ownType
	}
	text := fmt.Sprintf("%s: %s: %s\n  %s", printable(name), d.Relation, cmp.Or(oneLine(d.Difference), "nothing differs"), d.Then)
	for _, side := range []struct {
		name string
		typ  *schema.Type
	}{{"stored", d.Stored}, {"here", d.Here}} {
		if side.typ != nil && !brief && relation != schema.Same {
			line, err := strictjson.Marshal(side.typ)
			if err != nil {
				return err
			}
			text += fmt.Sprintf("\n  %-6s  %s", side.name, line[:len(line)-1])
		}
	}
	return o.print(d, text)
}

func addToSchemaCommand(s *session) *cobra.Command {
	var f schema.Field
	var roles schema.Role
	var codec string
	var retire bool
	c := &cobra.Command{
		Use:   "add TYPE FIELD",
		Short: "Add a field, or a role of one, to the stored schema",
		Long: `Add a field to a type of the schema in force, or roles or a hold to an existing field, and convert
the entries. Other programs go on meanwhile: see 'userdb help schema apply'.`,
		Example: `  userdb schema add user city --role indexed
  userdb schema add user age --codec number --role ordered
  userdb schema add user customer --role identifier --pattern '^C[0-9]{4}$'
  userdb schema add user email --hold 90d --retire`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			f.Codec = schema.Codec(codec)
			if f.Pattern != "" {
				f.Kind = cmp.Or(f.Kind, "pattern")
			} else if f.Kind == "pattern" {
				return usagef("--kind pattern needs --pattern REGEXP")
			}
			in, err := migrate.StoredSchema(ctx, s.db)
			if _, has := in.Types[words[0]]; err == nil && !has {
				in = s.db.Schema()
			}
			if err != nil {
				return err
			}
			to, err := withField(in, words[0], words[1], f, roles)
			if err != nil {
				return err
			}
			if t := to.Types[words[0]]; retire {
				t.Retire = true
				to.Types[words[0]] = t
			}
			if err := s.migrateTo(ctx, to, false); err != nil || !roles.Has(schema.RoleSecondary) {
				return err
			}
			return s.noteOverlaps(to.Types[words[0]], words[1])
		}, unlimited, opened),
	}
	c.Flags().Func("role", "give it the role `R`: identifier (or secondary), indexed or ordered;\nmay be repeated", func(name string) error {
		var role schema.Role
		if text, err := json.Marshal(name); err != nil || role.UnmarshalJSON(text) != nil || role == 0 {
			return errors.New("want one of identifier, secondary, indexed, ordered")
		}
		roles |= role
		return nil
	})
	choiceFlag(c, &codec, "codec", "encode its values with `C` (default text)", "text", "date", "number", "json", "boolean", "null", "identity")
	choiceFlag(c, &f.Kind, "kind", "its values must be of kind `K`: email, email-dots, username, nickname,\nurl or pattern", "email", "email-dots", "username", "nickname", "url", "pattern")
	c.Flags().StringVar(&f.Pattern, "pattern", "", "its values must match `REGEXP` (RE2); ^ and $ anchor it")
	c.Flags().Func("hold", "for this `TIME`, such as 90d, nobody else can take a value that an entry\ngives up", func(text string) error {
		if err := f.Hold.UnmarshalText([]byte(text)); err != nil || f.Hold > 0 {
			return err
		}
		return errors.New("want a length of time such as 90d or 36h")
	})
	c.Flags().BoolVar(&retire, "retire", false, "never give the UID of a deleted entry of TYPE to another one")
	return c
}

// noteOverlaps prints which other identifiers can have the same value as a new one.
func (s *session) noteOverlaps(t schema.Type, field string) error {
	if s.JSON {
		return nil
	}
	pairs, err := validate.Check(t)
	if err = cmp.Or(err, s.out.flush()); err != nil {
		return err
	}
	var others []string
	for _, p := range pairs {
		switch {
		case p.Verdict == validate.Orthogonal:
		case p.A == field:
			others = append(others, printable(p.B))
		case p.B == field:
			others = append(others, printable(p.A))
		}
	}
	if len(others) == 0 {
		return nil
	}
	fmt.Fprintf(s.std.err, "userdb: note: values of %s may also fit %s: 'userdb schema check'\n", printable(field), strings.Join(others, ", "))
	return nil
}

// withField returns a schema that has only the type typ of old, with the field called name added to
// it. If the type already has the field, withField adds only the roles and the hold to the field.
func withField(old schema.Schema, typ, name string, declared schema.Field, roles schema.Role) (schema.Schema, error) {
	t, has := old.Types[typ]
	if !has {
		return schema.Schema{}, noTypeError(typ, old)
	}
	f, isField := t.Fields[name]
	_, record := t.Tertiary[name]
	switch {
	case record && !isField:
		return schema.Schema{}, usagef("%s is a tertiary record of type %s", printable(name), printable(typ))
	case name == t.Primary:
		return schema.Schema{}, usagef("%s is the primary field of type %s", printable(name), printable(typ))
	case isField && declared.Codec != "" && declared.Codec != t.Codec(name):
		return schema.Schema{}, usagef("%s already has the codec %s", printable(name), t.Codec(name))
	case isField && declared.Kind != "" && declared.Kind != f.Kind:
		return schema.Schema{}, usagef("%s already has the kind %s", printable(name), cmp.Or(f.Kind, "none"))
	case isField && declared.Pattern != "" && declared.Pattern != f.Pattern:
		return schema.Schema{}, usagef("%s already has the pattern %s", printable(name), printable(cmp.Or(f.Pattern, "none")))
	case !isField:
		f = declared
	}
	f.Role |= roles
	f.Hold = cmp.Or(declared.Hold, f.Hold)
	t.Fields = maps.Clone(t.Fields)
	if t.Fields == nil {
		t.Fields = map[string]schema.Field{}
	}
	t.Fields[name] = f
	to := schema.Schema{Types: map[string]schema.Type{typ: t}}
	return to, to.Validate()
}

func applySchemaCommand(s *session) *cobra.Command {
	var plan bool
	c := &cobra.Command{
		Use:   "apply",
		Short: "Apply a changed schema to the records",
		Long: `Change the records to fit the schema of --schema: new identifiers and indexes are made, those that
the schema no longer has are removed, and another fold takes effect. {"was":"OLDNAME"} in a field
renames it. If entries would then share an identifier, they are listed and nothing is changed: take
it from one of them with 'userdb unset', or with 'userdb set' under the schema in force. Further
values of a field that is removed or no longer an identifier become ~lost:FIELD.

If the schema only adds to the stored one, other programs go on. They maintain new fields and
indexes at once, and queries can use them when all entries are done. Otherwise nobody else can write
entries of the changed types until the change is done, even while it is interrupted; reads go on as
before. --plan marks such a change with STOPS WRITERS, and it needs --yes. A change may be stopped:
the same command continues it, also without --schema. On a cluster it first waits 15 s for other
programs to notice.

To remove a field, leave it out of what 'userdb schema show' prints. A name that is removed is
retired, which also needs --yes: programs that declare it are refused, running ones included, and
only this command brings it back. Without --schema it converts records to this program's version of
the canonical form, if they have another one.`,
		Example: `  userdb schema apply --plan --schema schema.json
  userdb schema apply --schema schema.json --yes`,
		RunE: s.readingIf(func() bool { return plan }, s.run(func(ctx context.Context, _ []string) error {
			return s.applySchema(ctx, plan)
		}, unlimited, opened)),
	}
	c.Flags().BoolVar(&plan, "plan", false, "only say what would be done")
	c.Flags().BoolVar(&s.yes, "yes", false, "do it, although it stops writers or retires names")
	return c
}

// changeText describes for people what happens to one type.
func changeText(tc migrate.TypeChange) string {
	what := cmp.Or(tc.What, "only the stored schema")
	if tc.UnderWay {
		what += " (under way)"
	}
	if tc.Online {
		what += " (while others write)"
	}
	text := printable(tc.Type) + ": " + what + ": no entries"
	if tc.Entries > 0 {
		text = fmt.Sprintf("%s: %s: %s, of which %d change; identifiers to write: %d",
			printable(tc.Type), what, plural(tc.Entries, "entry"), tc.Rewritten, tc.SRKs)
	}
	if tc.Stops && tc.Entries > 0 {
		text += "\nSTOPS WRITERS: nobody else can write entries of type " + printable(tc.Type) + " until it is done"
	}
	for _, name := range tc.Retired {
		text += "\nretires " + printable(name)
		if n := tc.RetiredValues[name]; n > 0 {
			text += ", which " + plural(n, "entry") + " " + map[bool]string{true: "has", false: "have"}[n == 1]
		}
		text += ": programs that declare it are refused from then on, running ones included"
	}
	for _, name := range slices.Sorted(maps.Keys(tc.LostValues)) {
		text += fmt.Sprintf("\nmoves %s of %s to ~lost:%[2]s, by which nobody is found", plural(tc.LostValues[name], "further value"), printable(name))
	}
	for _, c := range tc.Collisions {
		text += "\ncollision: " + oneLine(c.Reason)
	}
	return text
}

func (s *session) applySchema(ctx context.Context, plan bool) error {
	to, err := s.nextSchema(ctx)
	if err != nil {
		return err
	}
	return s.migrateTo(ctx, to, plan)
}

// migrateTo changes the records to fit a schema. If plan is set, it only prints what that would do.
func (s *session) migrateTo(ctx context.Context, to schema.Schema, plan bool) error {
	ch, err := migrate.Plan(ctx, s.db, to)
	if err != nil {
		return err
	}
	var collisions []migrate.Collision
	var stopped []string
	for _, tc := range ch.Types {
		collisions = append(collisions, tc.Collisions...)
		if tc.Stops {
			stopped = append(stopped, printable(tc.Type))
		}
		if err := s.out.print(tc, changeText(tc)); err != nil {
			return err
		}
	}
	switch {
	case len(ch.Types) == 0 && !s.JSON:
		return s.out.print(nil, "nothing to do: the records fit the schema")
	case len(collisions) > 0:
		return collisionError(collisions)
	case plan || len(ch.Types) == 0:
		return nil
	}
	if what := effectsToConfirm(ch.Types); what != "" && !s.yes {
		return usagef("nothing was changed, because this %s: add --yes to do it", what)
	}
	p := s.progress("applying", !s.JSON)
	err = ch.Apply(ctx, p.bar)
	p.clear()
	if err != nil && len(stopped) > 0 && !s.JSON {
		s.warnStopped(ctx, stopped)
	}
	if err != nil || s.JSON {
		return err
	}
	return s.out.print(nil, "applied")
}

// effectsToConfirm returns the effects of a schema change that a person should confirm. It returns
// "" if there are none, or if they were confirmed when the change began.
func effectsToConfirm(types []migrate.TypeChange) string {
	var what []string
	for _, tc := range types {
		if tc.UnderWay {
			return "" // it was confirmed when it began
		}
		if tc.Stops && tc.Entries > 0 {
			what = append(what, "stops writers of type "+printable(tc.Type))
		}
		if len(tc.Retired) > 0 {
			what = append(what, "retires "+printable(strings.Join(tc.Retired, ", ")))
		}
		if len(tc.LostValues) > 0 {
			what = append(what, "takes values from "+printable(strings.Join(slices.Sorted(maps.Keys(tc.LostValues)), ", ")))
		}
	}
	return strings.Join(what, " and ")
}

// maxCollisions limits the collisions of a type that a plan lists.
const maxCollisions = 1000

// collisionError returns the error about collisions, which says how to resolve them.
func collisionError(collisions []migrate.Collision) error {
	how := "take the value from one of them with 'userdb unset', or with 'userdb set' under the schema in force"
	if slices.ContainsFunc(collisions, func(c migrate.Collision) bool { return len(c.Entries) < 2 }) {
		how = "correct each entry with 'userdb set' or 'userdb unset' under the schema in force; 'userdb schema add' adds a field that it lacks"
	}
	number := plural(len(collisions), "collision")
	if len(collisions) >= maxCollisions {
		number += " or more"
	}
	return fmt.Errorf("%w: %s; nothing was changed: %s", migrate.ErrCollision, number, how)
}

// warnStopped warns if a change that did not finish still stops, or may stop, other programs from
// writing.
func (s *session) warnStopped(ctx context.Context, types []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace/2)
	defer cancel()
	begun, err := migrate.PendingSchema(ctx, s.db)
	for _, name := range types {
		_, pending := begun.Types[name]
		switch {
		case err != nil:
			fmt.Fprintf(s.std.err, "perhaps nobody else can write entries of type %s: see 'userdb status', and continue with 'userdb schema apply'\n", name)
		case pending:
			fmt.Fprintf(s.std.err, "the change is not done: nobody else can write entries of type %s until 'userdb schema apply' completes it\n", name)
		}
	}
}

// nextSchema returns the schema to change the records to: the schema of --schema, else that of a
// change that has begun, else the stored schema. It returns an error if the records already fit the
// stored schema, so that nothing is left to do.
func (s *session) nextSchema(ctx context.Context) (schema.Schema, error) {
	if sc, err := s.namedSchema(ctx, schema.Schema{}); err != nil || s.Schema != "" {
		return sc, err
	}
	begun, err := migrate.PendingSchema(ctx, s.db)
	if err != nil || len(begun.Types) > 0 {
		return begun, err
	}
	stored, err := migrate.StoredSchema(ctx, s.db)
	for _, t := range stored.Types {
		if t.WithCurrentForm().HasOtherForm(t) || t.Building != nil {
			return stored, err
		}
	}
	return stored, cmp.Or(err, usagef("no schema to apply: name one with --schema FILE; the records already fit the stored one"))
}
