package main

import (
	"context"
	"errors"
	"time"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

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
