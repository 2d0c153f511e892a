package transfer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"unicode/utf8"
)

// An inputForm is a form of input that has no name in ImportOptions.From.
type inputForm uint8

const (
	formLines inputForm = iota // JSON lines
	formList                   // a list of JSON objects, or objects of several lines each
	formCSV
)

// detectForm returns the form of an input that is not the export of a product, or an error if it is
// in another form than the options say. It reads nothing beyond the reader's buffer. The error
// quotes nothing of the input, which may hold secrets.
func detectForm(in *bufio.Reader, o ImportOptions) (inputForm, error) {
	text := peekText(in)
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	first = bytes.TrimSpace(first)
	bad := func(text string) (inputForm, error) { return 0, fmt.Errorf("%w: %s", ErrInput, text) }
	switch {
	case o.CSV && jsonBegin.Match(text):
		return bad("it looks like JSON, not like CSV: import it as JSON, under a name that does not end in .csv")
	case o.CSV && loneCR(text):
		return bad("its lines end with CR alone, as older programs on a Mac write them: save it with LF or CRLF at the ends of lines")
	case o.CSV:
		return formCSV, nil
	case len(text) == 0:
		return formLines, nil
	}
	isJSON, linesBelow := jsonBegin.Match(text), objectLine.Match(rest)
	product := ""
	if len(o.Map)+len(o.Ignore) == 0 {
		product = looksLikeProduct(text)
	}
	list, byID := "", firstObject.FindSubmatch(text)
	if !json.Valid(first) || !linesBelow {
		list = listName(text, o)
	}
	switch {
	case singleQuotes.Match(text):
		return bad(notQuoted)
	case isJSON && product != "":
		return bad(fmt.Sprintf("it looks like an export of %[1]s: import it as one (userdb import --from %[1]s)", product))
	case isJSON && text[0] == '[', list == "users":
		return formList, nil
	case list != "":
		return bad(fmt.Sprintf("it is an object with a list: write only the list (jq .%s)", list))
	case byID != nil && looksLikeValue(string(byID[1])):
		return bad("it is an object with an entry under each ID: write a list of the entries (jq '[.[]]')")
	case isJSON && bytes.HasSuffix(first, []byte("},")):
		return bad("its lines end with commas: put [ before the first line and ] after the last one, which has no comma")
	case isJSON && !json.Valid(first) && spansLines(text):
		return formList, nil
	case isJSON || linesBelow:
		return formLines, nil
	case text[0] == '{' || text[0] == '[':
		return bad(notQuoted)
	}
	return bad("it is neither JSON lines nor a JSON list: " + adviceFor(first))
}

// adviceFor says what to do with an input that is not JSON. first is its first line.
func adviceFor(first []byte) string {
	switch {
	case passwordLine.Match(first):
		return "it looks like a password file: put a line with the names of its columns, such as name:password, before the others, " +
			"and import it as CSV with a colon as the delimiter (userdb import --delimiter :)"
	case bytes.ContainsRune(first, '\t'):
		return `if it is a table, import it as CSV with its delimiter (userdb import --delimiter '\t')`
	case bytes.ContainsRune(first, ';') && !bytes.ContainsRune(first, ','), bytes.ContainsRune(first, '|'):
		return "if it is a table, import it as CSV with its delimiter (userdb import --delimiter)"
	case bytes.ContainsRune(first, ','):
		return "if it is CSV, import it as CSV (userdb import --csv)"
	}
	return "want one JSON object a line, or a list of them"
}

// listName returns the name of the list if text is an object that seems to hold the entries in a
// list, or "". An object with names that the options map is an entry.
func listName(text []byte, o ImportOptions) string {
	m := listMember.FindSubmatchIndex(text)
	if m == nil {
		return ""
	}
	name := string(text[m[2]:m[3]])
	for mapped := range o.Map {
		if bytes.Contains(text[:m[3]+1], []byte(`"`+mapped+`"`)) {
			return ""
		}
	}
	if slices.Contains(o.Ignore, name) {
		return ""
	}
	return name
}

// peekText returns the text in the buffer of a reader, without white space at its beginning.
func peekText(in *bufio.Reader) []byte {
	head, _ := in.Peek(max(1, in.Buffered())) // an error recurs when the input is read
	return bytes.TrimLeft(head, " \t\r\n")
}

// spansLines reports whether the first JSON value in text has several lines, or is followed by
// another one on its line.
func spansLines(text []byte) bool {
	var value json.RawMessage
	dec := json.NewDecoder(bytes.NewReader(text))
	switch err := dec.Decode(&value); {
	case err == io.ErrUnexpectedEOF: // text is only a part of the input
		return bytes.ContainsRune(text, '\n')
	case err != nil:
		return false
	}
	rest := bytes.TrimLeft(text[dec.InputOffset():], " \t\r")
	return bytes.ContainsRune(value, '\n') || bytes.HasPrefix(rest, []byte("{"))
}

const notQuoted = "the first line is not JSON: names and texts must be in double quotes"

