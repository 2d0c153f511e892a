package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"github.com/coffeenode/userdb/userdb"
)

// log writes one line, without a word of what was asked for, and answers where a handler panicked. An answer that was broken off has
// the status it began with, and the code of what broke it.
func (s *Service) log(r *http.Request, info *requestInfo, seen *watched, begun time.Time) {
	p := recover()
	broken := p == http.ErrAbortHandler //nolint:errorlint // it is passed on as it is
	if p != nil && !broken {
		info.err = fmt.Errorf("panic: %v", p)
		if seen.status == 0 {
			writeProblem(seen, r, problemOf(info.err))
		}
	}
	took := time.Since(begun)
	s.count(info, seen.status, took)
	gone := r.Context().Err() != nil // the client, which is no failure of ours
	level, attrs := slog.LevelInfo, []slog.Attr{
		slog.String("id", info.id), slog.String("method", method(r)), slog.String("operation", info.operation), slog.Int("status", seen.status),
		slog.Float64("ms", float64(took.Microseconds())/1000), slog.String("key", info.key), slog.String("code", info.code()),
		slog.String("route", info.route), slog.String("operator", info.operator), slog.String("origin", info.origin),
	}
	if seen.status >= 500 || broken {
		if !gone {
			level = slog.LevelError
		}
		attrs = append(attrs, slog.String("cause", cause(info.err)))
	}
	s.options.Logger.LogAttrs(r.Context(), level, "request", attrs...)
	if broken { // so that the connection is closed
		panic(p)
	}
}

// method is one that is known: others are whatever a client wrote.
func method(r *http.Request) string {
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

// cause is why a request failed that the store, or this program, did not do. Errors of the store name keys of records, which hold
// identifiers.
func cause(err error) string {
	if err == nil || errors.Is(err, userdb.ErrCorrupt) {
		return ""
	}
	return recordKeys.ReplaceAllString(err.Error(), "…")
}

// recordKeys are words that may be one.
var recordKeys = regexp.MustCompile(`[^\s"]*/[^\s"/:]+:[^\s"]*[^\s":]`)

// A watched is a response whose status is known.
type watched struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements [http.ResponseWriter].
func (w *watched) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is asked by [http.ResponseController].
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }
