package console

import (
	"net/http"
	"strings"
)

// Work is what a request needs a place for, by what is known of its sender.
type Work int

// The kinds of work. What has no credentials yet takes no place from what has.
const (
	Visiting  Work = iota // a visitor signs in, or makes the first operator
	LookingUp             // a session is looked up
	Operating             // an operator is signed in
	Uploading             // an operator sends a file
)

// signedIn goes on for operators. Until their session is found they have no place among those who
// are signed in.
func (c *Console) signedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found, is := c.admit(w, r, LookingUp)
		if !is {
			return
		}
		defer found()
		c.auth.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			found()
			work := Operating
			if isUpload(r) {
				work = Uploading
			}
			if leave, is := c.admit(w, r, work); is {
				defer leave()
				next.ServeHTTP(w, r)
			}
		})).ServeHTTP(w, r)
	})
}

// admit takes a place, and else answers.
func (c *Console) admit(w http.ResponseWriter, r *http.Request, work Work) (leave func(), is bool) {
	leave, err := c.options.Admit(r.Context(), work)
	if err != nil {
		w.Header().Set("Retry-After", "1")
		c.fail(w, r, err)
	}
	return leave, err == nil
}

// isUpload reports whether a request sends a file, which takes its own time.
func isUpload(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/")
}
