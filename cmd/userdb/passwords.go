package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

func loginCommand(s *session) *cobra.Command {
	l := login{s: s}
	c := &cobra.Command{
		Use:   "login IDENTIFIER",
		Short: "Check an identifier and a password",
		Long: `Check an identifier and a password. The identifier is any secondary value, such as a name or an
address; it is never read as a hint. With --password-stdin, - stands for the first line of standard
input, before the password.

Prints the entry or exits 5, in the same way and after the same work for every identifier. --type
is the type of the entry. After too many failures it checks nothing, exits 8 and says how long to
wait. An origin from which the entry has logged in before has attempts of its own, which nobody else
can use up. Without --origin, failures are only counted for the entry.

If the entry has a second factor, the command then asks for a code of its authenticator app or a
recovery code. With --code-stdin, that is the line after the password; without it, such an entry exits
5 in a script.

In scripts, write -- before what a visitor entered, or pass it on standard input. No flag in its place
makes this command exit 0, so only 'userdb help login' shows this help.`,
		Example: `  userdb login -- alice@example.com
  userdb login --origin 192.0.2.7 -- alice@example.com
  userdb login --password-stdin --json -- Alice < secret.txt
  userdb login - --password-stdin < name-and-secret.txt
  userdb login --session --json -- alice@example.com`,
		RunE: s.run(func(ctx context.Context, words []string) error { return l.run(ctx, words[0]) }, asking, public),
	}
	c.Flags().StringVar(&l.attempt.Origin, "origin", "", "the attempt comes from `ORIGIN`, an address or a name; failures are\ncounted for each origin")
	c.Flags().BoolVar(&l.codeFromStdin, "code-stdin", false, "read the password and then a code of an authenticator app, or a recovery code,\nas one line each from standard input")
	c.Flags().BoolVar(&l.startsSession, "session", false, "also start a session, and print its secret as ~session; programs find the\nentry with it")
	disableHelpFlag(c)
	return s.withStdin(c)
}

// A login holds the flags of the command login and what a visitor types.
type login struct {
	s                            *session
	attempt                      userdb.Attempt
	startsSession, codeFromStdin bool
	identifier, password, code   string
	ticket                       string // of the first step, if the second one follows
}

// run takes the one or two steps of a login. identifier is the word of the command.
func (l *login) run(ctx context.Context, identifier string) error {
	l.identifier = identifier
	secrets := []secret{{"password", "Password: ", &l.password}}
	if l.s.firstLine(identifier) {
		if !l.s.fromStdin {
			return usagef("- stands for the first line of standard input, and needs --password-stdin")
		}
		secrets = slices.Insert(secrets, 0, secret{"identifier", "", &l.identifier})
	}
	if l.startsSession {
		if err := l.s.checkOutput(); err != nil {
			return err
		}
	}
	if l.codeFromStdin {
		l.s.fromStdin, secrets = true, append(secrets, secret{"code", "", &l.code})
	}
	err := l.s.ask(ctx, checkNothing, l.checkPassword, secrets...)
	switch {
	case l.ticket == "":
		return err
	case l.codeFromStdin:
		return l.s.timed(ctx, l.prove)
	}
	return l.s.ask(ctx, checkNothing, l.prove, secret{"code", "Code of your app, or recovery code: ", &l.code})
}

// checkPassword takes the first step of the login. If the entry has a second factor, and a code is
// given or can be entered, it keeps the ticket for the second step.
func (l *login) checkPassword(ctx context.Context) error {
	t, err := l.s.typ(ctx, l.s.Type)
	if err != nil {
		return err
	}
	e, err := t.Login(ctx, l.identifier, l.password, l.attempt)
	if refused, ok := errors.AsType[*userdb.FactorError](err); ok && (l.codeFromStdin || !l.s.fromStdin) {
		l.ticket = refused.Ticket
	}
	return l.finish(ctx, t, e, err)
}

// prove takes the second step of the login.
func (l *login) prove(ctx context.Context) error {
	t, err := l.s.typ(ctx, l.s.Type)
	if err != nil {
		return err
	}
	e, err := t.Prove(ctx, l.ticket, proofOf(l.code), l.attempt)
	if errors.Is(err, userdb.ErrNotFound) {
		err = fmt.Errorf("%w: log in again, as the code came too late or the entry has changed", userdb.ErrLogin)
	}
	return l.finish(ctx, t, e, err)
}

// finish prints the entry that has logged in and, with --session, the secret of a new session. If
// err is not nil, it only returns err.
func (l *login) finish(ctx context.Context, t *userdb.Type, e userdb.Entry, err error) error {
	if err != nil || !l.startsSession {
		return l.s.printEntry(e, err)
	}
	l.s.warnExposed()
	_, secret, err := t.StartSession(ctx, e, userdb.SessionOptions{Origin: l.attempt.Origin, Agent: "userdb login"})
	if err != nil {
		return err
	}
	all := e.Flat()
	all["~session"] = schema.Text(secret)
	return l.s.printFacets(all)
}

