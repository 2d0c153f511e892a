package serve

import (
	"net/http"
	"path"
	"strings"
)

// clean answers paths with a part that is empty or dots. A mux would send the client to the path without that, which is another one:
// without an empty UID, DELETE .../entries//sessions ends the entry "sessions". Directories may write the base URL with a slash at its end.
func clean(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := strings.TrimSuffix(r.URL.EscapedPath(), "/")
		if p != "" && path.Clean(p) != p && !isSCIM(r.URL.Path) {
			writeProblem(w, r, problem(http.StatusNotFound, "not_found", "there is no such path: a part of it is empty, or dots"))
			return
		}
		next.ServeHTTP(w, r)
	})
}
