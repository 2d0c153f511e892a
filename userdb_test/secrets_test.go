package userdb_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// ears hear all that a store says.
type ears struct {
	mu sync.Mutex
	bytes.Buffer
}

func (e *ears) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Buffer.Write(p)
}

// hear prints values in every way in which values are printed.
func (e *ears) hear(values ...any) {
	text := slog.New(slog.NewTextHandler(e, nil))
	asJSON := slog.New(slog.NewJSONHandler(e, nil))
	for _, v := range values {
		fmt.Fprintf(e, "%v\n%+v\n%#v\n%s\n%q\n%x\n", v, v, v, v, v, fmt.Sprint(v))
		raw, _ := json.Marshal(v)
		fmt.Fprintf(e, "%s\n", raw)
		text.Info("heard", "value", v)
		asJSON.Info("heard", "value", v, "in a group", slog.GroupValue(slog.Any("value", v)))
		text.Info("heard", "in a list", []any{v}, "in a map", map[string]any{"v": v})
	}
}

const (
	clearPassword = "correct horse battery staple"
	otherPassword = "wrong donkey accumulator clip"
	pepper        = "a pepper of thirty-two bytes ...."
)

// TestSecrets lets a store do everything with a password, prints whatever it answers in every way, and
// looks for the hash, the password and the pepper in it.
func TestSecrets(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		heard := &ears{}
		db := s.open(userdb.Options{
			Schema: wideSchema(schema.FoldCasefold), Peppers: [][]byte{[]byte(pepper)},
			Logger:  slog.New(slog.NewJSONHandler(heard, &slog.HandlerOptions{Level: slog.LevelDebug})),
			OnEvent: func(_ context.Context, e userdb.Event) { heard.hear(e) },
		})
		users := typeOf(t, db, "user")
		heard.hear(db, users, users.Tags(hints.UID("u")))
		speak(t, s, users, heard)
		before, err := users.Find(t.Context(), hints.UID("u"))
		must(t, err)
		for name, verb := range everyVerb(db, users, before) {
			if name != "delete" && name != "remove keys" {
				heard.hear(verb(t.Context()))
			}
		}
		hash := s.dump(t.Context())["user/uid:u"].fields["password"]
		if !strings.Contains(hash, "$2a$") {
			t.Fatalf("stored: %q", hash)
		}
		for what, secret := range map[string]string{
			"a hash": "$2a$", "the hash": hash[len(hash)-31:], "the hash in hex": fmt.Sprintf("%x", hash[len(hash)-31:]),
			"the password": clearPassword, "another password": otherPassword, "the pepper": pepper,
			"the pepper in numbers": strings.Trim(fmt.Sprint([]byte(pepper)), "[]"), "the pepper in hex": fmt.Sprintf("%x", pepper),
		} {
			if at := strings.Index(heard.String(), secret); at >= 0 {
				t.Errorf("%s is told: …%s…", what, heard.String()[max(0, at-200):min(heard.Len(), at+80)])
			}
		}
		if !strings.Contains(heard.String(), "marker") {
			t.Error("nothing was heard")
		}
	})
}

// speak makes a store say as much as it can.
func speak(t *testing.T, s *site, users *userdb.Type, heard *ears) {
	t.Helper()
	ctx := t.Context()
	e, err := users.Create(ctx, userdb.NewEntry{UID: "u", Facets: schema.Texts("name", "n", "job", "marker"), Password: clearPassword})
	must(t, err)
	heard.hear(e, &e, []userdb.Entry{e}, map[string]userdb.Entry{"e": e}, struct{ E userdb.Entry }{e})
	_, err = users.Create(ctx, userdb.NewEntry{UID: "u", Facets: schema.Texts("name", "n"), Password: clearPassword})
	heard.hear(err)
	for _, pw := range []string{clearPassword, otherPassword, otherPassword + strings.Repeat("x", 72)} {
		e, err := users.Login(ctx, "N", pw, userdb.Attempt{Origin: "here"})
		heard.hear(e, err)
	}
	heard.hear(users.SetPassword(ctx, hints.UID("u"), clearPassword), users.SetPassword(ctx, hints.UID("u"), otherPassword+strings.Repeat("x", 2000)))
	heard.hear(users.ChangePassword(ctx, hints.UID("u"), otherPassword, clearPassword, userdb.Attempt{}))
	for e, err := range users.All(ctx, userdb.Query{}) {
		heard.hear(e, err)
	}
	e, err = users.Update(ctx, hints.UID("u"), func(e *userdb.Entry) error {
		heard.hear(*e)
		e.Put("password", schema.Text(otherPassword))
		return nil
	})
	heard.hear(e, err)
	es, _, err := users.Page(ctx, userdb.Query{})
	heard.hear(es, err)
	v, has := e.Get("password")
	heard.hear(v, has, e.Text("password"))
	must(t, s.raw.HSet(ctx, "user/uid:u", "rating", "{").Err())
	_, err = users.Find(ctx, hints.UID("u"))
	heard.hear(err)
	must(t, s.raw.HDel(ctx, "user/uid:u", "rating").Err())
}
