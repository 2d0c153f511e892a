package hints_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// list returns the JSON of a list of strings.
func list(texts ...string) string {
	b, err := json.Marshal(texts)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// object returns the JSON of an entry with the given facets.
func object(pairs ...string) string {
	facets := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		facets[pairs[i]] = pairs[i+1]
	}
	b, err := json.Marshal(facets)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// values generates texts, many of which contain special characters of keys, hints and patterns.
func values() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringN(1, 20, 100),
		rapid.StringOfN(rapid.SampledFrom([]rune(` +/:{}~*?[]^-\=",AaÄ　`)), 1, 12, -1),
	)
}

func resolved(t *rapid.T, h hints.Hint, view string) (hints.Target, bool) {
	target, err := h.Resolve(twoTypes(), view)
	if err != nil && err.Error() == "" {
		t.Fatal("the error has no text")
	}
	return target, err == nil
}

func parsed(t *rapid.T, text string) hints.Hint {
	h, err := hints.Parse(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return h
}

// TestSecondaryFormsAgree checks that all forms of a hint with a secondary value have the same
// target.
func TestSecondaryFormsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := values().Draw(t, "value")
		want, ok := resolved(t, hints.Field("name", value), "user")
		for _, h := range []hints.Hint{
			hints.Field("name", value).Of("user"),
			hints.Facets(schema.Texts("name", value)),
			parsed(t, "name="+value),
			parsed(t, list("name", value)),
			parsed(t, list("user", "name", value)),
			parsed(t, object("~isa", "user", "name", value)),
		} {
			if got, gotOK := resolved(t, h, "user"); gotOK != ok || !reflect.DeepEqual(got, want) {
				t.Fatalf("%q as %s: got %+v, %v, want %+v, %v", value, h, got, gotOK, want, ok)
			}
		}
		k, err := recordkey.SRK("user", "name", value)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range []hints.Hint{hints.Key(k), parsed(t, k.String()), parsed(t, list("user", "name", value))} {
			if got, gotOK := resolved(t, h, ""); gotOK != ok || !reflect.DeepEqual(got, want) {
				t.Fatalf("%q as %s: got %+v, %v, want %+v, %v", value, h, got, gotOK, want, ok)
			}
		}
	})
}

func TestPrimaryFormsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		uid := values().Draw(t, "uid")
		k, err := recordkey.PRK("user", "uid", uid)
		if err != nil {
			t.Fatal(err)
		}
		want := hints.Target{Type: "user", Field: "uid", Value: uid, Keys: []recordkey.Key{k}}
		for _, h := range []hints.Hint{
			hints.UID(uid).Of("user"),
			hints.Field("uid", uid).Of("user"),
			hints.Key(k),
			parsed(t, k.String()),
			parsed(t, list("user", uid)),
			parsed(t, list("user", "uid", uid)),
			parsed(t, object("~isa", "user", "uid", uid)),
			parsed(t, object("~isa", "user", "~prk", k.String())),
			parsed(t, object("~isa", "user", "~prk", k.String(), "uid", uid, "name", " ")),
		} {
			if got, ok := resolved(t, h, ""); !ok || !reflect.DeepEqual(got, want) {
				t.Fatalf("%q as %s: got %+v, %v, want %+v", uid, h, got, ok, want)
			}
		}
	})
}

// TestAnyIsEveryField checks that Any has the keys that Field has for each secondary field, and
// that these keys resolve to the same value.
func TestAnyIsEveryField(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := values().Draw(t, "value")
		all, ok := resolved(t, hints.Any(value), "user")
		for i, field := range []string{"email", "name"} {
			one, oneOK := resolved(t, hints.Field(field, value), "user")
			if ok != oneOK {
				t.Fatalf("%q resolves as any field: %v, but as %s: %v", value, ok, field, oneOK)
			}
			if !ok {
				continue
			}
			if all.Keys[i] != one.Keys[0] || all.Value != one.Value {
				t.Fatalf("%q resolves as any field to %+v, but as %s to %+v", value, all, field, one)
			}
			if again, ok := resolved(t, hints.Key(one.Keys[0]), "user"); !ok || !reflect.DeepEqual(again, one) {
				t.Fatalf("%q: the key %s resolves to %+v, want %+v", value, one.Keys[0], again, one)
			}
		}
	})
}

// TestAsAgreesWithResolve checks that AsEntry and AsUser agree with Resolve for declared fields.
func TestAsAgreesWithResolve(t *testing.T) {
	s := twoTypes()
	rapid.Check(t, func(t *rapid.T) {
		field := rapid.SampledFrom([]string{"uid", "name", "email"}).Draw(t, "field")
		value := values().Draw(t, "value")
		target, ok := resolved(t, hints.Field(field, value), "user")
		entry, entryErr := hints.AsEntry(s, []byte(list("user", field, value)))
		user, userErr := hints.AsUser(s, "user", []byte(list(field, value)))
		if (entryErr == nil) != ok || (userErr == nil) != ok || entry != user {
			t.Fatalf("%s=%q: %v, %v and %v, want %v", field, value, entryErr, userErr, entry, ok)
		}
		if !ok {
			return
		}
		want, _ := json.Marshal(target)
		if got, _ := json.Marshal(entry); string(got) != string(want) {
			t.Fatalf("%s=%q: got %s, want %s", field, value, got, want)
		}
	})
}
