package userdb_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// originalDir holds records that the original wrote, and its answers. The original is the npm
// package coffeenode-userdb 0.0.10, whose records this store reads and writes.
const originalDir = "../test/testdata/original"

// originalSchema returns the schema of the original's own options.json.
func originalSchema(t *testing.T) schema.Schema {
	t.Helper()
	f, err := os.Open(filepath.Join(originalDir, "original_options.json"))
	must(t, err)
	defer f.Close()
	s, err := schema.Load(f)
	must(t, err)
	return s
}

// readLines reads a file of JSON lines.
func readLines[T any](t *testing.T, name string) []T {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(originalDir, name))
	must(t, err)
	var all []T
	scanner := bufio.NewScanner(bytes.NewReader(text))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var one T
		if err := json.Unmarshal(scanner.Bytes(), &one); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, one)
	}
	must(t, scanner.Err())
	if len(all) == 0 {
		t.Fatalf("%s is empty", name)
	}
	return all
}

// A fixture is one record that the original wrote.
type fixture struct {
	Key, Type, From string
	Value           json.RawMessage
	Clear           json.RawMessage `json:"password_clear"`
}

// fields returns the fields of a hash.
func (f fixture) fields(t *testing.T) map[string]string {
	t.Helper()
	var fields map[string]string
	must(t, json.Unmarshal(f.Value, &fields))
	return fields
}

// clear returns the password that was hashed, and whether it was a text.
func (f fixture) clear() (string, bool) {
	var text string
	if json.Unmarshal(f.Clear, &text) != nil {
		return string(f.Clear), false
	}
	return text, true
}

// loadOriginal writes the original's records, without any checks.
func (s *site) loadOriginal() map[string]fixture {
	s.t.Helper()
	ctx := s.t.Context()
	all := map[string]fixture{}
	for _, f := range readLines[fixture](s.t, "original_fixture.jsonl") {
		all[f.Key] = f
		switch f.Type {
		case "hash":
			must(s.t, s.raw.HSet(ctx, f.Key, f.fields(s.t)).Err())
		case "string":
			var text string
			must(s.t, json.Unmarshal(f.Value, &text))
			must(s.t, s.raw.Set(ctx, f.Key, text, 0).Err())
		default:
			s.t.Fatalf("%s: a %s", f.Key, f.Type)
		}
	}
	return all
}

// An answer is a result of the original: a value with its JavaScript types, or an error.
type answer struct {
	Result json.RawMessage
	Error  string
}

// fromJavaScript converts the original's encoding of JavaScript values to the JSON of this store.
func fromJavaScript(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if text, ok := single(v, "$date"); ok {
			return text
		}
		if text, ok := single(v, "$num"); ok {
			return text
		}
		out := map[string]any{}
		for k, x := range v {
			out[k] = fromJavaScript(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = fromJavaScript(v[i])
		}
		return out
	}
	return v
}

// single returns the value of name, and whether v has that name and no other.
func single(v map[string]any, name string) (any, bool) {
	x, ok := v[name]
	return x, ok && len(v) == 1
}

func parseJSON(t *testing.T, raw []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}

// abbreviate abbreviates a text for a message.
func abbreviate(s string) string {
	if len(s) > 60 {
		s = strconv.Itoa(len(s)) + " bytes: " + s[:60]
	}
	if !utf8.ValidString(s) {
		return strconv.QuoteToASCII(s)
	}
	return s
}

// A read holds the original's answers when it read one entry.
type read struct {
	Key, From    string
	GetUser      answer `json:"get_user"`
	Authenticate answer
	Wrong        answer `json:"authenticate_wrong"`
}

// A deviation describes an answer that deliberately differs from the original's.
type deviation struct {
	call, what, got, reason string
	used                    bool
}

const (
	braces   = "a brace is escaped, so that no value chooses its cluster slot; the original's SRK counts as damage"
	spaces   = "white space other than the space is escaped; the original's SRK counts as damage"
	shared   = "the original let a second entry take the value as a name; it identifies nobody until that is repaired (I2)"
	nothing  = "an empty value identifies nobody"
	notText  = "only a text is a password; the original accepts anything"
	over72   = "the original cuts passwords over 72 bytes, the store refuses them"
	accepted = "accepted"
	refused  = "refused"
)

var readDeviations = []deviation{
	{call: "create_user#3 ", what: "by email", got: refused, reason: shared},
	{call: "create_user#111 ", what: "by name", got: refused, reason: shared},
	{call: "create_user#25 ", what: "by name", got: refused, reason: braces},
	{call: "create_user#26 ", what: "by name", got: refused, reason: braces},
	{call: "create_user#36 ", what: "by name", got: refused, reason: spaces},
	{call: "create_user#39 ", what: "by name", got: refused, reason: spaces},
	{call: "create_user#40 ", what: "by name", got: refused, reason: spaces},
	{call: "create_user#44 ", what: "by name", got: refused, reason: "a part of a key is at most 1 KiB"},
	{call: "create_user#90 ", what: "by name", got: refused, reason: nothing},
	{call: "create_user#98 ", what: "by email", got: refused, reason: nothing},
	{call: "create_user#91 ", what: "by name", got: refused, reason: "the original wrote a facet without its SRK (I1)"},
	{call: "create_user#103 ", what: "right password", got: refused, reason: notText},
	{call: "create_user#104 ", what: "right password", got: refused, reason: notText},
	{call: "create_user#107 ", what: "wrong password", got: refused, reason: over72},
	{call: "create_user#108 ", what: "right password", got: refused, reason: over72},
	{call: "create_user#108 ", what: "wrong password", got: refused, reason: over72},
	{call: "create_user#109 ", what: "right password", got: refused, reason: over72},
	{call: "create_user#109 ", what: "wrong password", got: refused, reason: over72},
}

