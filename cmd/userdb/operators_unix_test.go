//go:build unix

package main

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

var setupLink = regexp.MustCompile(`^first operator: http://127\.0\.0\.1:\d+(/console/setup\?token=[\w-]{35})\n$`)

// TestSetupLink checks that each process prints, before it is ready, where the accounts and the
// console are and, as long as there is no operator, a set-up link. Each is on its own line. A link
// works at every process until an operator is added, and its token is not in the log.
func TestSetupLink(t *testing.T) {
	store := redistest.Start(t).URL()
	begin := func() (s *serviceProcess, link []string) {
		t.Helper()
		s = serveOn(t, strings.Replace(store, "//", "//default:hush@", 1))
		accounts, console := <-s.lines, <-s.lines
		if link = setupLink.FindStringSubmatch(<-s.lines); link == nil {
			t.Fatal("no link was printed")
		}
		if accounts != "accounts: "+strings.Replace(store, "//", "//…@", 1)+"\n" || console != "console: "+s.url+"/console\n" {
			t.Errorf("the service prints %q and %q, want where the accounts and the console are", accounts, console)
		}
		return s, link
	}
	first, link := begin()
	second, otherLink := begin()
	status := func(s *serviceProcess, path string) int {
		t.Helper()
		answer, err := http.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	for _, path := range []string{link[1], otherLink[1], "/"} {
		if one, other := status(first, path), status(second, path); one != 200 || other != 200 {
			t.Errorf("%s answers %d at the first service and %d at the second, want 200", path, one, other)
		}
	}
	without := serveOn(t, store, "--console=false")
	if got := status(without, "/console/signin"); got != 404 {
		t.Errorf("/console/signin without a console: %d, want 404", got)
	}
	wantExit(t, store, secretText, 0, "operator", "add", "Olga", "--password-stdin")
	for _, path := range []string{link[1], otherLink[1]} {
		if got := status(first, path); got != 410 {
			t.Errorf("a link after an operator was added: %d, want 410", got)
		}
	}
	third := serveOn(t, store)
	third.stop(syscall.SIGTERM)
	for line := range third.lines {
		if strings.Contains(line, "token=") {
			t.Errorf("with an operator the service prints %q, want no link", line)
		}
	}
	for line := range first.lines {
		if strings.Contains(line, link[1][len("/console/setup?token="):]) {
			t.Errorf("the log has the token: %q", line)
		}
		if strings.Contains(line, `"status":410`) {
			break
		}
	}
}

const secretText = "correct horse battery\n"

// wantExit runs a command, checks its exit code and returns its output.
func wantExit(t *testing.T, store, stdin string, want int, args ...string) string {
	t.Helper()
	cmd, errs := newProcess(t, store, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	if exitCode(err) != want {
		t.Errorf("userdb %q: %v, want exit %d: %s", args, err, want, errs)
	}
	return string(out) + errs.String()
}

// TestFullStoreAtStart checks that a service starts on a Redis that is full. It prints no set-up
// link, but programs can read accounts.
func TestFullStoreAtStart(t *testing.T) {
	server := redistest.Start(t)
	key := serveOn(t, server.URL()).run("apikey", "create", "web", "--scope", "read")
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	s := serveOn(t, server.URL())
	if _, _, line := <-s.lines, <-s.lines, <-s.lines; !strings.Contains(line, "there is no link for the first operator") {
		t.Errorf("the service prints %q, want a warning that there is no link", line)
	}
	if status, body, err := s.ask(key, http.MethodGet, "/v1/types/user/entries", ""); err != nil || status != http.StatusOK {
		t.Errorf("a list of accounts: got %d %v %v, want 200", status, body, err)
	}
}

// TestLostFactorsBesideDamage checks that 'factor remove-lost' and 'factor rotate-keys' handle the
// factors of operators even if other entries cannot be read, and that both fail at the end.
func TestLostFactorsBesideDamage(t *testing.T) {
	server := redistest.Start(t)
	store := server.URL()
	wantExit(t, store, secretText, 0, "operator", "add", "Olga", "--password-stdin")
	db, err := userdb.Open(t.Context(), store, userdb.Options{Keys: [][]byte{[]byte(strings.Repeat("a", 32))}})
	must(t, err)
	operators, err := admin.Operators(db)
	must(t, err)
	addApp(t, operators, "olga")
	must(t, db.Close())
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	must(t, client.HSet(t.Context(), "user/uid:u1", "~isa", "another type").Err())
	file := filepath.Join(t.TempDir(), "factors.keys")
	line := func(key string) string {
		return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(key, 32))) + "\n"
	}
	for _, tt := range []struct{ keys, args, want string }{
		{line("b") + line("a"), "rotate-keys", "encrypted 2 secrets"},
		{line("b"), "remove-lost", "removed 0 second factors of 0 entries and kept 2\n"},
		{line("a"), "remove-lost", "would remove 2 second factors of 1 entry and keep 0: no key in " + file + " decrypts them; add --yes; "},
		{line("a"), "remove-lost --yes", "removed 2 second factors of 1 entry"},
	} {
		must(t, os.WriteFile(file, []byte(tt.keys), 0o600))
		got := wantExit(t, store, "", 1, append([]string{"factor", "--key-file", file}, strings.Fields(tt.args)...)...)
		if !strings.Contains(got, tt.want) || !strings.Contains(got, "user/uid:u1") {
			t.Errorf("factor %s prints %q, want %q and user/uid:u1", tt.args, got, tt.want)
		}
	}
	if got := wantExit(t, store, "", 0, "operator", "list", "--json"); !strings.Contains(got, `"two_steps":false`) {
		t.Errorf("operator list --json prints %q, want no second factors", got)
	}
}

