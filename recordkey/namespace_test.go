package recordkey_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/recordkey"
)

func TestNamespaces(t *testing.T) {
	for _, row := range []struct {
		names        []string
		prefix, path string
	}{
		{nil, "", ""},
		{[]string{"acme"}, "~acme/", "acme"},
		{[]string{"acme", "eu"}, "~acme/~eu/", "acme/eu"},
		{[]string{"a b/c", "~", "\xff"}, "~a+_b+,c/~~/~+xff/", "a+_b+,c/~/+xff"},
	} {
		var ns recordkey.Namespace
		for _, name := range row.names {
			var err error
			if ns, err = ns.Sub(name); err != nil {
				t.Fatal(err)
			}
		}
		if ns.String() != row.prefix || ns.Path() != row.path {
			t.Errorf("%q: got %q and %q, want %q and %q", row.names, ns, ns.Path(), row.prefix, row.path)
		}
		if got := namespace(row.path); got != ns {
			t.Errorf("%q is read as %q, want %q", row.path, got, ns)
		}
	}
}

func TestNamespaceErrors(t *testing.T) {
	long := strings.Repeat("x", recordkey.MaxCrumb+1)
	deepest := namespace(strings.Repeat("n/", 15) + "n")
	sub := func(ns recordkey.Namespace, name string) error {
		_, err := ns.Sub(name)
		return err
	}
	read := func(path string) error {
		_, err := recordkey.ParseNamespace(path)
		return err
	}
	for _, row := range []struct {
		err  error
		want string
	}{
		{sub(recordkey.Namespace{}, ""), `recordkey.Sub: "" at byte 0: name is empty`},
		{sub(recordkey.Namespace{}, long), `recordkey.Sub: …"` + long[:80] + `" at byte 1024: name is over 1024 bytes`},
		{sub(deepest, "n"), `recordkey.Sub: "n" at byte 0: more than 16 levels`},
		{read("/"), `recordkey.ParseNamespace: "/" at byte 0: name is empty`},
		{read("acme/"), `recordkey.ParseNamespace: "acme/" at byte 5: name is empty`},
		{read("acme//eu"), `recordkey.ParseNamespace: "acme//eu" at byte 5: name is empty`},
		{read("ac me"), `recordkey.ParseNamespace: "ac me" at byte 2: " " must be written +_`},
		{read(long), `recordkey.ParseNamespace: "` + long[:80] + `"… at byte 0: name is over 1024 bytes`},
		{
			read(deepest.Path() + "/n"),
			`recordkey.ParseNamespace: "` + deepest.Path() + `/n" at byte 32: more than 16 levels`,
		},
	} {
		checkErr(t, row.err, row.want)
	}
	if k := parse("user/uid:x").In(deepest); parse(k.String()) != k {
		t.Error("the deepest namespace is not read back")
	}
}

// TestNamespacesDoNotOverlap checks that the keys of a namespace begin with its prefix, and that
// the keys of other namespaces do not.
func TestNamespacesDoNotOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := crumbs().Draw(t, "a"), crumbs().Draw(t, "b")
		inA, _ := recordkey.Namespace{}.Sub(a)
		k := keys().Draw(t, "key")
		inB, err := recordkey.Namespace{}.Sub(b)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(k.In(inB).String(), inA.String()) != (a == b) {
			t.Fatalf("%s has prefix %s, or lacks that of its own namespace", k.In(inB), inA)
		}
	})
}
