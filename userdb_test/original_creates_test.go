package userdb_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A call is one call of create_user in the original, the npm package coffeenode-userdb.
type call struct {
	Call    string
	Entry   map[string]any
	Outcome struct {
		OK  bool
		UID string
	}
	Overwrote []string
	record    map[string]string // what the call wrote, from the fixture
}

// successfulCalls returns the calls of the original that succeeded.
func successfulCalls(t *testing.T) []call {
	t.Helper()
	written := map[string]fixture{}
	for _, f := range readLines[fixture](t, "original_fixture.jsonl") {
		if f.Type == "hash" {
			written[f.From] = f
		}
	}
	made := slices.DeleteFunc(readLines[call](t, "original_creates.jsonl"), func(c call) bool { return !c.Outcome.OK })
	for i := range made {
		f, ok := written[made[i].Call]
		if !ok {
			t.Fatalf("%s wrote nothing", made[i].Call)
		}
		made[i].record = f.fields(t)
	}
	return made
}

// createDeviations lists the calls that the original accepted and the store refuses.
var createDeviations = []deviation{
	{call: "create_user#44 ", what: "create", got: "name", reason: "a secondary value is at most 1 KiB"},
	{call: "create_user#90 ", what: "create", got: "name", reason: "a secondary value is not empty"},
	{call: "create_user#98 ", what: "create", got: "email", reason: "a secondary value is not empty"},
	{call: "create_user#72 ", what: "create", got: "rating", reason: "invalid JSON is refused; the original wrote values that it could not read"},
	{call: "create_user#82 ", what: "create", got: "", reason: "a facet has a name"},
	{call: "create_user#108 ", what: "create", got: "password", reason: over72},
	{call: "create_user#109 ", what: "create", got: "password", reason: over72},
	{call: "create_user#111 ", what: "create", got: "name", reason: "the value is another entry's e-mail address (I2); the original accepted it"},
}

// newEntry returns an entry with the values that the original wrote and the password of the call.
func (c call) newEntry(t *testing.T, typ schema.Type) (userdb.NewEntry, error) {
	t.Helper()
	n := userdb.NewEntry{UID: c.Outcome.UID, Facets: schema.Facets{}}
	for field, wire := range c.record {
		switch {
		case field == "password" || field == typ.Primary || field == "~isa" || field == "~prk":
			continue
		}
		v, err := schema.Decode(typ.Codec(field), wire)
		if err != nil {
			return n, &userdb.FieldError{Err: userdb.ErrInvalid, Field: field}
		}
		n.Facets[field] = v
	}
	if text, ok := c.Entry["password"].(string); ok {
		n.Password = text
	}
	return n, nil
}

// fieldOf returns the field that an error is about.
func fieldOf(err error) string {
	var fe *userdb.FieldError
	switch {
	case errors.As(err, &fe):
		return fe.Field
	case errors.Is(err, password.ErrPolicy):
		return "password"
	}
	return "unknown: " + err.Error()
}

// TestOriginalCreates repeats the calls that the original accepted. Apart from createDeviations,
// the store must accept them and write the same records as the original. After that, no other entry
// can take any of the values.
func TestOriginalCreates(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		db := s.open(userdb.Options{Schema: originalSchema(t)})
		users, typ := typeOf(t, db, "user"), db.Schema().Types["user"]
		allowed := deviations(slices.Clone(createDeviations))
		var created []call
		for _, c := range successfulCalls(t) {
			n, err := c.newEntry(t, typ)
			if err == nil {
				_, err = users.Create(t.Context(), n)
			}
			if err != nil {
				if !allowed.allow(c.Call, "create", fieldOf(err)) {
					t.Errorf("%s: %v", abbreviate(c.Call), err)
				}
				continue
			}
			if len(c.Overwrote) > 0 {
				t.Errorf("%s: accepted, although its values belong to %v", abbreviate(c.Call), c.Overwrote)
			}
			created = append(created, c)
		}
		allowed.wantAllUsed(t)
		s.wantAsWritten(created)
		s.wantRefusedAgain(users, typ, created)
	})
}

// wantAsWritten checks that the stored entries equal the ones that the original wrote, apart from
// the password hash and the store's own fields.
func (s *site) wantAsWritten(created []call) {
	s.t.Helper()
	records := s.dump(s.t.Context())
	for _, c := range created {
		got := maps.Clone(records["user/uid:"+c.Outcome.UID].fields)
		want := maps.Clone(c.record)
		if text, ok := c.Entry["password"].(string); ok && text != "" && got["password"] == "" {
			s.t.Errorf("%s: no password", abbreviate(c.Call))
		}
		for own := range got {
			if _, original := want[own]; own == "password" || strings.HasPrefix(own, "~") && !original {
				delete(got, own)
			}
		}
		delete(want, "password")
		if !maps.Equal(got, want) {
			s.t.Errorf("%s:\ngot  %q\nwant %q", abbreviate(c.Call), got, want)
		}
	}
}

// wantRefusedAgain repeats every call for another entry. Each must be refused, and must write
// nothing.
func (s *site) wantRefusedAgain(users *userdb.Type, typ schema.Type, created []call) {
	s.t.Helper()
	s.wantUnchanged("the second calls", func() {
		for _, c := range created {
			n, err := c.newEntry(s.t, typ)
			must(s.t, err)
			n.UID, n.Password = "", ""
			_, err = users.Create(s.t.Context(), n)
			wantField(s.t, abbreviate(c.Call), err, userdb.ErrDuplicate, "email")
			delete(n.Facets, "email")
			if n.Facets["name"].Text() == "" {
				continue
			}
			_, err = users.Create(s.t.Context(), n)
			wantField(s.t, abbreviate(c.Call), err, userdb.ErrDuplicate, "name")
			n.Facets["email"], n.Facets["name"] = n.Facets["name"], schema.Text("fresh")
			_, err = users.Create(s.t.Context(), n)
			wantField(s.t, "its name as e-mail address: "+abbreviate(c.Call), err, userdb.ErrDuplicate, "email")
			n.Facets = schema.Texts("name", "fresh")
			n.UID = c.Outcome.UID
			_, err = users.Create(s.t.Context(), n)
			wantField(s.t, abbreviate(c.Call)+" UID", err, userdb.ErrDuplicate, "uid")
		}
	})
}
