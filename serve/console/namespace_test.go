package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// inNamespace returns a console of another namespace of the same store, with an operator but nobody
// signed in.
func (d *testConsole) inNamespace(path, operator string) *testConsole {
	d.t.Helper()
	ns, err := recordkey.ParseNamespace(path)
	must(d.t, err)
	db, err := d.db.In(ns)
	must(d.t, err)
	_, err = admin.AddOperator(d.t.Context(), db, operator, goodPassword)
	must(d.t, err)
	return newTestConsole(d.t, db)
}

// TestNamespaces checks that operators, keys and jobs belong to the namespace in which they were
// created, and that operators of the root see all.
func TestNamespaces(t *testing.T) {
	eachStore(t, func(t *testing.T, root *testConsole) {
		a, b := root.inNamespace("a", "Anna"), root.inNamespace("b", "Bert")
		a.signIn("anna", goodPassword)
		b.signIn("bert", goodPassword)

		for name, d := range map[string]*testConsole{"anna": b, "bert": a, "Anna": root} {
			other := d.newBrowser()
			other.wantText(other.do(http.StatusUnauthorized, "/console/signin", "name", name, "password", goodPassword), "Wrong name or password.")
		}
		attacker := b.newBrowser()
		attacker.client.Jar = a.client.Jar // browsers send cookies to all ports of a host
		if to := attacker.do(http.StatusSeeOther, "/console/keys"); !strings.HasPrefix(to, "/console/signin?") {
			t.Errorf("a session of another namespace redirects to %q, want the sign-in page", to)
		}
		chief := a.newBrowser()
		chief.signIn(operatorName, goodPassword)

		for name, d := range map[string]*testConsole{"key-a": a, "key-b": b, "key-root": root} {
			d.wantText(d.do(http.StatusOK, "/console/keys", "name", name, "scope", "read"), "The key "+name+" has been created.")
		}
		mine := b.do(http.StatusOK, "/console/keys")
		b.wantText(mine, "key-b")
		b.wantNoText(mine, "key-a", "key-root")
		for _, all := range []string{root.do(http.StatusOK, "/console/keys"), chief.do(http.StatusOK, "/console/keys")} {
			root.wantText(all, "key-a", "key-b", "key-root")
		}
		b.do(http.StatusNotFound, "/console/keys/revoke", "name", "key-a")
		root.wantText(root.do(http.StatusOK, "/console/keys"), "key-a")
		root.do(http.StatusSeeOther, "/console/keys/revoke", "name", "key-a")
		root.wantNoText(root.do(http.StatusOK, "/console/keys"), "key-a")

		job := a.post(http.StatusSeeOther, "/console/check")
		a.waitForJob(job)
		b.do(http.StatusNotFound, job)
		b.post(http.StatusNotFound, job+"/stop")
		b.wantNoText(b.do(http.StatusOK, "/console/check"), "by Anna")
		root.wantText(root.do(http.StatusOK, "/console/check"), "by Anna")
		root.do(http.StatusOK, job)
	})
}

// TestSetupInNamespace checks that a set-up link is valid only at the console of the namespace for
// which it was made.
func TestSetupInNamespace(t *testing.T) {
	for _, owner := range []string{"", "a", "a/b"} {
		root, err := userdb.Open(t.Context(), "memory:", userdb.Options{Schema: testSchema()})
		must(t, err)
		t.Cleanup(func() { must(t, root.Close()) })
		consoles, dbs := map[string]*testConsole{}, map[string]*userdb.DB{}
		for _, path := range []string{"", "a", "a/b", "b"} {
			ns, err := recordkey.ParseNamespace(path)
			must(t, err)
			dbs[path] = root
			if path != "" {
				dbs[path], err = root.In(ns)
				must(t, err)
			}
			consoles[path] = newTestConsole(t, dbs[path])
		}
		token, err := admin.BeginSetup(t.Context(), dbs[owner])
		must(t, err)
		for path, d := range consoles {
			if path == owner {
				continue
			}
			d.do(http.StatusGone, "/console/setup?token="+token)
			d.do(http.StatusGone, "/console/setup", "token", token, "name", "mallory", "password", goodPassword)
		}
		d := consoles[owner]
		d.do(http.StatusSeeOther, "/console/setup", d.fillForm(d.do(http.StatusOK, "/console/setup?token="+token), "/console/setup", "name", "root", "password", goodPassword)...)
		operators, err := admin.Operators(root)
		must(t, err)
		for e, err := range operators.All(t.Context(), userdb.Query{}) {
			must(t, err)
			if got := e.Text(admin.OperatorNamespace); e.Text(admin.OperatorName) != "root" || got != owner {
				t.Errorf("the link of %q made %q in %q, want root in the namespace of the link", owner, e.Text(admin.OperatorName), got)
			}
		}
	}
}

// TestWithoutNamespace checks that operators who were created before there were namespaces belong
// to the root, and which records operators of a namespace see.
func TestWithoutNamespace(t *testing.T) {
	d := open(t, "memory:")
	operators, err := admin.Operators(d.db)
	must(t, err)
	for e, err := range operators.All(t.Context(), userdb.Query{}) {
		if _, has := e.Get(admin.OperatorNamespace); err != nil || has {
			t.Errorf("an operator of the root is stored as %v, %v; want no namespace", e.Facets(), err)
		}
	}
	for by, sees := range map[string]bool{"": true, "a": false, "ab": false, "a/b": false} {
		if admin.CanSee(by, "") != sees {
			t.Errorf("an operator of %q sees what belongs to the root: %v, want %v", by, !sees, sees)
		}
	}
	for owner, seen := range map[string]bool{"a": true, "a/b": true, "ab": false, "b": false} {
		if admin.CanSee("a", owner) != seen {
			t.Errorf("an operator of the namespace a sees what belongs to %q: %v, want %v", owner, !seen, seen)
		}
	}
}

// TestOperatorsOfNamespace checks that an operator of a namespace sees its operators, even if many
// others come before them, and that the page says when some are left out.
func TestOperatorsOfNamespace(t *testing.T) {
	defer func(before int) { maxOperatorsRead = before }(maxOperatorsRead)
	d := open(t, "memory:")
	operators, err := admin.Operators(d.db)
	must(t, err)
	add := func(name, ns string) {
		t.Helper()
		_, err := operators.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts(admin.OperatorName, name, admin.OperatorNamespace, ns)})
		must(t, err)
	}
	for i := range maxOperatorsShown {
		add(fmt.Sprintf("aa%03d", i), "b")
	}
	add("Yann", "a")
	zoe := d.inNamespace("a", "Zoe")
	zoe.signIn("Zoe", goodPassword)
	page := zoe.do(http.StatusOK, "/console/operators")
	zoe.wantText(page, "Yann")
	zoe.wantNoText(page, "aa000", "Not all operators are shown")
	page = d.do(http.StatusOK, "/console/operators")
	d.wantText(page, "aa199", "Not all operators are shown")
	d.wantNoText(page, "Yann")
	maxOperatorsRead = 10
	zoe.wantText(zoe.do(http.StatusOK, "/console/operators"), "Not all operators are shown")
}
