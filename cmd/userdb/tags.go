package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/userdb"
)

func tagsVerb(s *session) *cobra.Command {
	c := &cobra.Command{Use: "tags", Short: "The tags of entries", Example: `  userdb tags add email=alice@example.com go
  userdb tags find go`}
	c.AddCommand(
		changeTagsVerb(s, &cobra.Command{
			Use:     "add HINT TAG…",
			Short:   "Add tags to an entry",
			Long:    `Add tags to an entry; those that are there stay. Prints how many are new.`,
			Example: `  userdb tags add email=alice@example.com go python`,
		}, userdb.Set.Add),
		changeTagsVerb(s, &cobra.Command{
			Use:     "remove HINT TAG…",
			Short:   "Remove tags from an entry",
			Long:    `Remove tags from an entry; those that are not there do no harm. Prints how many there were.`,
			Example: `  userdb tags remove email=alice@example.com c++`,
		}, userdb.Set.Remove),
		listTagsVerb(s),
		findTagsVerb(s),
	)
	return c
}

func changeTagsVerb(s *session, c *cobra.Command, change func(userdb.Set, context.Context, ...string) (int64, error)) *cobra.Command {
	c.RunE = s.runOn(func(ctx context.Context, p subject, tags []string) error {
		return s.number(change(p.typ.Tags(p.hint), ctx, tags...))
	})
	return c
}

func listTagsVerb(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "list HINT",
		Short: "List the tags of an entry",
		Example: `  userdb tags list email=alice@example.com
  userdb tags list '*=Alice' --json`,
		RunE: s.runOn(func(ctx context.Context, p subject, _ []string) error {
			tags, err := p.typ.Tags(p.hint).Members(ctx)
			if err != nil {
				return err
			}
			if s.JSON {
				return s.out.line(append([]string{}, tags...))
			}
			return s.sayEach(tags)
		}),
	}
}

func findTagsVerb(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "find TAG…",
		Short: "Find the entries that have all of some tags",
		Long:  `Find the entries that have all of the tags. The type is that of --type.`,
		Example: `  userdb tags find python
  userdb tags find python c++ --json`,
		RunE: s.run(func(ctx context.Context, tags []string) error {
			t, err := s.typ(ctx, s.Type)
			if err != nil {
				return err
			}
			return s.list(t.All(ctx, userdb.Query{Has: tags}))
		}),
	}
}
