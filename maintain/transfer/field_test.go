package transfer_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestInputForms checks that an input that is not in the format of the options is refused as a
// whole. The only error must give advice and must not quote the input.
func TestInputForms(t *testing.T) {
	const secret = "Geheim-2024"
	names := map[string]string{"id": "uid"}
	for _, tt := range []struct {
		name, in string
		csv      bool
		want     string
	}{
		{"lines that end with CR", "email,clear_password\r" + secret + ",x\r", true, "its lines end with CR alone"},
		{"long lines that end with CR", "email,name\r" + strings.Repeat("a@x.org,"+secret+"\r", 1_000_000), true, "its lines end with CR alone"},
		{"no header", "uid1,anna@example.com,true," + secret + ",,,,\n", true, "the first line holds values, not the names of columns"},
		{"no header and no address", "Anna,Koch," + secret + "\n", true, "the schema knows none of the names in the first line: is there a header?"},
		{"a value that is similar to a name", "Anna,emails," + secret + "\n", true, `is there a header? (column 2: did you mean "email"?)`},
		{"a header that is a row by chance", "password,anna@example.com," + secret + "\n", true, "the first line holds values"},
		{"semicolons", "name;email;password\nAnna;a@x.org;" + secret + "\n", true, "if semicolons separate the columns, name that delimiter (userdb import --delimiter)"},
		{"semicolons and no header", "Anna;Koch;" + secret + "\n", true, "if semicolons separate the columns"},
		{"a column without a name", ",email\n" + secret + ",a@x.org\n", true, "column 1 of the header has no name"},
		{"a name twice", "email,email\na@x.org," + secret + "\n", true, `the header names "email" twice`},
		{"only empty names", ",,\n" + secret + ",,\n", true, "the first line names no column"},
		{"JSON as CSV", `[{"email": "` + secret + `"}]`, true, "it looks like JSON, not like CSV"},
		{"a spreadsheet", "PK\x03\x04" + secret, true, "it looks like a spreadsheet"},
		{"a dump as CSV", "COPY public.users (id) FROM stdin;\n" + secret + "\n", true, "it looks like a dump of a database"},
		{"UTF-16 without a mark", "e\x00m\x00", true, "it is UTF-16"},

		{"a dump", "COPY public.users (id, email, password) FROM stdin;\n1\t" + secret + "\n\\.\n", false, "it looks like a dump of a database: export the table as CSV"},
		{"a dump with comments", "--\n-- PostgreSQL database dump\n--\n", false, "it looks like a dump of a database"},
		{"a password file", "anna:" + secret + "\nbert:" + secret + "\n", false, "it looks like a password file: put a line with the names of its columns, such as name:password"},
		{"LDIF after comments", "#\n# people\n\nversion:1\ndn:: dWlkPWFubmE=\nuserPassword:: " + secret + "\n", false, "it looks like LDIF"},
		{"LDIF without spaces", "dn:uid=anna,ou=people\nuserPassword:" + secret + "\n", false, "it looks like LDIF"},
		{"LDIF as CSV", "# people\r\ndn: uid=anna,ou=people\r\nuserPassword: " + secret + "\r\n", true, "it looks like LDIF"},
		{"LDIF", "dn: uid=anna,ou=people\nuserPassword:: " + secret + "\n", false, "it looks like LDIF"},
		{"CSV", "email,name\na@x.org," + secret + "\n", false, "if it is CSV, import it as CSV (userdb import --csv)"},
		{"XML", "<users>" + secret, false, "it looks like XML"},
		{"a compressed file", "\x1f\x8b\x08" + secret, false, "it looks like a compressed file"},
		{"an export of phpMyAdmin", "[\n{\"type\":\"header\",\"version\":\"5.2\"},\n{\"type\":\"table\"}]", false, "it looks like an export of phpMyAdmin"},
		{"an older spreadsheet", "\xd0\xcf\x11\xe0" + secret, true, "it looks like a spreadsheet: save the sheet as CSV"},
		{"another compressed file", "BZh9" + secret, true, "it looks like a compressed file"},
		{"Parquet", "PAR1" + secret, false, "it looks like Parquet"},
		{"a snapshot of Redis", "REDIS0011" + secret, false, "it looks like a snapshot of Redis"},
		{"a binary file", secret + "\x00\x01", false, "it looks like a binary file"},
		{"YAML", "- id: 1\n  password: " + secret + "\n", false, "it looks like YAML"},
		{"YAML with a list", "users:\n  - password: " + secret + "\n", false, "it looks like YAML"},
		{"a table with tabs", "uid\temail\n1\t" + secret + "\n", false, `import it as CSV with its delimiter (userdb import --delimiter '\t')`},
		{"a table with semicolons", "uid;email\n1;" + secret + "\n", false, "import it as CSV with its delimiter (userdb import --delimiter)"},
		{"a shadow file", "anna:" + secret + ":19000:0:99999:7:::\n", false, "it looks like a password file"},
		{"the names of a shadow file", "anna:" + secret + ":19000:0:99999:7:::\n", true, "if colons separate the columns"},
		{"a list of Python", "[{'id': 1, 'password': '" + secret + "'}]", false, "the first line is not JSON: names and texts must be in double quotes"},
		{"lines of Python", "{'id': 1}\n{'password': '" + secret + "'}\n", false, "the first line is not JSON: names and texts must be in double quotes"},
		{"lines that end with commas", "{\"id\": \"1\"},\n{\"id\": \"" + secret + "\"},\n", false, "its lines end with commas: put [ before the first line"},
		{"a list in an object", "{\"total\": 1,\n\"data\": [\n{\"id\": \"" + secret + "\"}]}", false, "it is an object with a list: write only the list (jq .data)"},
		{"an answer of SCIM", `{"schemas":["x"],"totalResults":1,"Resources":[{"id":"` + secret + `"}]}`, false, "write only the list (jq .Resources)"},
		{"entries under their addresses", `{"` + secret + `@example.com": {"id": "1"}}`, false, "it is an object with an entry under each ID: write a list of the entries"},
		{"an export of Django", `[{"model": "auth.user", "pk": 1, "fields": {"password": "` + secret + `"}}]`, false, "it looks like an export of django: import it as one (userdb import --from django)"},
		{"an export of Firebase", `{"users": [{"localId": "1", "passwordHash": "` + secret + `"}]}`, false, "(userdb import --from firebase)"},
		{"an export of Keycloak", "{\n \"realm\": \"shop\",\n \"users\": [\n{\"id\": \"1\", \"createdTimestamp\": 1}]}", false, "(userdb import --from keycloak)"},
		{"an export of Auth0", `{"user_id": "auth0|` + secret + `", "email": "a@x.org"}`, false, "(userdb import --from auth0)"},
		{"text", secret + "\n" + secret + "\n", false, "it is neither JSON lines nor a JSON list: want one JSON object a line"},
	} {
		eachEngine(t, func(t *testing.T, s *site) {
			s = s.Under(t, fullSchema())
			o := transfer.ImportOptions{CSV: tt.csv, Refused: func(line int64, reason string) {
				t.Errorf("%s: line %d is refused by itself: %s", tt.name, line, reason)
			}}
			if !tt.csv && !strings.Contains(tt.want, "--from") {
				o.Map = names
			}
			report, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(tt.in), o)
			if !errors.Is(err, transfer.ErrInput) || !strings.Contains(err.Error(), tt.want) || report.Read != 0 {
				t.Errorf("%s: got %+v, %v; want the error %q", tt.name, report, err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error quotes the input: %v", tt.name, err)
			}
		})
	}
}

