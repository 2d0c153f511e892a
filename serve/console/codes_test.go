package console

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// TestPagesAgreeWithTheTable checks that a page about an error has the status in the table of
// codes. The exception is a UID that nobody can have, whose page does not exist. Errors that no
// operator can solve are logged.
func TestPagesAgreeWithTheTable(t *testing.T) {
	for _, code := range userdb.Codes() {
		err, want := coded.New(code, "an error"), code.HTTPStatus()
		if got := statusOf(web.Problems(err)); got != want {
			t.Errorf("a form with %s has the status %d, want %d", code, got, want)
		}
		if code == userdb.CodeHint {
			want = userdb.CodeNotFound.HTTPStatus()
		}
		logged := false
		c := &Console{options: Options{OnFailure: func(*http.Request, error) { logged = true }}}
		w := httptest.NewRecorder()
		c.fail(w, httptest.NewRequest(http.MethodGet, "/console/find", nil), err)
		if w.Code != want || (w.Code >= http.StatusInternalServerError) && !logged {
			t.Errorf("%s has the status %d, want %d; logged: %v, want true if the status is 500 or more", code, w.Code, want, logged)
		}
	}
	several := []web.Problem{{Code: userdb.CodeDuplicate}, {Code: userdb.CodeInvalid}}
	if got := statusOf(several); got != http.StatusUnprocessableEntity {
		t.Errorf("a form with a taken and an invalid value has the status %d, want 422 as over HTTP", got)
	}
}
