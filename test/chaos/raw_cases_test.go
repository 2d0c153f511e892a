//go:build linux

package chaos

import (
	"strings"
	"testing"
)

func entryRecord(uid, name string) record {
	return record{kind: "hash", hash: map[string]string{
		"~isa": "user", "~prk": "user/uid:" + uid, "~rev": "r", "uid": uid, "name": strings.ToUpper(name), "~skv:name": name,
	}}
}

func srkRecord(uid string) record { return record{kind: "string", text: "user/uid:" + uid + " token"} }

// TestRaw checks that damage reports nothing for correct records, and the faults of others.
func TestRaw(t *testing.T) {
	const srk = "user/name:a+,b+_c+.++/~prk"
	value := "a/b c:+"
	for _, tt := range []struct {
		name, want string
		repaired   bool
		change     func(all map[string]record)
	}{
		{"correct records", "", true, func(map[string]record) {}},
		{"a tombstone", "", true, func(all map[string]record) {
			all["user/uid:x"] = record{kind: "hash", hash: map[string]string{"~rev": "r"}}
		}},
		{"two owners", "two owners", false, func(all map[string]record) {
			all["user/uid:2"] = entryRecord("2", value)
		}},
		{"no SRK", "I1", false, func(all map[string]record) { delete(all, srk) }},
		{"an SRK that names another entry", "I1", false, func(all map[string]record) { all[srk] = srkRecord("2") }},
		{"an entry without ~isa", "tombstone has the facet name", false, func(all map[string]record) { delete(all["user/uid:1"].hash, "~isa") }},
		{"a delete that is not finished", "", false, func(all map[string]record) { all["user/uid:1"].hash["~isa"] = "" }},
		{"a delete that is not finished after the repair", "tombstone has the facet name", true, func(all map[string]record) { all["user/uid:1"].hash["~isa"] = "" }},
		{"another UID", "I3", false, func(all map[string]record) { all["user/uid:1"].hash["uid"] = "2" }},
		{"another canonical form", "canonical form", false, func(all map[string]record) { delete(all["user/uid:1"].hash, "~skv:name") }},
		{"an SRK without effect", "", false, func(all map[string]record) { all["user/nick:"+escaped(value)+"/~prk"] = srkRecord("1") }},
		{"an SRK without effect after the repair", "does not have the value", true, func(all map[string]record) { all["user/nick:"+escaped(value)+"/~prk"] = srkRecord("1") }},
		{"tags without an entry after the repair", "its entry does not", true, func(all map[string]record) {
			all["user/uid:2/tags"] = record{kind: "set", members: []string{"a"}}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := map[string]record{"user/uid:1": entryRecord("1", value), srk: srkRecord("1"), "user/uid:1/tags": {kind: "set", members: []string{"a"}}}
			tt.change(all)
			found := strings.Join(damage(all, tt.repaired), "\n")
			if (tt.want == "") != (found == "") || !strings.Contains(found, tt.want) {
				t.Errorf("found %q, want %q", found, tt.want)
			}
		})
	}
	if got := unescaped(escaped("a+b /:{}")); got != "a+b /:{}" {
		t.Errorf("got %q, want \"a+b /:{}\"", got)
	}
}
