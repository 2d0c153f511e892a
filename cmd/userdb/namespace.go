package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/recordkey"
)

func namespaceVerb(s *session) *cobra.Command {
	c := &cobra.Command{
		Use:   "namespace",
		Short: "Namespaces: list, copy, drop",
		Long: `Names are as in --namespace, inside the one of --namespace where that is given. To move one, copy it
and drop the old one.`,
		Example: `  userdb namespace list`,
	}
	c.AddCommand(listNamespacesVerb(s), copyNamespaceVerb(s), dropNamespaceVerb(s))
	return c
}

// space is a namespace inside the view.
func (s *session) space(path string) (recordkey.Namespace, error) {
	if path == "" {
		return recordkey.Namespace{}, usagef("a namespace has a name")
	}
	if s.Namespace != "" {
		path = s.Namespace + "/" + path
	}
	ns, err := recordkey.ParseNamespace(path)
	if err != nil {
		return ns, usagef("namespace: %v", err)
	}
	return ns, nil
}

// namespaceLine is one namespace, as JSON.
type namespaceLine struct {
	Namespace string `json:"namespace"`
	Entries   int64  `json:"entries"`
	Records   int64  `json:"records"`
}

func listNamespacesVerb(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List namespaces with their counts",
		Long: `List each namespace that holds records, with its entries and all its records, those of namespaces
inside it not counted.`,
		Example: `  userdb create user name=Carol --namespace acme --no-password
  userdb namespace list --json`,
		RunE: s.run(func(ctx context.Context, _ []string) error {
			db, err := s.open(ctx)
			if err != nil {
				return err
			}
			none := true
			for n, err := range migrate.Namespaces(ctx, db) {
				if err != nil {
					return err
				}
				none = false
				path := n.Namespace.Path()
				if s.Namespace != "" {
					path = strings.TrimPrefix(path, s.Namespace+"/")
				}
				text := shown(path) + "  " + count(n.Entries, "entry") + ", " + count(n.Records, "record")
				if err := s.out.say(namespaceLine{path, n.Entries, n.Records}, text); err != nil {
					return err
				}
			}
			if none && !s.JSON {
				return s.out.say(nil, "no namespaces")
			}
			return nil
		}, unlimited),
	}
}

func copyNamespaceVerb(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "copy FROM TO",
		Short: "Copy a namespace to another name",
		Long: `Copy a namespace, with those inside it, to another name, which must hold nothing. Let nobody write
to FROM meanwhile. A copy that was stopped goes on with the same command. Prints how many records
there are.`,
		Example: `  userdb create user name=Carol --namespace acme --no-password
  userdb namespace copy acme acme-test`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			from, err := s.space(words[0])
			if err != nil {
				return err
			}
			to, err := s.space(words[1])
			if err != nil {
				return err
			}
			db, err := s.open(ctx)
			if err != nil {
				return err
			}
			n, err := migrate.CopyNamespace(ctx, db, from, to)
			if err != nil {
				return err
			}
			return s.out.say(n, "copied "+count(n, "record"))
		}, unlimited),
	}
}

func dropNamespaceVerb(s *session) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "drop NAME",
		Short: "Remove all records of a namespace",
		Long: `Remove all records of a namespace, with those inside it. Without --yes it says how many records
there are. Nothing outside the namespace is touched. Prints how many were removed.`,
		Example: `  userdb create user name=Carol --namespace acme --no-password
  userdb namespace drop acme --yes`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			ns, err := s.space(words[0])
			if err != nil {
				return err
			}
			db, err := s.open(ctx)
			if err != nil {
				return err
			}
			if !yes {
				n, err := migrate.CountNamespace(ctx, db, ns)
				return firstOf(err, usagef("namespace %s holds %s; add --yes to remove them", shown(words[0]), count(n, "record")))
			}
			n, err := migrate.DropNamespace(ctx, db, ns)
			if err != nil {
				return err
			}
			return s.out.say(n, "removed "+count(n, "record"))
		}, unlimited),
	}
	yesFlag(c, &yes)
	return c
}
