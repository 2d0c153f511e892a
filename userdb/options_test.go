package userdb_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestNothingPrintsSecrets checks that no verb of fmt, no JSON and no log line shows the secrets in
// a value that holds them or was made with them.
func TestNothingPrintsSecrets(t *testing.T) {
	const pepper, pw = "pepper-of-32-bytes-pepper-of-32-", "correct horse battery"
	o := userdb.Options{Peppers: [][]byte{[]byte(pepper)}}
	n := userdb.NewEntry{UID: "a", Facets: schema.Texts("name", "Alice"), Tags: []string{"in debt"}, Password: pw}
	db, err := userdb.Open(t.Context(), "memory:", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	users, err := db.Type("user")
	if err != nil {
		t.Fatal(err)
	}
	e, err := users.Create(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	po := password.Options{Peppers: o.Peppers}
	hasher, err := password.New(po)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{
		o, &o, n, &n, db, *db, users, *users, e, &e, po, &po, hasher,
		[]any{o, n, po},
		map[string]any{"o": o, "n": n},
		struct{ O userdb.Options }{o},
		struct{ N *userdb.NewEntry }{&n},
		[]userdb.NewEntry{n},
		struct{ P password.Options }{po},
	} {
		for _, text := range formats(v) {
			for _, secret := range secretForms(pepper, pw) {
				if strings.Contains(text, secret) {
					t.Errorf("%T shows a secret: %s", v, text)
				}
			}
			if strings.Contains(text, "$2a$") || strings.Contains(text, "~key") || strings.Contains(text, "in debt") {
				t.Errorf("%T shows a hash, a key or a tag: %s", v, text)
			}
		}
	}
}

// secretForms returns the forms in which printing may show the texts.
func secretForms(texts ...string) (all []string) {
	for _, text := range texts {
		all = append(all, text[:8], fmt.Sprint([]byte(text[:8]))[1:20], fmt.Sprintf("%x", text[:8]), fmt.Sprintf("%X", text[:8]),
			base64.StdEncoding.EncodeToString([]byte(text))[:10], strings.Trim(fmt.Sprintf("%#v", []byte(text[:4])), "[]byte{}"))
	}
	return all
}

// formats returns v as fmt, encoding/json and log/slog print it.
func formats(v any) (all []string) {
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%b", "%o", "%c", "%U", "%t", "%e", "%T"} {
		all = append(all, fmt.Sprintf(verb, v))
	}
	text, _ := json.Marshal(v) // a value that cannot be marshaled reveals nothing
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "v", v)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "v", v)
	return append(all, string(text), fmt.Sprintln(v), b.String())
}