// TestTables imports tables in the formats of spreadsheets, databases and scripts.
func TestTables(t *testing.T) {
	const ann = `{"type":"user","facets":{"email":"ann@x.org","name":"Ann"}}`
	withUID := func(uid string) string { return strings.Replace(ann, `"Ann"`, `"Ann","uid":"`+uid+`"`, 1) }
	for _, tt := range []struct {
		name, in string
		o        transfer.ImportOptions
		want     string // an export, or the reason of a refusal
	}{
		{"sep=", "sep=;\r\nuid;email;name\r\n1;ann@x.org;Ann\r\n", transfer.ImportOptions{}, withUID("1")},
		{"sep= in quotes", "\ufeff\"sep=;\"\r\nuid;email;name\r\n1;ann@x.org;Ann\r\n", transfer.ImportOptions{}, withUID("1")},
		{"a delimiter", "\ufeffuid;email;name\r\n1;ann@x.org;Ann\r\n", transfer.ImportOptions{Delimiter: ';'}, withUID("1")},
		{"spaces after commas", "uid, email, name\n1, ann@x.org, \"Ann\"\n", transfer.ImportOptions{}, withUID("1")},
		{"spaces in the header", "uid ,email,name \n1,ann@x.org,Ann\n", transfer.ImportOptions{}, withUID("1")},
		{"spaces in a column", "uid, email,name\n1,ann@x.org, Ann\n", transfer.ImportOptions{}, strings.Replace(withUID("1"), `"Ann"`, `" Ann"`, 1)},
		{"sep= beyond ASCII", "sep=§\nuid§email§name\n1§ann@x.org§Ann\n", transfer.ImportOptions{}, withUID("1")},
		{"sep= with a tab", "sep=\t\nuid\temail\tname\n1\tann@x.org\tAnn\n", transfer.ImportOptions{}, withUID("1")},
		{"names with a sign", "$id,email,@timestamp,name\n1,ann@x.org,x,Ann\n", transfer.ImportOptions{Map: map[string]string{"$id": "uid"}, Ignore: []string{"@timestamp"}}, withUID("1")},
		{"a quote in a cell", "uid,email,name\n1,ann@x.org,Ann \"A\"\n", transfer.ImportOptions{}, "a quote inside a cell without quotes: put the cell in quotes"},
		{"a quote that is not doubled", "uid,email,name\n1,ann@x.org,\"Ann \"A\"\"\n", transfer.ImportOptions{}, "a quote that is not doubled, inside a cell in quotes"},
		{"a text of a spreadsheet", "uid,email,name\n=\"1\",ann@x.org,=\"Ann\"\n", transfer.ImportOptions{}, withUID("1")},
		{"a text of a spreadsheet in quotes", "uid,email,name\n1,ann@x.org,\"=\"\"Ann\"\"\"\n", transfer.ImportOptions{}, withUID("1")},
		{"texts of a spreadsheet in the header", "=\"uid\";=\"email\";=\"name\"\r\n=\"1\";=\"ann@x.org\";=\"Ann\"\r\n", transfer.ImportOptions{Delimiter: ';'}, withUID("1")},
		{"a formula", "uid,email,name\n1,ann@x.org,=Ann\n", transfer.ImportOptions{}, strings.Replace(withUID("1"), `"Ann"`, `"=Ann"`, 1)},
		{"a text of a spreadsheet that does not end", "uid,email,name\n1,ann@x.org,=\"Ann\n", transfer.ImportOptions{}, "this row has a quote that is not closed"},
		{"CRLF in a cell", "uid,email,name,job\r\n1,ann@x.org,Ann,\"a\r\nb\"\r\n", transfer.ImportOptions{}, strings.Replace(withUID("1"), `"name"`, `"job":"a\r\nb","name"`, 1)},
		{"an apostrophe", "uid,email,name\n1,ann@x.org,'=Ann\n", transfer.ImportOptions{}, strings.Replace(withUID("1"), `"Ann"`, `"'=Ann"`, 1)},
		{"a number after an apostrophe", "uid,email,name\n'6543210987654,ann@x.org,Ann\n", transfer.ImportOptions{}, `"uid": a number after an apostrophe`},
		{"a phone number after an apostrophe", "uid,email,job\n1,ann@x.org,'+49 170 12345\n", transfer.ImportOptions{}, `"job": a number after an apostrophe`},
		{"a number after an apostrophe as text", "uid,email,name\n1,ann@x.org,=\"'68\"\n", transfer.ImportOptions{}, strings.Replace(withUID("1"), `"Ann"`, `"'68"`, 1)},
		{"a column that is left out", "uid,email,name,tel\n1,ann@x.org,Ann,'+49 170\n", transfer.ImportOptions{Ignore: []string{"tel"}}, withUID("1")},
		{"a name with an apostrophe", "uid,email,name\n1,ann@x.org,'90s kid\n", transfer.ImportOptions{}, strings.Replace(withUID("1"), `"Ann"`, `"'90s kid"`, 1)},
		{"a pasted hash", "uid,email,name,password\n1,ann@x.org,Ann, $2a$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy \n", transfer.ImportOptions{}, withUID("1")},
		{"NULL as a flag", "uid,disabled\n1,NULL\n", transfer.ImportOptions{}, "(userdb import --null NULL)"},
		{"NULL as a date", "uid,added\n1,NULL\n", transfer.ImportOptions{}, "(userdb import --null NULL)"},
		{"tabs", "uid\temail\tname\n1\tann@x.org\tAnn\n", transfer.ImportOptions{Delimiter: '\t'}, withUID("1")},
		{"empty columns and rows at the end", "uid,email,name,,\r\n1,ann@x.org,Ann,,\r\n,,,,\r\n,,,,\r\n", transfer.ImportOptions{}, withUID("1")},
		{"empty cells at the end of a row", "uid,email,name\n1,ann@x.org,Ann,,\n", transfer.ImportOptions{}, withUID("1")},
		{"a value in a column without a name", "uid,email,name,,\n1,ann@x.org,Ann,,x\n", transfer.ImportOptions{}, "5 cells, but the header has 3"},
		{"a column without a name that is left out", ",uid,email,name\n0,1,ann@x.org,Ann\n", transfer.ImportOptions{Ignore: []string{""}}, withUID("1")},
		{`\N`, "uid,email,name,job\n1,ann@x.org,Ann,\\N\n", transfer.ImportOptions{}, withUID("1")},
		{`\N in quotes`, "uid,email,name\n1,ann@x.org,\"\\N\"\n", transfer.ImportOptions{}, strings.Replace(withUID("1"), `"Ann"`, `"\\N"`, 1)},
		{`\N in quotes after a row of two lines`, "uid,job,email,name\n1,\"a\nb\",ann@x.org,\"\\N\"\n", transfer.ImportOptions{Ignore: []string{"job"}}, strings.Replace(withUID("1"), `"Ann"`, `"\\N"`, 1)},
		{"NULL is a name", "uid,email,name\n1,ann@x.org,NULL\n", transfer.ImportOptions{}, strings.Replace(withUID("1"), "Ann", "NULL", 1)},
		{"NULL by option", "uid,email,name,job\n1,ann@x.org,\"NULL\",NULL\n", transfer.ImportOptions{Null: "NULL"}, strings.Replace(withUID("1"), "Ann", "NULL", 1)},
		{"Latin-1", "uid,email,name\n1,ann@x.org,J\xfcrgen\n", transfer.ImportOptions{}, "not UTF-8: is the file in Latin-1"},
		{"a clear password in Latin-1", "uid,clear_password\n1,J\xfcrgen-2024-Haus\n", transfer.ImportOptions{}, "not UTF-8: is the file in Latin-1"},
	} {
		eachEngine(t, func(t *testing.T, s *site) {
			s = s.Under(t, fullSchema())
			tt.o.CSV = true
			got := s.importOne(t, tt.in, tt.o)
			if got != tt.want && (strings.HasPrefix(tt.want, "{") || !strings.Contains(got, tt.want)) {
				t.Errorf("%s: got %s\nwant %s", tt.name, got, tt.want)
			}
		})
	}
}

