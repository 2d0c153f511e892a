package web

import (
	"net/http"
	"net/url"
	"strings"
)

// returnParameter names the form value in which Require passes the path that a visitor asked for.
const returnParameter = "return"

// ReturnPath returns the path to redirect a visitor to after signing in. It is the path from which
// Require sent the visitor away. It comes from the parameter "return" in the query of the sign-in
// page or in its form. ReturnPath returns "/" if there is no such path or if it leads to another
// site.
func ReturnPath(r *http.Request) string {
	text := r.FormValue(returnParameter)
	u, err := url.Parse(text)
	// Browsers treat a backslash as a slash and drop tabs and line ends.
	safe := err == nil && u.Scheme == "" && u.Host == "" && u.User == nil && strings.HasPrefix(u.Path, "/") &&
		strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//") && !strings.ContainsAny(text, "\\\t\r\n") && len(text) <= 2000
	if !safe {
		return "/"
	}
	return text
}

// withReturn returns the path of a page, with the path to which ReturnPath then leads.
func withReturn(to, path string) string {
	return to + "?" + url.Values{returnParameter: {path}}.Encode()
}

// withoutDone returns a path without the parameter for the message after a form. What one visitor
// did must not be reported to another one who signs in next.
func withoutDone(path string) string {
	u, err := url.Parse(path)
	if err != nil || !u.Query().Has("done") {
		return path
	}
	query := u.Query()
	query.Del("done")
	u.RawQuery = query.Encode()
	return u.String()
}
