package serve

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestPanic checks that a handler that panics is logged as an error with its cause, and that the
// client gets a problem, or a broken connection if a part of the response has been sent.
func TestPanic(t *testing.T) {
	for path, want := range map[string]struct {
		status int
		err    error
	}{"/": {http.StatusInternalServerError, nil}, "/late": {http.StatusOK, io.ErrUnexpectedEOF}} {
		var logs bytes.Buffer
		s := &Service{options: Options{Logger: slog.New(slog.NewTextHandler(&logs, nil))}, requests: newRequestMetrics()}
		server := httptest.NewServer(s.middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/late" {
				fmt.Fprint(w, strings.Repeat("the first part", 1000))
			}
			panic("a fault")
		})))
		res, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(res.Body)
		res.Body.Close()
		server.Close()
		if res.StatusCode != want.status || err != want.err {
			t.Errorf("%s: %d, %v; want %d, %v", path, res.StatusCode, err, want.status, want.err)
		}
		if got := logs.String(); !strings.Contains(got, "level=ERROR") || !strings.Contains(got, `cause="panic: a fault"`) {
			t.Errorf("%s: the log has %q, want an error with its cause", path, got)
		}
	}
}
