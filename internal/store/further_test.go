package store

import (
	"slices"
	"testing"

	"github.com/coffeenode/userdb/internal/store/token"
)

func TestFurther(t *testing.T) {
	for _, tt := range []struct {
		f    Further
		text string
	}{
		{Further{Field: "email", Canonical: "a", Written: "a", Position: 1}, "1 - -"},
		{Further{Field: "email", Canonical: "a", Written: "A", Position: -2, Verified: 7, Label: "work"}, "-2 7 work A"},
		{Further{Field: "email", Canonical: "a:b c", Written: " A:b  c", Position: 1, Label: "at home"}, "1 - at+_home  A:b  c"},
	} {
		if got := tt.f.Text(); got != tt.text {
			t.Errorf("%+v is stored as %q, want %q", tt.f, got, tt.text)
		}
		if got, ok := ParseFurther(tt.f.Name(), tt.text); !ok || got != tt.f {
			t.Errorf("%q is read as %+v, %v; want %+v", tt.text, got, ok, tt.f)
		}
	}
}

// TestUnreadableFurther checks that a further value whose text the store never writes counts as not
// verified, and as written in its canonical form.
func TestUnreadableFurther(t *testing.T) {
	for _, text := range []string{"", "1", "1 -", "x - -", "1 x -", "1 -7 -", "1 - +x", "01 - -", "1 - - a", "2000000000 - -", "1 07 -"} {
		f, ok := ParseFurther("~also:email:a", text)
		if ok || f.Written != "a" || f.Verified != 0 || f.Field != "email" || f.Canonical != "a" {
			t.Errorf("%q is read as %+v, %v, want the value \"a\" and false", text, f, ok)
		}
	}
}

// TestFurtherWithoutValue checks that a field whose name contains no value holds no further value.
func TestFurtherWithoutValue(t *testing.T) {
	fields := map[string]string{"email": "a", "~also:email:b": "1 - -"}
	for _, name := range []string{"~also:", "~also:email", "~also:email:", "~also::"} {
		fields[name] = "1 - - c"
		if f, ok := ParseFurther(name, fields[name]); ok || f.Canonical != "" || f.Written != "" {
			t.Errorf("%q is read as %+v, %v, want no value and false", name, f, ok)
		}
	}
	if all := FurtherIn(fields, ""); len(all) != 1 || all[0].Canonical != "b" {
		t.Errorf("the further values are %+v, want only b", all)
	}
}

// TestSetPositions checks the positions of values that are in a new order, or some of which are
// new.
func TestSetPositions(t *testing.T) {
	for _, tt := range []struct{ positions, want []int }{ // in positions, 0 stands for a new value
		{nil, nil},
		{[]int{0, 0}, []int{1, 2}},
		{[]int{1, 2, 0}, []int{1, 2, 3}},
		{[]int{0, 1, 2}, []int{0, 1, 2}},
		{[]int{1, 3, 2}, []int{0, 1, 2}},
		{[]int{5, 0, 0, 9, 0}, []int{5, 7, 8, 9, 10}},
	} {
		all := make([]Further, len(tt.positions))
		for i, position := range tt.positions {
			all[i].Position = position
		}
		SetPositions(all, func(i int) bool { return tt.positions[i] == 0 })
		var got []int
		for _, f := range all {
			got = append(got, f.Position)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("positions %v: got %v, want %v", tt.positions, got, tt.want)
		}
	}
}

func TestBonds(t *testing.T) {
	r := Record{Fields: map[string]string{"email": "a", "~also:email:b": "1 - - B"}}
	for _, tt := range []struct {
		bond, written string
		ok            bool
	}{
		{"email", "a", true},
		{"name", "", false},
		{token.Value{Field: "email", Written: "a"}.Bond(), "a", true},
		{token.Value{Field: "email", Written: "B"}.Bond(), "B", true},
		{token.Value{Field: "email", Written: "b"}.Bond(), "", false},
	} {
		if written, ok := r.BoundValue(tt.bond); written != tt.written || ok != tt.ok {
			t.Errorf("%s is bound to %q, %v; want %q, %v", tt.bond, written, ok, tt.written, tt.ok)
		}
	}
	if field, digest := ParseBond(token.Value{Field: "a:b", Written: "x"}.Bond()); field != "a:b" || digest != Verified("x") {
		t.Errorf("got %q, %q, want \"a:b\", %q", field, digest, Verified("x"))
	}
}
