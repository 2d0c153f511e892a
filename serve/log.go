package serve

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// requestIDPattern matches the request IDs that are accepted from clients.
var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// middleware wraps all routes. It gives requests their IDs, writes the log, and responds if a
// handler panicked.
func (s *Service) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info := &requestInfo{id: r.Header.Get("X-Request-Id"), origin: web.Origin(r, s.options.Proxies)}
		if !requestIDPattern.MatchString(info.id) {
			info.id = rand.Text()
		}
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, info))
		w.Header().Set("X-Request-Id", info.id)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if s.active.Add(1); s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		defer s.active.Add(-1)
		begun, recorder := time.Now(), &statusRecorder{ResponseWriter: w}
		defer s.logRequest(r, info, recorder, begun)
		if info.err = checkHeaders(r); info.err != nil {
			writeProblem(recorder, r, problemOf(info.err))
			return
		}
		next.ServeHTTP(recorder, r)
	})
}

// singleHeaders lists the headers of requests that take one value, in their canonical forms.
var singleHeaders = []string{"Authorization", "Content-Type", "Idempotency-Key", "Last-Event-Id"}

// listHeaders lists the headers that handlers read and whose values are lists. Several lines of one
// header are one list.
var listHeaders = []string{"If-Match", "If-None-Match"}

// conditionHeaders lists the headers that must not be empty. A client whose variable is empty would
// otherwise change an entry without the condition that it meant to set, or create an entry twice.
var conditionHeaders = []string{"If-Match", "Idempotency-Key"}

// checkHeaders refuses a request with a long host, and one that repeats any of singleHeaders,
// because a proxy and this service could read different values. It also refuses a request in which
// any of conditionHeaders is empty. A proxy that checks a visitor's session may pass on any header
// that the visitor sent. Of these headers, that check reads only Authorization, which the proxy
// sets, so the others may be repeated or empty there. checkHeaders joins the lines of each of
// listHeaders into one.
func checkHeaders(r *http.Request) error {
	if len(r.Host) > maxHost {
		return usageProblem("the Host header is too long")
	}
	for _, name := range singleHeaders {
		if len(r.Header[name]) > 1 && (name == "Authorization" || r.URL.Path != sessionCheckPath) {
			return usageProblem("the %s header appears more than once", name)
		}
	}
	for _, name := range conditionHeaders {
		if lines := r.Header[name]; slices.Contains(lines, "") && r.URL.Path != sessionCheckPath {
			return usageProblem("the %s header is empty", name)
		}
	}
	for _, name := range listHeaders {
		if lines := r.Header[name]; len(lines) > 1 {
			r.Header[name] = []string{strings.Join(lines, ", ")}
		}
	}
	return nil
}

// maxHost limits the length of a request's Host header in bytes. SCIM responses repeat it in the
// URL of each resource. Host names have at most 253 bytes.
const maxHost = 255

// logRequest writes a line about a request. It leaves out the request's path, parameters and body.
// If the handler panicked before it wrote anything, logRequest also responds. If it panicked later,
// logRequest makes net/http close the connection, because a truncated response must not look
// complete. If a response broke off, the line has the status that was already sent and the code of
// the error that ended the response.
func (s *Service) logRequest(r *http.Request, info *requestInfo, recorder *statusRecorder, begun time.Time) {
	p := recover()
	aborted := p == http.ErrAbortHandler //nolint:errorlint // it is never wrapped
	if p != nil && !aborted {
		info.err = fmt.Errorf("panic: %v", p)
		if aborted = recorder.status != 0; !aborted {
			writeProblem(recorder, r, problemOf(info.err))
		}
	}
	took := time.Since(begun)
	s.observe(info, recorder.status, took)
	clientGone := r.Context().Err() != nil // the client disconnected, which is not our failure
	level, attrs := slog.LevelInfo, []slog.Attr{
		slog.String("id", info.id), slog.String("method", methodName(r)), slog.String("operation", info.operation), slog.Int("status", recorder.status),
		slog.Float64("ms", float64(took.Microseconds())/1000), slog.String("key", info.key), slog.String("code", info.code()),
		slog.String("route", info.route), slog.String("operator", info.operator), slog.String("origin", info.origin),
	}
	if recorder.status >= 500 || aborted {
		if !clientGone {
			level = slog.LevelError
		}
		attrs = append(attrs, slog.String("cause", cause(info.err)))
	}
	s.options.Logger.LogAttrs(r.Context(), level, "request", attrs...)
	if aborted {
		panic(http.ErrAbortHandler)
	}
}

// methodName returns the method of a request, or "other" if it is not a common one: clients may
// send anything.
func methodName(r *http.Request) string {
	switch r.Method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS":
		return r.Method
	}
	return "other"
}

func (i *requestInfo) code() string {
	if i.err == nil {
		return ""
	}
	return string(problemOf(i.err).Code)
}

// cause returns the text of an error of the store or of this program, without the record keys in
// it, which contain identifiers. For a damaged entry it returns no text at all.
func cause(err error) string {
	if err == nil || errors.Is(err, userdb.ErrCorrupt) {
		return ""
	}
	return recordKeyPattern.ReplaceAllString(err.Error(), "…")
}

// recordKeyPattern matches words that may be record keys.
var recordKeyPattern = regexp.MustCompile(`[^\s"]*/[^\s"/:]+:[^\s"]*[^\s":]`)

// A statusRecorder is a response writer that records the status.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements [http.ResponseWriter].
func (w *statusRecorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusRecorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap returns the underlying writer. [http.ResponseController] calls it.
func (w *statusRecorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