// ignoreMissingPassword removes errors about the password from err, because nobody has entered it
// yet. It returns nil if there are no other errors.
func ignoreMissingPassword(err error) error {
	var rest []error
	for _, part := range joinedErrors(err) {
		if fieldOf(part) != passwordField {
			rest = append(rest, part)
		}
	}
	switch {
	case len(rest) == 1:
		return rest[0]
	case rest != nil || fieldOf(err) == passwordField:
		return errors.Join(rest...)
	}
	return err
}

// checkNothing returns nil. Commands that have nothing to check before a person types pass it to
// session.ask.
func checkNothing(context.Context) error { return nil }

func passwdCommand(s *session) *cobra.Command {
	var change bool
	c := &cobra.Command{
		Use:   "passwd HINT",
		Short: "Set the password of an entry",
		Long: `Set the password of an entry. The command asks for it twice without echo, or reads it as one line
with --password-stdin. With --change the old password comes first, on a line of its own. All tokens
of the entry become void, and its failed logins are forgotten.

If the entry has a second factor, --change exits 5: its owner changes the password in a session of two
steps, in your application. Without --change the password is set, and the factor stays.

In scripts, write -- before what a visitor entered. No flag in its place makes this command exit 0, so
only 'userdb help passwd' shows this help.`,
		Example: `  userdb passwd -- email=alice@example.com
  userdb passwd --change --password-stdin -- '*=Alice' < old-and-new.txt
  userdb passwd --password-stdin -- '*=Alice' < secret.txt`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			var old, pw string
			secrets := []secret{{"password", newPassword, &pw}}
			if change {
				secrets = slices.Insert(secrets, 0, secret{"password", "Old password: ", &old})
			}
			return s.ask(ctx, s.onSubject(words[0], func(ctx context.Context, p subject) error {
				_, err := p.typ.Find(ctx, p.hint)
				return err
			}), s.onSubject(words[0], func(ctx context.Context, p subject) error {
				var e userdb.Entry
				var err error
				if change {
					e, err = p.typ.ChangePassword(ctx, p.hint, old, pw, userdb.Attempt{})
				} else {
					e, err = p.typ.SetPassword(ctx, p.hint, pw)
				}
				if err == nil {
					s.noteSilence("the password of " + printable(e.Key().String()) + " is set")
				}
				return err
			}), secrets...)
		}, asking),
	}
	c.Flags().BoolVar(&change, "change", false, "ask for the old password first; a wrong one exits 5 and counts\nas a failed login")
	disableHelpFlag(c)
	return s.withStdin(c)
}

func disableCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "disable HINT",
		Short: "Keep an entry from logging in",
		Long: `Keep an entry from logging in. A login then exits 5, as with a wrong password, and the entry's tokens
become void. The entry can still be read. Prints its key.`,
		Example: `  userdb disable email=alice@example.com`,
		RunE:    s.runOnKey("disabled", func(ctx context.Context, p subject) error { return p.typ.Disable(ctx, p.hint) }),
	}
}

func enableCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:     "enable HINT",
		Short:   "Let an entry log in again",
		Long:    `Let an entry log in again. Tokens from before it was disabled stay void. Prints the entry's key.`,
		Example: `  userdb enable email=alice@example.com`,
		RunE:    s.runOnKey("enabled", func(ctx context.Context, p subject) error { return p.typ.Enable(ctx, p.hint) }),
	}
}

// runOnKey returns a RunE function that finds the entry of a hint, calls do with its key as the
// hint, and prints done and the key, as in "deleted user/uid:u1".
func (s *session) runOnKey(done string, do func(context.Context, subject) error, traits ...trait) func(*cobra.Command, []string) error {
	return s.runOn(func(ctx context.Context, p subject, _ []string) error {
		e, err := p.typ.Find(ctx, p.hint)
		if err != nil {
			return suggestKey(ctx, p, err)
		}
		p.text, p.hint = e.Key().String(), hints.Key(e.Key())
		return s.printResult(p.text, done+" "+printable(p.text), do(ctx, p))
	}, traits...)
}

func tokenCommand(s *session) *cobra.Command {
	return group(&cobra.Command{
		Use:   "token",
		Short: "Issue and redeem single-use tokens",
		Long: `A token allows something once, such as to set a new password, to prove that an address belongs to
the account, or to log in by a link. A new password, disable and delete void all tokens of an entry,
and redeeming one voids the others for its purpose. An entry has at most 16 tokens; another one
replaces the oldest of the most frequent kind.`,
		Example: `  userdb token issue email=alice@example.com --purpose reset > token.txt
  userdb token redeem - --purpose reset < token.txt`,
	}, issueCommand(s), redeemCommand(s))
}

