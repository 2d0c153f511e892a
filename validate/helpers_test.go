package validate

import (
	"testing"

	"github.com/coffeenode/userdb/schema"
)

// fields returns a type with the given secondary fields.
func fields(fold schema.Fold, fs map[string]schema.Field) schema.Type {
	t := schema.Type{Primary: "uid", Fold: fold, Fields: make(map[string]schema.Field)}
	for name, f := range fs {
		f.Role = schema.RoleSecondary
		t.Fields[name] = f
	}
	return t
}

func pattern(expr string) schema.Field { return schema.Field{Pattern: expr} }

func ofKind(name string) schema.Field { return schema.Field{Kind: name} }

func mustCompile(tb testing.TB, t schema.Type) *Rules {
	tb.Helper()
	r, err := Compile(t)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// verdictOn returns the result of Check for the fields a and b.
func verdictOn(tb testing.TB, fold schema.Fold, a, b schema.Field) Pair {
	tb.Helper()
	pairs, err := Check(fields(fold, map[string]schema.Field{"a": a, "b": b}))
	if err != nil {
		tb.Fatal(err)
	}
	if len(pairs) != 1 || pairs[0].A != "a" || pairs[0].B != "b" {
		tb.Fatalf("got pairs %+v, want one pair, of a and b", pairs)
	}
	return pairs[0]
}

// text returns the text of err, or "" if err is nil.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
