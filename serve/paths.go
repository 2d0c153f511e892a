package serve

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/coffeenode/userdb/userdb"
)

// rejectUncleanPaths responds with 404 to paths with a segment that is empty, "." or "..". A mux
// would redirect them to a path without that segment, which means something else: with an empty
// UID, DELETE .../entries//sessions would delete the entry "sessions". SCIM is exempt, because
// directories may write the base URL with a slash at its end.
func rejectUncleanPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := strings.TrimSuffix(r.URL.EscapedPath(), "/")
		if p != "" && path.Clean(p) != p && !isSCIM(r.URL.Path) {
			writeProblem(w, r, problem(userdb.CodeNotFound, "there is no such path: a segment is empty or consists of dots"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (p TypePath) typeName() string { return p.Type }

// handleType registers a route whose path names a type. It calls do with that type, if the key may
// see it.
func handleType[I interface{ typeName() string }, O any](s *Service, r route, do func(ctx context.Context, c *call, t *userdb.Type, in *I) (*O, error)) {
	handle(s, r, func(ctx context.Context, c *call, in *I) (*O, error) {
		t, err := c.findType(ctx, (*in).typeName())
		if err != nil {
			return nil, err
		}
		return do(ctx, c, t, in)
	})
}

// repeatableParams lists the parameters that a query may contain more than once.
var repeatableParams = []string{"where", "tag", "kind"}

// checkQuery refuses a query if a part of it, such as a filter or dry_run, would be ignored: if the
// query cannot be parsed, or if it repeats a parameter that takes one value. Directories may repeat
// any parameter. It also refuses what no value can have: bytes that are not UTF-8, and control
// characters, except for line breaks and tabs in the text of a field. It leaves filters of
// directories to their parser.
func checkQuery(r *http.Request) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return usageProblem("the query cannot be parsed")
	}
	var wrong []FieldProblem
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if len(values[name]) > 1 && !slices.Contains(repeatableParams, name) && !isSCIM(r.URL.Path) {
			wrong = append(wrong, paramProblem(name, "appears twice"))
		}
		if isSCIM(r.URL.Path) && name == "filter" {
			continue
		}
		if slices.ContainsFunc(values[name], func(text string) bool { return !isPlain(name, text) }) {
			wrong = append(wrong, paramProblem(name, "is not UTF-8, or has a control character"))
		}
	}
	return queryProblem(wrong)
}

// fieldParams lists the parameters that take the text of a field.
var fieldParams = []string{"where", "prefix", "gte", "lte"}

// isPlain reports whether the value of a parameter is UTF-8 without control characters, except for
// tabs and line breaks in the text of a field.
func isPlain(param, value string) bool {
	return utf8.ValidString(value) && !strings.ContainsFunc(value, func(r rune) bool {
		return unicode.IsControl(r) && !(strings.ContainsRune("\t\n\r", r) && slices.Contains(fieldParams, param))
	})
}
