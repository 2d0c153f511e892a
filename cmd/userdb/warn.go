package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
)

// warnings prints what the store warns of on standard error, for people.
type warnings struct{ w io.Writer }

// Enabled implements [slog.Handler]: events are not for people.
func (warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements [slog.Handler].
func (h warnings) Handle(_ context.Context, r slog.Record) error {
	_, err := fmt.Fprintln(h.w, "userdb: warning: "+oneLine(r.Message))
	return err
}

// WithAttrs implements [slog.Handler].
func (h warnings) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements [slog.Handler].
func (h warnings) WithGroup(string) slog.Handler { return h }

// A discreet command is one that a visitor may see the output of: it tells nothing that concerns the
// operator, or that would tell entries apart.
type discreet interface{ discreet() }

// logger is nil where nobody is to be warned.
func (s *session) logger(c command) *slog.Logger {
	if _, ok := c.(discreet); ok || s.JSON {
		return nil
	}
	return slog.New(warnings{s.std.err})
}
