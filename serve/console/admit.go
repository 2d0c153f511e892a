package console

import "net/http"

// Work says what a request needs capacity for. It depends on what is known about the sender.
type Work int

// The kinds of work. Requests without credentials do not compete with those that have them.
const (
	WorkSignIn  Work = iota // a visitor signs in or creates the first operator
	WorkSession             // a session is looked up
	WorkPage                // an operator is signed in
	WorkUpload              // an operator uploads a file
)

// requireOperator passes on the requests of operators who are signed in. Until its session is
// found, a request counts as WorkSession, so that it takes no capacity from these operators.
func (c *Console) requireOperator(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leaveLookup, ok := c.admit(w, r, WorkSession)
		if !ok {
			return
		}
		defer leaveLookup()
		c.requireSession(leaveLookup, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			leaveLookup()
			work := WorkPage
			if isUpload(r) {
				work = WorkUpload
			}
			if leave, ok := c.admit(w, r, work); ok {
				defer leave()
				next.ServeHTTP(w, r)
			}
		})).ServeHTTP(w, r)
	})
}

// admit reserves capacity. If it returns false, it has sent a response.
func (c *Console) admit(w http.ResponseWriter, r *http.Request, work Work) (leave func(), ok bool) {
	leave, err := c.options.Admit(r.Context(), work)
	if err != nil {
		w.Header().Set("Retry-After", "1")
		c.fail(w, r, err)
	}
	return leave, err == nil
}
