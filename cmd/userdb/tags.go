package main

import (
	"context"
	"strconv"

	"github.com/coffeenode/userdb/userdb"
)

type tagsCmd struct {
	Add    tagsAddCmd    `cmd:"" help:"Add tags to an entry."`
	Remove tagsRemoveCmd `cmd:"" help:"Remove tags from an entry."`
	List   tagsListCmd   `cmd:"" help:"List the tags of an entry."`
	Find   tagsFindCmd   `cmd:"" help:"Find the entries that have all of some tags."`
}

func (*tagsCmd) Help() string {
	return `Examples:
  userdb tags add email=alice@example.com go
  userdb tags find go`
}

type tagsAddCmd struct {
	Hint string   `arg:"" name:"HINT" help:"The entry: see 'userdb hint --help'."`
	Tags []string `arg:"" name:"TAG" help:"Tags; those that are there stay."`
}

func (*tagsAddCmd) Help() string {
	return `Prints how many are new.

Examples:
  userdb tags add email=alice@example.com go python`
}

func (c *tagsAddCmd) Run(ctx context.Context, s *session) error {
	return s.changeTags(ctx, c.Hint, func(tags userdb.Set) (int64, error) { return tags.Add(ctx, c.Tags...) })
}

type tagsRemoveCmd struct {
	Hint string   `arg:"" name:"HINT" help:"The entry: see 'userdb hint --help'."`
	Tags []string `arg:"" name:"TAG" help:"Tags; those that are not there do no harm."`
}

func (*tagsRemoveCmd) Help() string {
	return `Prints how many there were.

Examples:
  userdb tags remove email=alice@example.com c++`
}

func (c *tagsRemoveCmd) Run(ctx context.Context, s *session) error {
	return s.changeTags(ctx, c.Hint, func(tags userdb.Set) (int64, error) { return tags.Remove(ctx, c.Tags...) })
}

func (s *session) changeTags(ctx context.Context, hint string, change func(userdb.Set) (int64, error)) error {
	p, err := s.at(ctx, hint)
	if err != nil {
		return err
	}
	n, err := change(p.typ.Tags(p.hint))
	if err != nil {
		return p.named(err)
	}
	return s.out.say(n, strconv.FormatInt(n, 10))
}

type tagsListCmd struct {
	Hint string `arg:"" name:"HINT" help:"The entry: see 'userdb hint --help'."`
}

func (*tagsListCmd) Help() string {
	return `Examples:
  userdb tags list email=alice@example.com
  userdb tags list '*=Alice' --json`
}

func (c *tagsListCmd) Run(ctx context.Context, s *session) error {
	p, err := s.at(ctx, c.Hint)
	if err != nil {
		return err
	}
	tags, err := p.typ.Tags(p.hint).Members(ctx)
	if err != nil {
		return p.named(err)
	}
	if s.JSON {
		return s.out.say(append([]string{}, tags...), "")
	}
	for _, tag := range tags {
		if err := s.out.say(nil, shown(tag)); err != nil {
			return err
		}
	}
	return nil
}

type tagsFindCmd struct {
	Tags []string `arg:"" name:"TAG" help:"All of them."`
}

func (*tagsFindCmd) Help() string {
	return `The type is that of --type.

Examples:
  userdb tags find python
  userdb tags find python c++ --json`
}

func (c *tagsFindCmd) Run(ctx context.Context, s *session) error {
	t, err := s.typ(ctx, s.Type)
	if err != nil {
		return err
	}
	return s.list(t.All(ctx, userdb.Query{Has: c.Tags}))
}