func issueCommand(s *session) *cobra.Command {
	var tk userdb.Token
	var life string // as given
	c := &cobra.Command{
		Use:   "issue HINT",
		Short: "Issue a token for an entry",
		Long: `Issue a token for an entry and print it. It cannot be printed again, because only its hash is stored.
A disabled entry cannot have tokens (exit code 3).`,
		Example: `  userdb token issue email=alice@example.com --purpose reset --life 15m
  userdb token issue '*=Alice' --purpose change:email --value alice@example.org`,
		RunE: s.runOn(func(ctx context.Context, p subject, _ []string) error {
			if err := s.checkOutput(); err != nil {
				return err
			}
			token, err := p.typ.Issue(ctx, p.hint, tk)
			if err == nil {
				s.warnExposed()
				s.note("this token is shown only once; it is valid for %s", cmp.Or(life, "1h"))
			}
			return s.printResult(map[string]string{"token": token}, token, err)
		}),
	}
	purposeFlag(c, &tk.Purpose, "what it is for: `PURPOSE`, in your own words; change:FIELD sets a\n"+
		"secondary facet to the value of --value when it is redeemed")
	c.Flags().StringVar(&tk.Value, "value", "", "bind it to `VALUE`, such as an address")
	c.Flags().Func("life", "it is valid for `D`, such as 15m or 2d; at most 30d (default 1h)", func(text string) (err error) {
		life = text
		if tk.Lifetime, err = parseDuration(text); err == nil && tk.Lifetime == 0 {
			err = errors.New("want more than zero")
		}
		return err
	})
	return c
}

// purposeFlag declares the flag --purpose, which is required.
func purposeFlag(c *cobra.Command, to *string, usage string) {
	c.Flags().StringVar(to, "purpose", "", usage)
	c.MarkFlagRequired("purpose") // it is declared, so this cannot fail
}

// errToken replaces the library's ErrNotFound, because a token was not found, not an entry.
var errToken = coded.New(userdb.CodeLogin, "wrong token: it was used, has expired, is void or is for another purpose")

func redeemCommand(s *session) *cobra.Command {
	var purpose string
	c := &cobra.Command{
		Use:   "redeem TOKEN",
		Short: "Redeem a token",
		Long: `Redeem a token; - reads it as one line from standard input, where no other user sees it.

Prints the entry and, as ~value, the value to which the token was bound. Exits 5 if the token was used,
is expired or void, has another purpose or was made up. If the entry has a second factor, the token is
redeemed, and the command prints only ~value and exits 5. With change:FIELD the facet is set,
unless another entry has taken the value meanwhile: then the command exits 4 and the token stays
valid. Changing a facet voids the other tokens for it.

In scripts, pass the token on standard input, or write -- before it. No flag in its place makes this
command exit 0, so only 'userdb help token redeem' shows this help.`,
		Example: `  userdb token issue email=alice@example.com --purpose verify > token.txt
  userdb token redeem - --purpose verify < token.txt`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			token := words[0]
			if s.firstLine(token) {
				var err error
				if token, err = secretLine(ctx, s.std.in, "token"); err != nil {
					return err
				}
			}
			t, err := s.typ(ctx, s.Type)
			if err != nil {
				return err
			}
			e, tk, err := t.Redeem(ctx, purpose, token)
			if errors.Is(err, userdb.ErrNotFound) {
				return errToken
			}
			var value schema.Facets
			if tk.Value != "" {
				value = schema.Texts("~value", tk.Value)
			}
			switch {
			case err == nil || errors.Is(err, userdb.ErrUnconfirmed) && e.UID() != "":
				all := e.Flat()
				maps.Copy(all, value)
				return cmp.Or(err, s.printFacets(all))
			case value != nil: // the token was redeemed, and nobody can read the value anymore
				return cmp.Or(err, s.out.print(value, "  ~value  "+printable(tk.Value)))
			}
			return err
		}, public),
	}
	purposeFlag(c, &purpose, "it must have been issued for `PURPOSE`")
	disableHelpFlag(c)
	return c
}

func passwordCommand(s *session) *cobra.Command {
	strength := &cobra.Command{
		Use:   "strength",
		Short: "Report how hard a password is to guess",
		Long: `Report how hard a password is to guess. The command asks for it without echo, or reads it as one line
with --password-stdin. It needs no store. The time is how long half of the guesses take at 10,000 a
second. Scores of 3 and 4 are good. Only the first 100 characters count.`,
		Example: `  userdb password strength
  userdb password strength --password-stdin --json < secret.txt`,
		RunE: s.run(func(ctx context.Context, _ []string) error {
			var pw string
			return s.ask(ctx, checkNothing, func(context.Context) error {
				r := password.Strength(pw)
				text := fmt.Sprintf("score %d of 4: guessed in %s (%.3f bits)", r.Score, r.Time, r.Entropy)
				if r.Level == 0 {
					text = fmt.Sprintf("score %d of 4: guessed at once (%.3f bits)", r.Score, r.Entropy)
				}
				return s.out.print(r, strings.Join(append([]string{text}, r.Suggestions...), "\n"))
			}, secret{"password", "Password: ", &pw})
		}, asking, public),
	}
	all := &cobra.Command{Use: "password", Short: "Report how hard a password is to guess", Example: `  userdb password strength`}
	return group(all, s.withStdin(strength))
}
