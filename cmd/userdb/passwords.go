package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

type loginCmd struct {
	Identifier string `arg:"" name:"IDENTIFIER" help:"Any secondary value: a name, an address. It is never taken for a hint. With --password-stdin, - is the first line of standard input, before the password."`
	Origin     string `placeholder:"O" help:"Where the attempt comes from, an address or a name: failures are counted for each."`
	passwordFlags
}

func (*loginCmd) Help() string {
	return `Prints the entry, or exits 5, in the same way and after the same work whoever is asked for. --type
says of which type the entry is. After too many failures it exits 8 and says how long to wait; nothing
was checked then. An origin from where the entry logged in before keeps attempts of its own, which
nobody else can use up; without --origin failures are only counted for the entry.

Scripts write -- before what a visitor gave, or pass it on standard input: no flag in its place makes
this command exit 0, and this help is 'userdb help login' alone.

Examples:
  userdb login -- alice@example.com
  userdb login --origin 192.0.2.7 -- alice@example.com
  userdb login --password-stdin --json -- Alice < secret.txt
  userdb login - --password-stdin < name-and-secret.txt`
}

func (*loginCmd) discreet() {}

func (*loginCmd) grants() {}

func (c *loginCmd) ask(ctx context.Context, s *session) error {
	if s.firstLine(c.Identifier) && !c.PasswordStdin {
		return usagef("- stands for the first line of standard input, and needs --password-stdin")
	}
	return c.askOnce(ctx, s)
}

func (c *loginCmd) Run(ctx context.Context, s *session) error {
	if s.firstLine(c.Identifier) {
		var err error
		if c.Identifier, err = secretLine(ctx, s.std.in, "identifier"); err != nil {
			return err
		}
	}
	pw, err := c.password(ctx, s)
	if err != nil {
		return err
	}
	t, err := s.typ(ctx, s.Type)
	if err != nil {
		return err
	}
	e, err := t.Login(ctx, c.Identifier, pw, userdb.Attempt{Origin: c.Origin})
	if err != nil {
		return err
	}
	return s.entry(e, "")
}

type passwdCmd struct {
	Hint   string `arg:"" name:"HINT" help:"The entry: see 'userdb hint --help'."`
	Change bool   `help:"Ask for the old password first; a wrong one exits 5, and counts as a failed login."`
	passwordFlags
	old string
}

func (*passwdCmd) Help() string {
	return `The new password is asked for twice without echo, or read as one line with --password-stdin; with
--change the first line is the old one, the second the new one. All tokens of the entry become void,
and its failed logins are forgotten. Scripts write -- before what a visitor gave: no flag in its place
makes this command exit 0, and this help is 'userdb help passwd' alone.

Examples:
  userdb passwd -- email=alice@example.com
  userdb passwd --change --password-stdin -- email=alice@example.com < old-and-new.txt
  userdb passwd --password-stdin -- '*=Alice' < secret.txt`
}

func (*passwdCmd) grants() {}

func (c *passwdCmd) ask(ctx context.Context, s *session) error {
	find := func(ctx context.Context) error {
		p, err := s.at(ctx, c.Hint)
		if err != nil {
			return err
		}
		_, err = p.typ.Find(ctx, p.hint)
		return p.named(err)
	}
	if !c.Change || c.PasswordStdin {
		return c.askNew(ctx, s, find)
	}
	err := s.needTerminal()
	if err == nil {
		err = s.timed(ctx, find)
	}
	if err == nil {
		c.old, err = s.std.term.ask(ctx, "Old password: ")
	}
	if err != nil {
		return err
	}
	return c.askNew(ctx, s, func(context.Context) error { return nil })
}

func (c *passwdCmd) Run(ctx context.Context, s *session) error {
	if c.Change && c.PasswordStdin {
		var err error
		if c.old, err = secretLine(ctx, s.std.in, "password"); err != nil {
			return err
		}
	}
	pw, err := c.password(ctx, s)
	if err != nil {
		return err
	}
	p, err := s.at(ctx, c.Hint)
	if err != nil {
		return err
	}
	if c.Change {
		return p.named(p.typ.ChangePassword(ctx, p.hint, c.old, pw, userdb.Attempt{}))
	}
	return p.named(p.typ.SetPassword(ctx, p.hint, pw))
}

type disableCmd struct {
	Hint string `arg:"" name:"HINT" help:"The entry: see 'userdb hint --help'."`
}

func (*disableCmd) Help() string {
	return `A login then exits 5 as for a wrong password, and the entry's tokens are void. It stays readable.
Prints its key.

Examples:
  userdb disable email=alice@example.com`
}

func (c *disableCmd) Run(ctx context.Context, s *session) error {
	return s.turn(ctx, c.Hint, "disabled", (*userdb.Type).Disable)
}

// turn says whether an entry may log in, and prints its key.
func (s *session) turn(ctx context.Context, hint, done string, do func(*userdb.Type, context.Context, hints.Hint) error) error {
	p, err := s.at(ctx, hint)
	if err != nil {
		return err
	}
	e, err := p.typ.Find(ctx, p.hint)
	if err != nil {
		return p.named(err)
	}
	if err := do(p.typ, ctx, hints.Key(e.Key())); err != nil {
		return p.named(err)
	}
	prk := e.Key().String()
	return s.out.say(prk, done+" "+shown(prk))
}