// importOne imports an input of one entry, and returns its export or the reason of its refusal.
func (s *site) importOne(t *testing.T, in string, o transfer.ImportOptions) string {
	t.Helper()
	reason := ""
	o.Refused, o.WithoutIdentifier = func(_ int64, why string) { reason = why }, true
	report, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(in), o)
	if err != nil {
		return err.Error()
	}
	if report.Read != 1 {
		return fmt.Sprintf("%+v", report)
	}
	return strings.TrimSpace(s.export(t, transfer.ExportOptions{})) + reason
}

// TestTableRejects checks that the rejects of a table with a line sep= can be imported unchanged,
// and that they name the lines of the table.
func TestTableRejects(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		var rejects strings.Builder
		o := transfer.ImportOptions{CSV: true, Rejects: &rejects}
		s.importText(t, "sep=;\nuid;added;name;;\n1;soon;Ann;;\n", o, transfer.Report{Read: 1, Refused: 1})
		want := "sep=;\nuid;added;name;~line;~reason;~text\n1;soon;Ann;3;"
		if !strings.HasPrefix(rejects.String(), want) {
			t.Errorf("the rejects are\n%s\nwant them to begin with\n%s", rejects.String(), want)
		}
		s.importText(t, strings.Replace(rejects.String(), "soon", "2024-01-02", 1), o, created(1))
	})
}

