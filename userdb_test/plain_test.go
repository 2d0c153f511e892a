package userdb_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A word is what a server answers instead of a reply.
type word string

func (w word) Error() string { return string(w) }

// RedisError makes it an answer.
func (word) RedisError() {}

// forbid makes the server refuse scripts that begin with an SRK, as those do that forbid scripts the
// keys that they do not declare. It counts how many were sent.
func (t *tap) forbid(sent *int) {
	answer := word("ERR Script tried accessing undeclared key")
	t.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		var refused []redis.Cmder
		for _, cmd := range cmds {
			name, args := strings.ToLower(cmd.Name()), cmd.Args()
			if name != "evalsha" && name != "eval" || len(args) < 4 {
				continue
			}
			if key, err := recordkey.Parse(argument(args[3])); err == nil && key.Kind() == recordkey.KindSRK {
				refused = append(refused, cmd)
			}
		}
		err := send()
		for _, cmd := range refused {
			*sent++
			cmd.SetErr(answer)
			err = answer
		}
		return err
	})
}

// TestForbiddenKeys looks entries up on a server that forbids the lookup script: plain commands find
// the same, and the script is not tried again.
func TestForbiddenKeys(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.needs(oneScript)
		users, ctx := s.wide(), t.Context()
		add(t, users, "u", "name", "Ann", "email", "e", "job", "j")
		add(t, users, "v", "name", "bob", "nick", "Bob")
		must(t, s.raw.Set(ctx, "user/name:ghost/~prk", "user/uid:ghost", 0).Err())
		must(t, s.raw.Set(ctx, "user/name:stale/~prk", "user/uid:u", 0).Err())
		s.expect("I4 user/name:ghost/~prk", "I4 user/name:stale/~prk")
		sent := 0
		s.tap.forbid(&sent)
		finds := map[string]struct {
			h   hints.Hint
			uid string
		}{
			"*": {hints.Any("ANN"), "u"}, "field": {hints.Field("email", "E"), "u"}, "both": {hints.Any("BOB"), "v"},
			"nobody": {hints.Any("nobody"), ""}, "ghost": {hints.Any("ghost"), ""}, "stale": {hints.Any("stale"), ""},
			"pair": {hints.Facets(schema.Texts("name", "ann", "email", "e")), "u"},
			"torn": {hints.Facets(schema.Texts("name", "ann", "nick", "bob")), ""}, "UID": {hints.UID("v"), "v"},
		}
		for name, f := range finds {
			e, err := users.Find(ctx, f.h)
			if f.uid == "" {
				wantErr(t, name, err, userdb.ErrNotFound)
			} else if err != nil || e.UID() != f.uid {
				t.Errorf("%s: %v, %v", name, e, err)
			}
			for e, err := range users.FindAll(ctx, f.h, hints.UID("u"), hints.Any("ann")) {
				if e.UID() == "" && f.uid != "" {
					t.Errorf("%s among others: %v", name, err)
				}
			}
		}
		if sent == 0 || sent > 6 {
			t.Errorf("the script was sent %d times", sent)
		}
		_, err := users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("nick", "ANN")})
		wantErr(t, "create", err, userdb.ErrDuplicate)
		_, err = users.Update(ctx, hints.Any("ann"), func(e *userdb.Entry) error { e.Put("name", schema.Text("Anna")); return nil })
		must(t, err)
		s.tap.set(nil)
	})
}
