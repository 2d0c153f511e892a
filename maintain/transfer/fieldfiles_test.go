package transfer_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/transfer"
)

// TestFieldFiles imports files of testdata/field in different formats, and checks the imported
// values, the refused lines, or the error that refuses the file.
func TestFieldFiles(t *testing.T) {
	flat := map[string]string{"id": "uid", "email": "email", "name": "name", "job": "job", "hash": "password"}
	only := func(names ...string) map[string]string {
		kept := map[string]string{}
		for _, name := range names {
			kept[name] = flat[name]
		}
		return kept
	}
	const notJSON = "bad input: it is neither JSON lines nor a JSON list: "
	for _, tt := range []struct {
		file   string
		o      transfer.ImportOptions
		want   string // the outcome, with each refused line, or the error
		logins string // who can log in with the password Sommerhaus-2024
	}{
		{"spaces.csv", transfer.ImportOptions{}, "2 read, 2 created", "anna@example.com bert@example.com"},
		{"emptycols.csv", transfer.ImportOptions{}, "2 read, 2 created", "anna@example.com bert@example.com"},
		{"sepline.csv", transfer.ImportOptions{}, "1 read, 1 created", "anna@example.com"},
		{"semicolon_bom.csv", transfer.ImportOptions{}, "bad input: the first line is a single column: if semicolons separate the columns", ""},
		{"semicolon_bom.csv", transfer.ImportOptions{Delimiter: ';'}, "1 read, 1 created", "anna@example.com"},
		{"firebase.csv", transfer.ImportOptions{}, "bad input: the first line holds values, not the names of columns", ""},
		{"crline.csv", transfer.ImportOptions{}, "bad input: its lines end with CR alone", ""},
		{"crleak3.csv", transfer.ImportOptions{}, "bad input: its lines end with CR alone", ""},
		{"mysql_escape.csv", transfer.ImportOptions{}, "reading the input: line 2 and everything after it were not read: bad input: a quote after a backslash", ""},
		{
			"dates.csv",
			transfer.ImportOptions{},
			"19 read, 13 created, 5 a time without a time zone, 10 a time without a time zone, 11 a time without a time zone, " +
				"15 a date whose day and month, 16 a date whose day and month, 18 a number of days", "",
		},
		{"dates.csv", transfer.ImportOptions{Zone: time.UTC}, "19 read, 16 created, 15 a date whose day and month, 16 a date whose day and month, 18 a number of days", ""},
		{"pbdate.csv", transfer.ImportOptions{}, "1 read, 1 created", ""},
		{"dj_naive.json", transfer.ImportOptions{From: "django"}, "2 read, 0 created, 2 a time without a time zone, 20 a time without a time zone", ""},
		{"dj_naive.json", transfer.ImportOptions{From: "django", Zone: time.UTC}, "2 read, 2 created", "anna bert@example.com"},
		{"array.json", transfer.ImportOptions{Map: only("id", "email", "hash")}, "2 read, 2 created", "anna@example.com bert@example.com"},
		{"array_pretty.json", transfer.ImportOptions{Map: only("id", "email", "hash")}, "2 read, 2 created", "anna@example.com bert@example.com"},
		{"flat_null.jsonl", transfer.ImportOptions{Map: flat}, "4 read, 4 created", "anna@example.com bert@example.com"},
		{"strnull.jsonl", transfer.ImportOptions{Map: only("id", "email", "name", "hash")}, "3 read, 3 created", "anna@example.com"},
		{
			"snowflake.jsonl",
			transfer.ImportOptions{Map: only("id", "email", "hash")},
			"6 read, 3 created, 4 a number that is not a whole number, 5 a number that is not a whole number, 6 a number that is not a whole number", "anna@example.com bert@example.com",
		},
		{
			"mongo.jsonl",
			transfer.ImportOptions{Map: map[string]string{"_id": "uid", "username": "name", "createdAt": "added"}, Ignore: []string{"emails", "services"}},
			"1 read, 1 created", "",
		},
		{"htpasswd", transfer.ImportOptions{Map: flat}, notJSON + "it looks like a password file", ""},
		{"pgcopy.txt", transfer.ImportOptions{Map: flat}, "bad input: it looks like a dump of a database", ""},
		{"users.ldif", transfer.ImportOptions{Map: flat}, "bad input: it looks like LDIF", ""},
		{"supa_recipe.csv", transfer.ImportOptions{}, "3 read, 2 created, 4 it has no identifier", "anna@example.com banned@example.com"},
	} {
		t.Run(tt.file, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *site) {
				s = s.Under(t, fullSchema())
				tt.o.CSV = strings.HasSuffix(tt.file, ".csv")
				s.importField(t, tt.file, tt.o, tt.want)
				for _, identifier := range strings.Fields(tt.logins) {
					s.requireLogin(t, identifier, "Sommerhaus-2024", true)
				}
			})
		})
	}
}