// originalDamage lists the damage that audit finds in the original's records.
var originalDamage = []string{
	"I1 user/name:+(user+)/~prk", "I1 user/name:+(x+)/~prk", "I4 user/name:{user}/~prk", "I4 user/name:{x}/~prk",
	"I1 user/name:tab+x09here/~prk", "I4 user/name:tab\there/~prk",
	"I1 user/name:nbsp+xc2+xa0x/~prk", "I4 user/name:nbsp\u00a0x/~prk",
	"I1 user/name:ideographic+xe3+x80+x80space/~prk", "I4 user/name:ideographic\u3000space/~prk",
	"I1 user/uid:e8c5c50ed6ef", "I4 user/name:" + strings.Repeat("x", 5000) + "/~prk",
	"I1 user/name:undefined/~prk", "I4 user/name:/~prk", "I4 user/email:/~prk",
	"I1 user/uid:b737fbd36b62", "I1 user/uid:19a7206df8ca", "I0 user/uid:bd897df88169",
	"I2 user/name:alice@hotmail.com/~prk",
}

// deviations lists the answers that differ from the original's. wantAllUsed fails the test if one
// of them did not differ.
type deviations []deviation

// allow reports whether a difference is in the list, and marks it as used.
func (ds deviations) allow(call, what, got string) bool {
	for i := range ds {
		if strings.HasPrefix(call+" ", ds[i].call) && ds[i].what == what && ds[i].got == got {
			ds[i].used = true
			return true
		}
	}
	return false
}

func (ds deviations) wantAllUsed(t *testing.T) {
	t.Helper()
	for _, d := range ds {
		if !d.used {
			t.Errorf("no case differs as the table says: %s: %s: %s", d.call, d.what, d.reason)
		}
	}
}

// TestOriginalReads reads the records that the original wrote. Apart from readDeviations, the
// answers must equal those of the original.
func TestOriginalReads(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := typeOf(t, s.open(userdb.Options{Schema: originalSchema(t)}), "user")
		written := s.loadOriginal()
		s.expect(originalDamage...)
		allowed := deviations(slices.Clone(readDeviations))
		every := loggedIn.CompareAndSwap(false, true)
		for i, r := range readLines[read](t, "original_reads.jsonl") {
			f := written[r.Key]
			compareEntry(t, users, r, f)
			for what, got := range logins(t, users, f, r, every, i%8 == 0) {
				if want := r.want(what); got != want && !allowed.allow(r.From, what, got) {
					t.Errorf("%s: %s: got %s, but the original answered %s", abbreviate(r.From), what, got, want)
				}
			}
		}
		allowed.wantAllUsed(t)
	})
}

// acceptsWrong reports whether the original accepted a wrong password.
func (r read) acceptsWrong() bool { return string(r.Wrong.Result) == "[true,true]" }

// want returns the answer of the original, which found every entry whose facets it could read.
func (r read) want(what string) string {
	if r.Authenticate.Error != "" && what != "by email" && what != "by name" || what == "wrong password" && !r.acceptsWrong() {
		return refused
	}
	return accepted
}

// compareEntry compares an entry with the one that the original read, apart from the password.
func compareEntry(t *testing.T, users *userdb.Type, r read, f fixture) {
	t.Helper()
	e, err := users.Find(t.Context(), hints.UID(f.fields(t)["uid"]))
	if r.GetUser.Error != "" {
		wantErr(t, abbreviate(r.From), err, userdb.ErrCorrupt, r.Key, "rating")
		return
	}
	if err != nil {
		t.Errorf("%s: %v", abbreviate(r.From), err)
		return
	}
	text, err := e.MarshalJSON()
	must(t, err)
	want := fromJavaScript(parseJSON(t, r.GetUser.Result)).(map[string]any)
	delete(want, "password")
	if got := parseJSON(t, text); !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\ngot  %v\nwant %v", abbreviate(r.From), got, want)
	}
}

// loggedIn is set when one store tries every password. The other stores try some: hashing is slow,
// and the same everywhere.
var loggedIn atomic.Bool

// logins looks up an entry by its e-mail address and its name, and logs in with the first of them
// that finds it. It tries the right password if every or some is set, or if the entry has a
// deviation. It tries a wrong one if some is set, or if the original accepted it. It returns
// accepted or refused for each attempt.
func logins(t *testing.T, users *userdb.Type, f fixture, r read, every, some bool) map[string]string {
	t.Helper()
	fields, by, got := f.fields(t), "", map[string]string{}
	for _, field := range []string{"email", "name"} {
		found, err := users.Exists(t.Context(), hints.Any(fields[field]))
		got["by "+field] = refused
		if found && err == nil {
			got["by "+field], by = accepted, cmp.Or(by, fields[field])
		}
	}
	clear, _ := f.clear()
	if every || some || slices.ContainsFunc(readDeviations, func(d deviation) bool { return strings.HasPrefix(r.From+" ", d.call) }) {
		got["right password"] = login(t, users, f.Key, by, clear)
	}
	if some || r.acceptsWrong() {
		got["wrong password"] = login(t, users, f.Key, by, clear+"x")
	}
	return got
}

func login(t *testing.T, users *userdb.Type, key, id, password string) string {
	t.Helper()
	e, err := users.Login(t.Context(), id, password, userdb.Attempt{})
	switch {
	case err == nil && e.Key().String() == key:
		return accepted
	case err == nil:
		t.Errorf("login by %s: got %s, want %s", abbreviate(id), e.Key(), key)
	case !errors.Is(err, userdb.ErrLogin) && !errors.Is(err, userdb.ErrCorrupt):
		t.Errorf("login by %s: %v", abbreviate(id), err)
	}
	return refused
}