var (
	jsonBegin    = regexp.MustCompile(`^[{\[]\s*(?:["{\[\]}]|$)`)
	singleQuotes = regexp.MustCompile(`^[{\[][{\[\s]*'`)
	firstObject  = regexp.MustCompile(`^\{\s*"([^"]*)"\s*:\s*\{`)
	objectLine   = regexp.MustCompile(`(?m)^\{\s*["}]`)
	passwordLine = regexp.MustCompile(`^[^\s:,;{\[]+:[^\s,;]+$`)
	ldifBegin    = regexp.MustCompile(`^(?:(?:#[^\n]*)?\r?\n)*(?:dn:(?:: ?| ?[\w.]+=)|version: ?\d|# extended LDIF)`)
	yamlLine     = regexp.MustCompile(`^(?:---|%YAML .*|- [\w"]+:(?: .*)?|[\w"]+:)$`)
	sqlLine      = regexp.MustCompile(`^(?:--( |$)|/\*|SET |COPY \S+ .*FROM stdin|(?i:INSERT INTO |CREATE TABLE |BEGIN TRANSACTION|PRAGMA ))`)
	// listMember matches an object that holds the entries in a list, after simple members.
	listMember = regexp.MustCompile(`^\{\s*(?:"[^"]*"\s*:\s*(?:"[^"]*"|[-\d.]+|true|false|null|\[[^\[\]{}]*\])\s*,\s*)*` +
		`"(users|accounts|data|rows|results|items|records|documents|entries|members|content|value|Users|Resources|Items)"\s*:\s*\[\s*[{\[\]]`)
)

// forms lists other kinds of files by their first bytes, and what to do about each.
var forms = []struct{ begin, what string }{
	{"PK\x03\x04", "a spreadsheet or another archive: save the sheet as CSV"},
	{"\xd0\xcf\x11\xe0", "a spreadsheet: save the sheet as CSV"},
	{"\x1f\x8b", "a compressed file: unpack it first"},
	{"BZh", "a compressed file: unpack it first"},
	{"\xfd7zXZ", "a compressed file: unpack it first"},
	{"\x28\xb5\x2f\xfd", "a compressed file: unpack it first"},
	{"SQLite format 3", "an SQLite database: export the table with sqlite3 -header -csv"},
	{"PGDMP", "a dump of a database: export the table as CSV, such as with psql --csv"},
	{"REDIS0", "a snapshot of Redis: start a server with it, and see docs/moving.md"},
	{"PAR1", "Parquet: export it as CSV or as JSON"},
	{"%PDF", "a PDF file"},
	{"<", "XML or HTML: export it as CSV or as JSON"},
}

// otherForm returns an error that says what to do if an input seems to be in a form that cannot be
// imported, and nil otherwise.
func otherForm(in *bufio.Reader) error {
	text := peekText(in)
	first, _, _ := bytes.Cut(text, []byte("\n"))
	first = bytes.TrimSpace(first)
	what := ""
	for _, form := range forms {
		if bytes.HasPrefix(text, []byte(form.begin)) {
			what = form.what
		}
	}
	switch {
	case what != "":
	case sqlLine.Match(first):
		what = "a dump of a database: export the table as CSV, such as with psql --csv"
	case ldifBegin.Match(text):
		what = "LDIF: write its entries as CSV or as JSON"
	case yamlLine.Match(first):
		what = "YAML: write it as JSON, such as with yq -o json"
	case phpMyAdmin.Match(text):
		what = "an export of phpMyAdmin: export the table as CSV, or take its list called data"
	case !jsonBegin.Match(text) && bytes.ContainsRune(text[:min(len(text), 512)], 0):
		what = "a binary file, not like text: export it as CSV or as JSON"
	default:
		return nil
	}
	return fmt.Errorf("%w: it looks like %s", ErrInput, what)
}

var phpMyAdmin = regexp.MustCompile(`^\[\s*\{"type":"header"`)

// productMarks match the names by which the first account in the export of a product is recognized.
var productMarks = []struct {
	product string
	mark    *regexp.Regexp
}{
	{"django", regexp.MustCompile(`"model"\s*:\s*"[^"]*"(?s:.*)"fields"\s*:\s*\{`)},
	{"firebase", regexp.MustCompile(`"localId"\s*:`)},
	{"keycloak", regexp.MustCompile(`"(?:createdTimestamp|secretData|disableableCredentialTypes|hashedSaltedValue)"\s*:`)},
	{"auth0", regexp.MustCompile(`"(?:identities|custom_password_hash|tenant)"\s*:|"user_id"\s*:\s*"(?:auth0|sms|google-oauth2)\|`)},
}

// looksLikeProduct returns the product whose export a JSON text looks like, or "".
func looksLikeProduct(text []byte) string {
	text = text[:min(len(text), 4096)]
	for _, p := range productMarks {
		if p.mark.Match(text) && !bytes.Contains(text, []byte(`"facets"`)) {
			return p.product
		}
	}
	return ""
}

// loneCR reports whether the first line of a CSV ends with CR but not with CRLF.
func loneCR(text []byte) bool {
	quoted := false
	for i, c := range text {
		switch {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '\n':
			return false
		case c == '\r' && i+1 < len(text):
			return text[i+1] != '\n'
		}
	}
	return false
}

// sepLine matches the line that spreadsheets write before the header to name the delimiter.
var sepLine = regexp.MustCompile(`^(?i:"?sep=)([^"\r\n])"?\r?\n`)

// cutSepLine reads the line that names the delimiter, if there is one. It returns the line and the
// delimiter.
func cutSepLine(in *bufio.Reader) (text string, delimiter rune) {
	head, _ := in.Peek(min(16, in.Buffered()))
	m := sepLine.FindSubmatch(head)
	if m == nil {
		return "", 0
	}
	text = string(m[0])
	_, _ = in.Discard(len(text)) // cannot fail: the bytes are buffered
	delimiter, _ = utf8.DecodeRune(m[1])
	return text, delimiter
}

// A jsonList reads objects like those of JSON lines, but from a list, from the list "users" of an
// object, or with several lines for each object.
type jsonList struct {
	*productUsers
	lines *jsonLines
}

func (s jsonList) mayHaveClearPassword(l *line) bool { return s.lines.mayHaveClearPassword(l) }

func (s jsonList) parse(l *line, r *reading) error { return s.lines.parse(l, r) }

func (s jsonList) reject(w io.Writer, l *line) error { return s.productUsers.reject(w, l) }