// TestRejectedNull checks that a quoted text that equals the word for no value keeps its quotes in
// the rejects.
func TestRejectedNull(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		var rejects strings.Builder
		o := transfer.ImportOptions{CSV: true, Null: "NULL", Rejects: &rejects}
		s.importText(t, "uid,added,name,job\n1,soon,\"NULL\",NULL\n", o, transfer.Report{Read: 1, Refused: 1})
		o.Rejects = nil
		s.importText(t, strings.Replace(rejects.String(), "soon", "2024-01-02", 1), o, created(1))
		const want = `{"type":"user","facets":{"added":"2024-01-02T00:00:00.000Z","name":"NULL","uid":"1"}}`
		if got := strings.TrimSpace(s.export(t, transfer.ExportOptions{})); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// TestRejectedFormulas checks that no spreadsheet runs a cell of the rejects, and that an import of
// the rejects stores the original values.
func TestRejectedFormulas(t *testing.T) {
	const in = "uid;added;name;job;@col\n1;soon;=A1;\"'=x\";'y\n2;soon;=\"+49\";\"=\"\"=\"\"\"\"x\"\"\"\"\"\"\";-1\n"
	eachEngine(t, func(t *testing.T, s *site) {
		declared := fullSchema()
		declared.Types["user"].Fields["col"] = schema.Field{}
		s = s.Under(t, declared)
		var rejects strings.Builder
		o := transfer.ImportOptions{CSV: true, Delimiter: ';', Map: map[string]string{"@col": "col"}, Rejects: &rejects, WithoutIdentifier: true}
		s.importText(t, in, o, transfer.Report{Read: 2, Refused: 2})
		if regexp.MustCompile(`(?m)(^|;)"?[=+@-]`).MatchString(rejects.String()) {
			t.Errorf("a spreadsheet would run\n%s", rejects.String())
		}
		o.Rejects = nil
		s.importText(t, strings.ReplaceAll(rejects.String(), "soon", "2024-01-02"), o, created(2))
		for uid, want := range map[string][3]string{"1": {"=A1", "'=x", "'y"}, "2": {"+49", `="x"`, "-1"}} {
			e, err := s.Type(t, "user").Find(s.Ctx, hints.UID(uid))
			if got := [3]string{e.Text("name"), e.Text("job"), e.Text("col")}; err != nil || got != want {
				t.Errorf("%s: got %q, %v; want %q", uid, got, err, want)
			}
		}
	})
}

// TestMySQLBackslashes checks that a table whose quotes are escaped with backslashes causes one
// error, which ends the import.
func TestMySQLBackslashes(t *testing.T) {
	const in = "\"uid\",\"name\",\"job\"\n\"1\",\"Anna \\\"Ann\\\" Berg\",\"cook\"\n\"2\",\"Bert\",\"a\\\\b\"\n"
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		report, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(in), transfer.ImportOptions{CSV: true})
		if _, ok := errors.AsType[*transfer.ReadError](err); !ok || !strings.Contains(err.Error(), "a quote after a backslash, as MySQL writes it") || report.Read != 0 {
			t.Errorf("got %+v, %v; want a ReadError that names MySQL", report, err)
		}
	})
}

