package main

import (
	"context"
	"fmt"

	"github.com/coffeenode/userdb/userdb"
)

// prepareTrial checks the options of --try and reads the password.
func (r *importRun) prepareTrial(ctx context.Context) (err error) {
	s, identifier := r.s, r.trial.Identifier
	switch {
	case identifier == "" && s.fromStdin:
		return usagef("--password-stdin is for --try")
	case identifier == "":
		return nil
	case !r.o.DryRun:
		return usagef("--try needs --dry-run")
	case r.file == "-":
		return usagef("--try needs a file, because standard input has the password")
	case s.fromStdin:
		r.trial.Password, err = secretLine(ctx, s.std.in, "password")
	case s.std.term == nil:
		return usagef("no password: standard input is not a terminal; pipe the password in as one line with --password-stdin")
	default:
		r.trial.Password, err = s.std.term(ctx, "Password: ")
	}
	r.o.Trial = &r.trial
	return err
}

// reportTrial prints that the account of --try could log in, or returns why it could not.
func (r *importRun) reportTrial() error {
	switch t := r.o.Trial; {
	case t == nil:
		return nil
	case t.Line == 0:
		return fmt.Errorf("%w: no line of %s has the identifier of --try", userdb.ErrNotFound, printable(r.file))
	case !t.OK:
		return fmt.Errorf("%w: line %d: %s", userdb.ErrLogin, t.Line, oneLine(t.Reason))
	default:
		return r.s.out.print(map[string]any{"try": map[string]any{"line": t.Line, "ok": true}}, fmt.Sprintf("line %d: this account could log in with the password", t.Line))
	}
}