// TestWarnsWithoutKeys checks that a service without keys, on a store whose operators need a second
// factor, says that no operator can sign in.
func TestWarnsWithoutKeys(t *testing.T) {
	store := redistest.Start(t).URL()
	const warning = "without --key-file none of them can sign in here"
	// The service reads the store, and then fails because of --metrics.
	serve := []string{"serve", "--listen", "127.0.0.1:0", "--metrics", "x"}
	if got := wantExit(t, store, "", 2, serve...); strings.Contains(got, warning) {
		t.Errorf("if operators need no second factor, the service prints %q, want no warning", got)
	}
	db, err := userdb.Open(t.Context(), store, userdb.Options{})
	must(t, err)
	must(t, admin.RequireFactors(t.Context(), db, true))
	must(t, db.Close())
	if got := wantExit(t, store, "", 2, serve...); !strings.Contains(got, warning) {
		t.Errorf("if operators need a second factor, the service prints %q, want %q", got, warning)
	}
	if got := wantExit(t, store, "", 2, append(serve, "--console=false")...); strings.Contains(got, warning) {
		t.Errorf("without a console, the service prints %q, want no warning", got)
	}
}

// TestOperatorCommands checks that the case and the width of letters in operators' names do not
// matter, that exit codes are the same as for accounts, and that 'userdb check --repair' restores
// the lost record of a name.
func TestOperatorCommands(t *testing.T) {
	server := redistest.Start(t)
	store := server.URL()
	wantExit(t, store, secretText, 0, "operator", "add", "root", "--password-stdin")
	if got := wantExit(t, store, secretText, 4, "operator", "add", "ＲＯＯＴ", "--password-stdin"); !strings.Contains(got, "an operator of that name exists") {
		t.Errorf("adding the same name in other letters prints %q, want a message that the name exists", got)
	}
	wantExit(t, store, "short\n", 2, "operator", "add", "Paul", "--password-stdin")
	wantExit(t, store, secretText, 2, "operator", "add", "a@b", "--password-stdin")
	wantExit(t, store, "", 2, "operator", "add", "Paul")
	wantExit(t, store, "another long password\n", 0, "operator", "passwd", "Root", "--password-stdin")
	wantExit(t, store, "", 0, "operator", "disable", "ROOT")
	if got := wantExit(t, store, "", 0, "operator", "list"); !strings.HasPrefix(got, "root, since 20") || !strings.HasSuffix(got, ", disabled\n") {
		t.Errorf("operator list prints %q, want root as a disabled operator", got)
	}
	wantExit(t, store, "", 0, "operator", "enable", "root")
	if got := wantExit(t, store, "", 0, "operator", "list", "--json"); !strings.Contains(got, `"disabled":false`) {
		t.Errorf("operator list --json prints %q, want \"disabled\":false", got)
	}
	for _, action := range []string{"disable", "enable"} {
		wantExit(t, store, "", 3, "operator", action, "nobody")
	}
	wantExit(t, store, secretText, 3, "operator", "passwd", "nobody", "--password-stdin")
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	if n := client.Del(context.Background(), "~~userdb/operator/name:root/~prk").Val(); n != 1 {
		t.Fatal("the record was not deleted")
	}
	if got := wantExit(t, store, "", 7, "check"); !strings.Contains(got, "~~userdb/operator/name:root/~prk") {
		t.Errorf("check prints %q, want the key of the lost record", got)
	}
	wantExit(t, store, "", 0, "check", "--repair")
	wantExit(t, store, "", 0, "check")
	wantExit(t, store, "", 0, "operator", "disable", "root")
}