// TestOpenQuotes checks that the lines inside a cell never become separate rows, even after a cell
// ="TEXT" or one with a stray quote. Otherwise, the author of the cell could make accounts.
func TestOpenQuotes(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		for _, first := range []string{`="0049"`, `5" pipe`} {
			in := "uid,job,email,name\n1,cook,ann@x.org,Ann\n" + first + ",\"hi\n2,cook,eve@x.org,Eve\nbye\",bob@x.org,Bob\n"
			report, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(in), transfer.ImportOptions{CSV: true, DryRun: true})
			if bad, ok := errors.AsType[*transfer.ReadError](err); !ok || bad.Line != 3 || report.Read != 1 {
				t.Errorf("%s: got %+v, %v; want a ReadError in line 3", first, report, err)
			}
		}
	})
}

// TestDates imports a date in each common format, and checks that ambiguous dates are refused.
func TestDates(t *testing.T) {
	berlin := time.FixedZone("+01:00", 3600)
	const second = "2024-01-02T03:04:05.000Z"
	rows := []struct {
		text string
		zone *time.Location
		want string // the date, "" for none, or the reason of a refusal
	}{
		{"2024-01-02T03:04:05Z", nil, second},
		{"2024-01-02T03:04:05.123456Z", nil, "2024-01-02T03:04:05.123Z"},
		{"2024-01-02T03:04:05+02:00", nil, "2024-01-02T01:04:05.000Z"},
		{"2024-01-02 03:04:05+00", nil, second},
		{"2024-01-02 03:04:05.123456+00", nil, "2024-01-02T03:04:05.123Z"},
		{"2024-01-02 03:04:05.5+00:00", nil, "2024-01-02T03:04:05.500Z"},
		{"2024-01-02 03:04:05-0330", nil, "2024-01-02T06:34:05.000Z"},
		{"2024-01-02 03:04:05.000000 +00:00", nil, second},
		{"2024-01-02 03:04:05 UTC", nil, second},
		{"2024-01-02 03:04:05 +0000 UTC", nil, second},
		{"2024-01-02 03:04:05.123Z", nil, "2024-01-02T03:04:05.123Z"}, // PocketBase
		{"2024-01-02 03:04Z", nil, "2024-01-02T03:04:00.000Z"},
		{"2024-01-02 03:04:05", nil, "a time without a time zone; write it with its zone, such as +00, or name the zone (userdb import --zone)"},
		{"2024-01-02 03:04:05", time.UTC, second},
		{"2024-01-02T03:04:05.123", time.UTC, "2024-01-02T03:04:05.123Z"}, // Django
		{"2024-01-02T03:04:05", berlin, "2024-01-02T02:04:05.000Z"},
		{"2024-01-02 03:04:05+00", berlin, second},
		{"2024-02-30 03:04:05", time.UTC, "no such day or time of day"},
		{"2024-02-30 03:04:05+00", nil, "no such day or time of day"},
		{"1704164645", nil, second},
		{"1704164645.25", nil, "2024-01-02T03:04:05.250Z"},
		{"1704164645000", nil, second},
		{"1704164645000000", nil, second},
		{"45293", nil, "a number of days, as spreadsheets store dates"},
		{"45293.127835648", nil, "a number of days, as spreadsheets store dates"},
		{"1704164645123456789", nil, "2024-01-02T03:04:05.123Z"},
		// the format of Active Directory
		{"133486382450000000", nil, "a number that is neither seconds nor milliseconds"},
		// in milliseconds, a time in 1976
		{"202401020304", nil, "a number that is neither seconds nor milliseconds"},
		{"/Date(1704164645000)/", nil, second}, // of .NET
		{"2024/01/02 03:04:05", time.UTC, second},
		{"2024/01/02", nil, "2024-01-02T00:00:00.000Z"},
		{"2024-01-02t03:04:05z", nil, second},
		{"2024-01-02 03:04:05.1234567 +00:00", nil, "2024-01-02T03:04:05.123Z"}, // of SQL Server
		{"2024-01-02 04:04:05.123456789 +0100 CET", nil, "2024-01-02T03:04:05.123Z"},
		{"2024-01-02T04:04:05+01:00[Europe/Berlin]", nil, second},
		{"2024-01-02 04:04:05 CET", nil, "not a date like"},
		{"2024-01-02T03:04:05+2400", nil, "no such time zone"},
		{"20240102T030405Z", nil, second},
		{"Tue Jan 02 03:04:05 UTC 2024", nil, second},
		{"Tue Jan  2 03:04:05 UTC 2024", nil, second},
		{"Tue Jan 02 2024 04:04:05 GMT+0100 (Central European Standard Time)", nil, second},
		{"Tue, 2 Jan 2024 03:04:05 +0000", nil, second},
		{"2 Jan 2024 04:04:05 +0100", nil, second},
		{"20240102030405", nil, "a time without a time zone; write it with its zone"},
		{"20240102030405", time.UTC, second},
		{"20240102030405", berlin, "2024-01-02T02:04:05.000Z"},
		{"20241302030405", time.UTC, "a number that is neither seconds nor milliseconds since 1970"},
		{"20240102030405Z", nil, second},
		{"Tue, 02 Jan 2024 03:04:05 GMT", nil, second},
		{"Tue, 02 Jan 2024 04:04:05 +0100", nil, second},
		{"0000-00-00 00:00:00", nil, ""},
		{"0000-00-00", nil, ""},
		{"2024-01-02", nil, "2024-01-02T00:00:00.000Z"},
		{"02.01.2024", nil, "a date whose day and month cannot be told apart"},
		{"1/2/2024", nil, "a date whose day and month cannot be told apart"},
	}
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		for _, tt := range rows {
			if err := s.Type(t, "user").Delete(s.Ctx, hints.UID("1")); err != nil && !errors.Is(err, userdb.ErrNotFound) {
				t.Fatal(err)
			}
			for _, in := range []struct {
				text string
				csv  bool
			}{{"uid,added\n1,\"" + tt.text + "\"\n", true}, {`{"facets":{"uid":"1","added":"` + tt.text + `"}}`, false}} {
				got := s.importOne(t, in.text, transfer.ImportOptions{CSV: in.csv, Zone: tt.zone, OnDuplicate: transfer.DuplicateUpdate})
				want := `{"type":"user","facets":{"uid":"1"}}`
				if strings.HasSuffix(tt.want, "Z") {
					want = `{"type":"user","facets":{"added":"` + tt.want + `","uid":"1"}}`
				}
				if tt.want != "" && !strings.HasSuffix(tt.want, "Z") {
					if !strings.Contains(got, "added: cannot be read as date: "+tt.want) {
						t.Errorf("%q: got %s, want the reason %q", tt.text, got, tt.want)
					}
				} else if got != want {
					t.Errorf("%q: got %s, want %s", tt.text, got, want)
				}
			}
		}
	})
}

