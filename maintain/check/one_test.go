package check_test

import (
	"slices"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/recordkey"
)

// notOfEntry lists the damage that a check of only the damaged entry does not report.
var notOfEntry = []string{
	"hash under a field that is not primary", "string under a field that is not primary", "shared in one field", "shared with a damaged entry",
	"SRK without an entry", "tertiary record without an entry", "tertiary record under a field that is not primary", "index member without an entry",
	"invalid index members", "key with raw braces", "key with an unescaped slash", "index of another Redis type",
	"undeclared index, member without an entry", "entry of an undeclared type",
	"a record of second factors without an entry", "endless tombstone", "a retired UID that ends", "a held value without an SRK", "a tombstone that expires before a value that it holds",
}

// wantOfEntry returns the problems that a check of only the damaged entry must report.
func wantOfEntry(d damage) []string {
	switch {
	case slices.Contains(notOfEntry, d.name):
		return nil
	case d.name == "shared, no SRK":
		return d.want[:1] // the second problem belongs to the other entry
	case slices.Contains(d.want, orphaned[5]): // the tags belong to no entry, so the entry is gone
		return concat(d.want, "entry_missing "+prk)
	}
	return d.want
}

func TestCheckOneByHints(t *testing.T) {
	s := newSite(testdb.Open(t, testdb.EmbeddedClient(t), recordkey.Namespace{}, testdb.DefaultSchema()))
	s.Clean(t)
	s.User(t, 1)
	s.Do(t, "HSET", "user/uid:u0", "uid", "x")
	s.Do(t, "SET", "user/name:gone/~prk", "user/uid:gone")
	s.Do(t, "SET", "user/email:name+_of+_u0/~prk", "user/uid:u1")
	s.Do(t, "SET", "user/name:rubbish/~prk", "rubbish")
	key := func(text string) hints.Hint { return hints.Key(testdb.Must(recordkey.Parse(text))) }
	primary, stale := "primary_wrong user/uid:u0", "srk_stale user/email:name+_of+_u0/~prk"
	for _, tt := range []struct {
		what string
		h    hints.Hint
		want []string
	}{
		{"UID", hints.UID("u0").Of("user"), []string{primary, stale}},
		{"PRK", key("user/uid:u0"), []string{primary, stale}},
		{"SRK", key("user/email:u0@x.org/~prk"), []string{primary, stale}},
		{"field", hints.Field("name", "NAME of  u0").Of("user"), []string{primary, stale}},
		{"any field, two entries", hints.Any("name of u0").Of("user"), []string{primary, stale}},
		{"an unknown UID", hints.UID("nobody").Of("user"), []string{"entry_missing user/uid:nobody"}},
		{"an unknown value", hints.Field("name", "nobody").Of("user"), []string{"entry_missing user/name:nobody/~prk"}},
		{"an unknown value, any field", hints.Any("nobody").Of("user"), []string{"entry_missing user/email:nobody/~prk"}},
		{"a value that no field accepts", hints.Any("http://x").Of("user"), []string{"entry_missing user/email:http+.+,+,x/~prk"}},
		{"an SRK without an entry", hints.Field("name", "gone").Of("user"), []string{"entry_missing user/name:gone/~prk", "srk_orphan user/name:gone/~prk"}},
		{"an invalid SRK", hints.Field("name", "rubbish").Of("user"), []string{"entry_missing user/name:rubbish/~prk", "srv_unparsable user/name:rubbish/~prk"}},
		{"another type", hints.UID("1").Of("firm"), nil},
	} {
		t.Run(tt.what, func(t *testing.T) {
			testdb.Same(t, "reported", s.Check(t, check.Options{Only: tt.h}), tt.want)
		})
	}
}