// storeOfOlga returns the URL of a new store with an operator Olga, and opens it.
func storeOfOlga(t *testing.T) (store string, db *userdb.DB) {
	t.Helper()
	store = redistest.Start(t).URL()
	wantExit(t, store, secretText, 0, "operator", "add", "Olga", "--password-stdin")
	db, err := userdb.Open(t.Context(), store, userdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return store, db
}

// TestKeysOfDisabledOperator checks that disabling an operator lists the API keys that the operator
// made, and can revoke them.
func TestKeysOfDisabledOperator(t *testing.T) {
	store, db := storeOfOlga(t)
	keys, err := admin.OpenKeys(db)
	if err != nil {
		t.Fatal(err)
	}
	asOlga := userdb.WithActor(t.Context(), userdb.Actor{Name: "operator:Olga"})
	if _, err = keys.Create(asOlga, admin.Key{Name: "shop", Scopes: []string{admin.ScopeRead}}); err != nil {
		t.Fatal(err)
	}
	wantExit(t, store, "", 0, "apikey", "create", "other", "--scope", "read")
	if out := wantExit(t, store, "", 0, "apikey", "list"); !strings.Contains(out, "made by operator:Olga at 20") || !strings.Contains(out, "made by command at 20") {
		t.Errorf("apikey list prints %q, want one key made by operator:Olga and one by command", out)
	}
	out := wantExit(t, store, "", 0, "operator", "disable", "OLGA")
	if !strings.Contains(out, "disabled OLGA\n") || !strings.Contains(out, "the API key shop still works") || strings.Contains(out, "other") {
		t.Errorf("operator disable prints %q, want the operator, the key shop and no other key", out)
	}
	if out = wantExit(t, store, "", 0, "operator", "disable", "olga", "--revoke-keys"); !strings.Contains(out, "revoked the API key shop") {
		t.Errorf("operator disable --revoke-keys prints %q, want that the key shop was revoked", out)
	}
	if out = wantExit(t, store, "", 0, "apikey", "list"); strings.Contains(out, "shop") || !strings.Contains(out, "other") {
		t.Errorf("apikey list after the revocation: %q, want only the key other", out)
	}
	if out = wantExit(t, store, "", 0, "events", "--kind", "operator_disable", "--kind", "key_revoke"); strings.Count(out, "by command") != 3 || !strings.Contains(out, "for Olga") {
		t.Errorf("events prints %q, want three events by command, one of them for Olga", out)
	}
}

// TestLinksOfDisabledOperator checks that disabling an operator lists the accounts for which the
// operator made links, and can end the links.
func TestLinksOfDisabledOperator(t *testing.T) {
	store, db := storeOfOlga(t)
	users, err := db.Type("user")
	if err != nil {
		t.Fatal(err)
	}
	e, err := users.Create(t.Context(), userdb.NewEntry{UID: "u1"})
	if err != nil {
		t.Fatal(err)
	}
	links, err := admin.OpenLinks(db)
	if err != nil {
		t.Fatal(err)
	}
	var secret string
	err = links.Issue(t.Context(), "Olga", e.Key(), time.Hour, func() (err error) {
		secret, err = users.Issue(t.Context(), hints.UID("u1"), userdb.Token{Purpose: "reset"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if out := wantExit(t, store, "", 0, "operator", "disable", "olga"); !strings.Contains(out, "a link for user u1 may still be valid until 20") {
		t.Errorf("operator disable prints %q, want the link for u1", out)
	}
	if _, _, err := users.Peek(t.Context(), "reset", secret); err != nil {
		t.Errorf("without --end-links, the link: %v", err)
	}
	if out := wantExit(t, store, "", 0, "operator", "disable", "olga", "--end-links"); !strings.Contains(out, "ended the links of user u1\n") {
		t.Errorf("operator disable --end-links prints %q, want that the links of u1 ended", out)
	}
	if _, _, err := users.Peek(t.Context(), "reset", secret); !errors.Is(err, userdb.ErrNotFound) {
		t.Errorf("after --end-links, the link: got %v, want ErrNotFound", err)
	}
}

// TestPasswordEndsJobs checks that a new password of an operator stops the operator's running jobs.
func TestPasswordEndsJobs(t *testing.T) {
	store, db := storeOfOlga(t)
	jobs, err := admin.OpenJobs(db)
	if err != nil {
		t.Fatal(err)
	}
	var all []admin.Job
	for _, by := range []string{"Olga", "Anna"} {
		j, err := jobs.Begin(t.Context(), admin.Job{Kind: "import", By: by})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, j)
	}
	wantExit(t, store, "another long password\n", 0, "operator", "passwd", "olga", "--password-stdin")
	for i, want := range []bool{true, false} {
		if stop, err := jobs.Heartbeat(t.Context(), all[i].ID, 0, 0); err != nil || stop != want {
			t.Errorf("after the new password of Olga, the job of %s: stop is %v, %v, want %v", all[i].By, stop, err, want)
		}
	}
}

// TestUnrecorded checks that an action is completed and its result printed even if the Redis user
// may not write events. The error says that the action was done and that its event was not
// recorded.
func TestUnrecorded(t *testing.T) {
	server := redistest.Start(t)
	if err := server.Client().Do(t.Context(), "acl", "setuser", "noevents", "on", ">secret", "~*", "+@all", "-xadd").Err(); err != nil {
		t.Fatal(err)
	}
	store := strings.Replace(server.URL(), "redis://", "redis://noevents:secret@", 1)
	for _, tt := range []struct{ line, printed, done string }{
		{"apikey create web --scope read", "udb_", "created the API key web"},
		{"apikey revoke web", "revoked web\n", "revoked the API key web"},
		{"operator add Olga --password-stdin", "added Olga\n", "added Olga"},
		{"operator disable olga", "disabled olga\n", "disabled olga"},
	} {
		got := wantExit(t, store, secretText, 6, strings.Fields(tt.line)...)
		if want := "userdb: " + tt.done + ", but the event was not recorded: "; !strings.HasPrefix(got, tt.printed) || !strings.Contains(got, want) || !strings.Contains(got, "docs/redis-acl.md") {
			t.Errorf("%s says %q, want %q", tt.line, got, want)
		}
	}
	if got := wantExit(t, store, "", 0, "operator", "list"); !strings.Contains(got, "disabled") {
		t.Errorf("operator list prints %q, want a disabled operator", got)
	}
}
