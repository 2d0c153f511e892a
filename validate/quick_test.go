package validate

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/schema"
)

// quickKinds lists the kinds that have a quick function.
var quickKinds = []string{"email", "username", "nickname"}

// quickExprs match exactly the values that the quick functions accept.
var quickExprs = map[string]*regexp.Regexp{
	"username": regexp.MustCompile(`^[a-z][a-z0-9._-]*$`),
	"nickname": regexp.MustCompile(`^[a-z][a-z0-9._-]*(?: (?:[a-z][a-z0-9._-]*|[0-9]+))*$`),
	"email": regexp.MustCompile(`^[a-z0-9]+(?:[_-]+[a-z0-9]+)*(?:\.[a-z0-9]+(?:[_-]+[a-z0-9]+)*)*` +
		`@[a-z0-9]+(?:-[a-z0-9]+)*(?:\.[a-z0-9]+(?:-[a-z0-9]+)*)*$`),
}

// TestQuickRulesAcceptOnlyValidValues checks that a value that the quick function of a kind accepts
// also satisfies its refuse function and its expressions.
func TestQuickRulesAcceptOnlyValidValues(t *testing.T) {
	values := rapid.OneOf(
		rapid.StringMatching(`[a-z0-9@. _-]{0,12}`),
		rapid.StringMatching(`[a-z0-9]{1,5}([-._ ][a-z0-9]{0,4}){0,3}(@[a-z0-9]{1,5}([-.][a-z0-9]{0,4}){0,3})?`),
		rapid.StringN(0, 8, -1),
	)
	for _, name := range quickKinds {
		for _, fold := range []schema.Fold{schema.FoldExact, schema.FoldCasefold} {
			typ := fields(fold, map[string]schema.Field{"f": ofKind(name)})
			r := mustCompile(t, typ).fields["f"]
			check := func(t rapid.TB, value string) (accepted bool) {
				if got, want := r.kind.quick(value), quickExprs[name].MatchString(value); got != want {
					t.Fatalf("%s: %q is accepted: got %v, want %v", name, value, got, want)
				}
				if !r.kind.acceptsQuickly(value) {
					return false
				}
				if typ.Canonical(value) != value {
					t.Fatalf("%s: %q is accepted, but is not canonical", name, value)
				}
				if reason := r.kind.refuse(value); reason != "" {
					t.Fatalf("%s: %q is accepted, but refuse returns %q", name, value, reason)
				}
				for _, p := range r.parts {
					if !p.accepts(value) {
						t.Fatalf("%s: %q is accepted, but an expression refuses it: %s", name, value, p.reason)
					}
				}
				return true
			}
			rapid.Check(t, func(t *rapid.T) { check(t, values.Draw(t, "value")) })
			accepted := 0
			for seed := range 500 { // the same in every run
				if check(t, values.Example(seed)) {
					accepted++
				}
			}
			if accepted < 5 {
				t.Errorf("%s: %d values were accepted: the test proves too little", name, accepted)
			}
		}
	}
}

// TestQuickRules checks that the quick functions accept common values, and leave long and unusual
// ones to refuse.
func TestQuickRules(t *testing.T) {
	long := strings.Repeat("a", 70)
	for _, tt := range []struct {
		kind, value string
		want        bool
	}{
		{"email", "alice@hotmail.com", true},
		{"email", "alice.b_c-d@mail.example-one.org", true},
		{"email", long + "@x.org", false},
		{"email", "a@" + long + ".org", false},
		{"email", "a@xn--mnchen-3ya.de", false},
		{"email", ".a@x.org", false},
		{"email", "a..b@x.org", false},
		{"email", "a@x.org-", false},
		{"email", "a@b@c", false},
		{"email", "@", false},
		{"email", "", false},
		{"username", "alice_1", true},
		{"username", "1234567", false},
		{"username", "alice smith", false},
		{"nickname", "alice smith", true},
		{"nickname", "user number 17", true},
		{"nickname", "alice  smith", false},
		{"nickname", "1 alice", false},
		{"nickname", "", false},
		{"nickname", "http://x", false},
	} {
		r := mustCompile(t, fields(schema.FoldCasefold, map[string]schema.Field{"f": ofKind(tt.kind)})).fields["f"]
		if got := r.kind.acceptsQuickly(tt.value); got != tt.want {
			t.Errorf("%s %q: got %v, want %v", tt.kind, tt.value, got, tt.want)
		}
	}
}