// TestFlatJSON imports objects in the formats of databases and scripts: lists, numbers, null, and
// the values of MongoDB.
func TestFlatJSON(t *testing.T) {
	o := func(pairs ...string) transfer.ImportOptions {
		o := transfer.ImportOptions{Map: map[string]string{}}
		for i := 0; i < len(pairs); i += 2 {
			o.Map[pairs[i]] = pairs[i+1]
		}
		return o
	}
	ids := o("id", "uid", "email", "email", "name", "name")
	mongo := o("_id", "uid", "username", "name", "createdAt", "added")
	mongo.Ignore = []string{"emails"}
	for _, tt := range []struct {
		name, in string
		o        transfer.ImportOptions
		want     string // an export, or the reason of a refusal
	}{
		{"a list", `[{"id": 1, "email": "a@x.org", "name": "Ann"}]`, ids, `{"type":"user","facets":{"email":"a@x.org","name":"Ann","uid":"1"}}`},
		{"a list over lines", "[\n  {\n    \"id\": 1,\n    \"email\": \"a@x.org\",\n \"name\": null\n  }\n]\n", ids, `{"type":"user","facets":{"email":"a@x.org","uid":"1"}}`},
		{"an object over lines", "{\n  \"id\": 1,\n  \"email\": \"a@x.org\",\n \"name\": \"\"\n}\n", ids, `{"type":"user","facets":{"email":"a@x.org","uid":"1"}}`},
		{"a list of an export", `[{"type":"user","facets":{"uid":"1","name":"Ann"}}]`, transfer.ImportOptions{}, `{"type":"user","facets":{"name":"Ann","uid":"1"}}`},
		{"a large number", `{"id":12345678901234567890123,"email":null,"name":"Ann"}`, ids, `{"type":"user","facets":{"name":"Ann","uid":"12345678901234567890123"}}`},
		{"a number with an exponent", `{"id":1e3,"email":null,"name":"Ann"}`, ids, "a number that is not a whole number in plain digits"},
		{"a number with a fraction", `{"id":1.0,"email":null,"name":"Ann"}`, ids, "a number that is not a whole number in plain digits"},
		{"negative zero", `{"id":-0,"email":null,"name":"Ann"}`, ids, "a number that is not a whole number in plain digits"},
		{"no hash", `{"id":"1","hash":null}`, o("id", "uid", "hash", "password"), `{"type":"user","facets":{"uid":"1"}}`},
		{"seconds", `{"id":"1","at":1704164645}`, o("id", "uid", "at", "added"), `{"type":"user","facets":{"added":"2024-01-02T03:04:05.000Z","uid":"1"}}`},
		{
			"MongoDB", `{"_id":{"$oid":"5f0c1e2b9d1e8a0017c3b111"},"username":"anna","emails":[{"address":"a@x.org"}],"createdAt":{"$date":"2024-01-02T03:04:05.000Z"}}`,
			mongo, `{"type":"user","facets":{"added":"2024-01-02T03:04:05.000Z","name":"anna","uid":"5f0c1e2b9d1e8a0017c3b111"}}`,
		},
		{
			"MongoDB's numbers", `{"_id":{"$numberLong":"175928847299117063"},"username":null,"emails":[],"createdAt":{"$date":{"$numberLong":"1704164645000"}}}`,
			mongo, `{"type":"user","facets":{"added":"2024-01-02T03:04:05.000Z","uid":"175928847299117063"}}`,
		},
		{"a list of an object", `{"users":[{"id":1,"email":"a@x.org","name":"Ann"}]}`, ids, `{"type":"user","facets":{"email":"a@x.org","name":"Ann","uid":"1"}}`},
		{"a list of an object over lines", "{\"users\": [\n {\"id\":1,\"email\":null,\"name\":\"Ann\"}\n]}\n", ids, `{"type":"user","facets":{"name":"Ann","uid":"1"}}`},
		{"an object that ends on another line", "{\"id\":1,\n\"email\":null,\"name\":\"Ann\"}\n", ids, `{"type":"user","facets":{"name":"Ann","uid":"1"}}`},
		{
			"a list in an entry", `{"id":"1","items":[{"id":"2"}]}`,
			transfer.ImportOptions{Map: map[string]string{"id": "uid"}, Ignore: []string{"*"}},
			`{"type":"user","facets":{"uid":"1"}}`,
		},
		{"a date of Firestore", `{"id":"1","at":{"_seconds":1704164645,"_nanoseconds":0}}`, o("id", "uid", "at", "added"), `{"type":"user","facets":{"added":"2024-01-02T03:04:05.000Z","uid":"1"}}`},
		{"a name twice", `{"id":"1","id":"2","email":null,"name":"Ann"}`, ids, "twice"},
		{"NaN", `{"id":NaN,"email":null,"name":"Ann"}`, ids, "not JSON"},
		{"an object", `{"id":{"a":1},"email":null,"name":"Ann"}`, ids, "wrong type of JSON value"},
	} {
		eachEngine(t, func(t *testing.T, s *site) {
			s = s.Under(t, fullSchema())
			got := s.importOne(t, tt.in, tt.o)
			if got != tt.want && (strings.HasPrefix(tt.want, "{") || !strings.Contains(got, tt.want)) {
				t.Errorf("%s: got %s\nwant %s", tt.name, got, tt.want)
			}
		})
	}
}

