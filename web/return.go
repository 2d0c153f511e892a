package web

import (
	"net/http"
	"net/url"
	"strings"
)

// returnParameter is where Require puts the path that a visitor came for.
const returnParameter = "return"

// ReturnPath is where to send a visitor after signing in: the path that Require had them leave, from the query of the sign-in page or
// from a field of its form that is called return; "/" where there is none, or where it leads to another site.
func ReturnPath(r *http.Request) string {
	text := r.FormValue(returnParameter)
	u, err := url.Parse(text)
	// Browsers take a backslash for a slash, and leave out tabs and line ends.
	safe := err == nil && u.Scheme == "" && u.Host == "" && u.User == nil && strings.HasPrefix(u.Path, "/") &&
		strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//") && !strings.ContainsAny(text, "\\\t\r\n") && len(text) <= 2000
	if !safe {
		return "/"
	}
	return text
}
