package serve

import (
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/userdb"
)

// clean answers paths with a part that is empty or dots. A mux would send the client to the path without that, which is another one:
// without an empty UID, DELETE .../entries//sessions ends the entry "sessions". Directories may write the base URL with a slash at its end.
func clean(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := strings.TrimSuffix(r.URL.EscapedPath(), "/")
		if p != "" && path.Clean(p) != p && !isSCIM(r.URL.Path) {
			writeProblem(w, r, problem(userdb.CodeNotFound, "there is no such path: a part of it is empty, or dots"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// repeatable are the parameters that a query may have more than once.
var repeatable = []string{"where", "tag", "kind"}

// checkQuery refuses a query of which a part would be passed over: one that cannot be read, such as a filter or dry_run, or the second
// of two. Directories write parameters as they like.
func checkQuery(r *http.Request) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return usage("the query cannot be read")
	}
	var wrong []Wrong
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if len(values[name]) > 1 && !slices.Contains(repeatable, name) && !isSCIM(r.URL.Path) {
			wrong = append(wrong, misuse(name, "it is there twice"))
		}
	}
	return misused(wrong)
}