// TestKeycloakCredentials imports the credentials of older versions of Keycloak, and clear
// passwords that people wrote for an import.
func TestKeycloakCredentials(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		s.importText(t, sample(t, "kc_legacy.json"), transfer.ImportOptions{From: "keycloak"}, created(2))
		for _, name := range []string{"anna@example.com", "bert"} {
			if _, err := s.Type(t, "user").Login(s.Ctx, name, "Sommerhaus-2024", userdb.Attempt{}); err != nil {
				t.Errorf("login as %s: %v", name, err)
			}
		}
		s = s.subNamespace(t, "plain")
		s.importText(t, sample(t, "kc_plain.json"), transfer.ImportOptions{From: "keycloak"}, created(2))
		for _, name := range []string{"anna@example.com", "bert"} {
			if _, err := s.Type(t, "user").Login(s.Ctx, name, "Sommerhaus-2024", userdb.Attempt{}); err != nil {
				t.Errorf("a clear password: login as %s: %v", name, err)
			}
		}

		s = s.subNamespace(t, "more")
		const secret = `{\"value\":\"$2a$05$abcdefghijklmnopqrstuuxglPpnRcUsOY9v566GLoWy42/7hJY4i\"}`
		s.importText(t, `[{"id":"1","username":"ann","credentials":[{"type":"password","secretData":"`+secret+`","credentialData":"{\"hashIterations\":5,\"algorithm\":\"bcrypt\"}"}]},
			{"id":"2","username":"ben","credentials":[{"type":"password","value":"Sommerhaus-2024","temporary":true}]}]`,
			transfer.ImportOptions{From: "keycloak"}, transfer.Report{Read: 2, Created: 2, RequiredAction: 1})
		for _, name := range []string{"ann", "ben"} {
			s.requireLogin(t, name, "Sommerhaus-2024", true)
		}
	})
}

// TestKeepIDs checks that the IDs of Auth0 can be kept unchanged.
func TestKeepIDs(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		const in = `{"user_id":"auth0|1","email":"a@x.org"}` + "\n" + `{"user_id":"sms|3"}`
		s.importText(t, in, transfer.ImportOptions{From: "auth0", KeepIDs: true, WithoutIdentifier: true}, created(2))
		for _, uid := range []string{"auth0|1", "sms|3"} {
			if _, err := s.Type(t, "user").Find(s.Ctx, hints.UID(uid)); err != nil {
				t.Errorf("%s: %v", uid, err)
			}
		}
		_, err := transfer.Import(s.Ctx, s.DB, strings.NewReader("[]"), transfer.ImportOptions{From: "django", KeepIDs: true})
		if !errors.Is(err, transfer.ErrInput) {
			t.Errorf("KeepIDs without auth0: got %v, want ErrInput", err)
		}
	})
}