// importField imports a file of testdata/field, and checks the outcome.
func (s *site) importField(t *testing.T, file string, o transfer.ImportOptions, want string) {
	t.Helper()
	var refused []string
	o.Refused = func(line int64, reason string) { refused = append(refused, fmt.Sprintf("%d %s", line, reason)) }
	report, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(sample(t, "field/"+file)), o)
	if err != nil {
		if !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "Geheim") {
			t.Errorf("got the error %v, want %s", err, want)
		}
		return
	}
	parts := strings.Split(want, ", ")
	if got := fmt.Sprintf("%d read, %d created", report.Read, report.Created); len(parts) < 2 || got != parts[0]+", "+parts[1] || len(refused) != len(parts)-2 {
		t.Fatalf("got %s, refused %q; want %s", got, refused, want)
	}
	for i, why := range parts[2:] {
		no, reason, _ := strings.Cut(why, " ")
		if !strings.HasPrefix(refused[i], no+" ") || !strings.Contains(refused[i], reason) {
			t.Errorf("refused %s, want %s", refused[i], why)
		}
	}
}

// TestAddressesWithoutSpace checks that addresses of a table are stored without white space around
// them, and that other texts are stored unchanged.
func TestAddressesWithoutSpace(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		s.importField(t, "spaces.csv", transfer.ImportOptions{CSV: true}, "2 read, 2 created")
		for address, want := range map[string]string{"anna@example.com": "Anna ", "bert@example.com": ""} {
			e, err := s.Type(t, "user").Find(s.Ctx, hints.Field("email", address))
			if err != nil {
				t.Fatal(err)
			}
			if e.Text("email") != address || e.Text("name") != want {
				t.Errorf("stored %q and %q, want %q and %q", e.Text("email"), e.Text("name"), address, want)
			}
		}
	})
}

// TestWholeSupabaseTable imports all columns of auth.users. Banned and deleted accounts stay
// disabled, and confirmed addresses stay verified.
func TestWholeSupabaseTable(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		s.importField(t, "supabase_full.csv", transfer.ImportOptions{
			CSV: true, Ignore: []string{"*"},
			Map: map[string]string{
				"id": "uid", "email": "email", "encrypted_password": "password", "created_at": "added",
				"email_confirmed_at": "verified:email", "banned_until": "disabled_until", "deleted_at": "disabled",
			},
		}, "4 read, 3 created, 4 it has no identifier")
		for identifier, want := range map[string]struct {
			disabled, verified bool
		}{"anna@example.com": {false, true}, "bert@example.com": {true, false}, "gone@example.com": {true, false}} {
			e, err := s.Type(t, "user").Find(s.Ctx, hints.Field("email", identifier))
			if err != nil {
				t.Fatal(err)
			}
			if e.Verified("email") != want.verified || e.Disabled() != want.disabled {
				t.Errorf("%s: verified %v, disabled %v; want %+v", identifier, e.Verified("email"), e.Disabled(), want)
			}
			s.requireLogin(t, identifier, "Sommerhaus-2024", !want.disabled)
		}
	})
}

// TestCarriersMailboxes imports the mailboxes of mobile carriers. The kind email refuses their
// dots, and the kind email-dots accepts them.
func TestCarriersMailboxes(t *testing.T) {
	for kind, want := range map[string]string{
		"email":      "6 read, 2 created, 2 email, 3 email, 6 email, 7 email",
		"email-dots": "6 read, 4 created, 4 quotes before the @ that are not needed, 7 email",
	} {
		eachEngine(t, func(t *testing.T, s *site) {
			declared := fullSchema()
			f := declared.Types["user"].Fields["email"]
			f.Kind = cmp.Or(kind, f.Kind)
			declared.Types["user"].Fields["email"] = f
			s = s.Under(t, declared)
			s.importField(t, "docomo.csv", transfer.ImportOptions{CSV: true}, want)
			s.requireLogin(t, "aaa..bbb.cc@docomo.ne.jp", "Sommerhaus-2024", kind == "email-dots")
		})
	}
}
