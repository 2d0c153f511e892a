package redistest

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Rights returns the two ACL rules of docs/redis-acl.md. The first is for applications. The second
// is for operators; deploy/secrets.sh also gives it to the service.
func Rights(t testing.TB) (app, operator []string) {
	t.Helper()
	text, err := readPage("redis-acl.md")
	if err != nil {
		t.Fatal(err)
	}
	var rules [][]string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "ACL SETUSER ") {
			_, rule, _ := strings.Cut(line, "-@all ")
			rules = append(rules, strings.Fields(rule))
		}
	}
	if len(rules) != 2 {
		t.Fatalf("docs/redis-acl.md has %d rules, want 2", len(rules))
	}
	return rules[0], rules[1]
}

// readPage reads a page of docs. It works in the tests of every package of the module.
func readPage(name string) (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			text, err := os.ReadFile(filepath.Join(dir, "docs", name))
			return string(text), err
		}
		up := filepath.Dir(dir)
		if up == dir {
			err = errors.New("no go.mod above the test")
		}
		dir = up
	}
	return "", err
}

// optional lists commands that a store tries but can do without.
var optional = []string{"config|get", "client|info", "client|setinfo", "script|load"}

// A User is a user of a server with restricted rights.
type User struct {
	Name, Password string
	admin          *redis.Client
}

// Restrict creates a user of a server for t. At its end the test fails if the server refused that
// user a command that is not optional. In a database other than 0 the user also gets SELECT, which
// a store in database 0 does not need.
func Restrict(t testing.TB, admin *redis.Client, rights []string) User {
	t.Helper()
	ctx := context.Background()
	u := User{"user-" + rand.Text(), rand.Text(), admin}
	args := []any{"acl", "setuser", u.Name, "on", ">" + u.Password, "~*", "resetchannels", "-@all"}
	if admin.Options().DB > 0 {
		args = append(args, "+select")
	}
	for _, right := range rights {
		args = append(args, right)
	}
	if err := admin.Do(ctx, args...).Err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		entries, err := admin.ACLLog(ctx, 1000).Result()
		if err != nil {
			t.Error(err)
		}
		for _, e := range entries {
			if e.Username == u.Name && !slices.Contains(optional, e.Object) {
				t.Errorf("the user lacks the right to %s (%s)", e.Object, e.Context)
			}
		}
		if err := admin.Do(ctx, "acl", "deluser", u.Name).Err(); err != nil {
			t.Error(err)
		}
	})
	return u
}

// RestoreRights gives the user all rights, for steps that are not under test.
func (u User) RestoreRights() error {
	return u.admin.Do(context.Background(), "acl", "setuser", u.Name, "+@all").Err()
}

// Client returns a client of the administrator's database that logs in as the user.
func (u User) Client(t testing.TB) *redis.Client {
	o := *u.admin.Options()
	o.Username, o.Password = u.Name, u.Password
	c := redis.NewClient(&o)
	t.Cleanup(func() { c.Close() })
	return c
}

// URLOf returns the URL of a server with the user's name and password.
func (u User) URLOf(s *Server) string {
	return strings.Replace(s.URL(), "redis://", "redis://"+u.Name+":"+u.Password+"@", 1)
}