type enableCmd struct {
	Hint string `arg:"" name:"HINT" help:"The entry: see 'userdb hint --help'."`
}

func (*enableCmd) Help() string {
	return `Tokens from before stay void. Prints the entry's key.

Examples:
  userdb enable email=alice@example.com`
}

func (c *enableCmd) Run(ctx context.Context, s *session) error {
	return s.turn(ctx, c.Hint, "enabled", (*userdb.Type).Enable)
}

type tokenCmd struct {
	Issue  tokenIssueCmd  `cmd:"" help:"Make a token for an entry."`
	Redeem tokenRedeemCmd `cmd:"" help:"Spend a token."`
}

func (*tokenCmd) Help() string {
	return `Whoever has a token can do one thing once: set a new password, prove that an address is his, log in by
a link. A new password, disable and delete end all tokens of an entry, and spending one ends the others of
its purpose. At most 16 are open: beyond, the oldest goes.

Examples:
  userdb token issue email=alice@example.com --purpose reset > token.txt
  userdb token redeem - --purpose reset < token.txt`
}

type tokenIssueCmd struct {
	Hint    string        `arg:"" name:"HINT" help:"The entry: see 'userdb hint --help'."`
	Purpose string        `required:"" placeholder:"P" help:"What it is for, in your own words; change:FIELD sets a secondary facet to the value when it is redeemed."`
	Value   string        `placeholder:"V" help:"What it is bound to, such as an address."`
	Life    time.Duration `placeholder:"D" help:"How long it is good, such as 15m or 2d; at most 30d (1h)."`
}

func (*tokenIssueCmd) Help() string {
	return `Prints the token. Only its hash is kept: it cannot be printed again. A disabled entry has none (3).

Examples:
  userdb token issue email=alice@example.com --purpose reset --life 15m
  userdb token issue '*=Alice' --purpose change:email --value alice@example.org --json`
}

func (c *tokenIssueCmd) Run(ctx context.Context, s *session) error {
	p, err := s.at(ctx, c.Hint)
	if err != nil {
		return err
	}
	secret, err := p.typ.Issue(ctx, p.hint, userdb.Token{Purpose: c.Purpose, Value: c.Value, Life: c.Life})
	if err != nil {
		return p.named(err)
	}
	return s.out.say(map[string]string{"token": secret}, secret)
}

type tokenRedeemCmd struct {
	Token   string `arg:"" name:"TOKEN" help:"The token; - reads it as one line from standard input, where no other user sees it."`
	Purpose string `required:"" placeholder:"P" help:"What it must have been issued for."`
}

func (*tokenRedeemCmd) Help() string {
	return `Prints the entry and, as ~value, what the token was bound to. A token that is spent, expired, void, of
another purpose or made up exits 5. With change:FIELD the facet is set, or the command exits 4 because
another entry has the value by now: then nothing is spent. A changed facet ends the tokens for it.

Scripts pass the token on standard input, or write -- before it: no flag in its place makes this
command exit 0, and this help is 'userdb help token redeem' alone.

Examples:
  userdb token issue email=alice@example.com --purpose verify > token.txt
  userdb token redeem - --purpose verify < token.txt`
}

func (*tokenRedeemCmd) discreet() {}

func (*tokenRedeemCmd) grants() {}

// errToken is an error of its own for what the library calls not found: no entry was asked for.
var errToken = errors.New("wrong token: it is spent, expired, void or for another purpose")

func (c *tokenRedeemCmd) Run(ctx context.Context, s *session) error {
	if s.firstLine(c.Token) {
		var err error
		if c.Token, err = secretLine(ctx, s.std.in, "token"); err != nil {
			return err
		}
	}
	t, err := s.typ(ctx, s.Type)
	if err != nil {
		return err
	}
	e, tk, err := t.Redeem(ctx, c.Purpose, c.Token)
	if errors.Is(err, userdb.ErrNotFound) {
		return errToken
	}
	if err != nil {
		return err
	}
	all := flat(e, "")
	if tk.Value != "" {
		all["~value"] = schema.Text(tk.Value)
	}
	return s.out.say(all, block(e.Key().String(), all))
}

type passwordCmd struct {
	Strength strengthCmd `cmd:"" help:"How hard a password is to guess."`
}

func (*passwordCmd) Help() string {
	return `Examples:
  userdb password strength`
}

type strengthCmd struct {
	passwordFlags
}

func (*strengthCmd) Help() string {
	return `The password is asked for without echo, or read as one line with --password-stdin. No store is needed.
Half of the guesses at 10,000 a second take the time that is told; score 3 and 4 are good. The first
100 characters are looked at.

Examples:
  userdb password strength
  userdb password strength --password-stdin --json < secret.txt`
}

func (*strengthCmd) discreet() {}

func (c *strengthCmd) ask(ctx context.Context, s *session) error { return c.askOnce(ctx, s) }

func (c *strengthCmd) Run(ctx context.Context, s *session) error {
	pw, err := c.password(ctx, s)
	if err != nil {
		return err
	}
	r := password.Strength(pw)
	text := []string{fmt.Sprintf("score %d of 4: guessed in %s (%.3f bits)", r.Score, r.Time, r.Entropy)}
	return s.out.say(r, strings.Join(append(text, r.Suggestions...), "\n"))
}
