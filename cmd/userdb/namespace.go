package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/recordkey"
)

type namespaceCmd struct {
	List namespaceListCmd `cmd:"" help:"List namespaces with their counts."`
	Copy namespaceCopyCmd `cmd:"" help:"Copy a namespace to another name."`
	Drop namespaceDropCmd `cmd:"" help:"Remove all records of a namespace."`
}

func (*namespaceCmd) Help() string {
	return `Names are as in --namespace, inside the one of --namespace where that is given. To move one, copy it
and drop the old one.

Examples:
  userdb namespace list`
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

type namespaceListCmd struct{}

func (*namespaceListCmd) Help() string {
	return `Shows each namespace that holds records, with its entries and all its records, those of namespaces
inside it not counted.

Examples:
  userdb create user name=Carol --namespace acme --no-password
  userdb namespace list --json`
}

// patient: it goes over all records.
func (*namespaceListCmd) patient() {}

// namespaceLine is one namespace, as JSON.
type namespaceLine struct {
	Namespace string `json:"namespace"`
	Entries   int64  `json:"entries"`
	Records   int64  `json:"records"`
}

func (*namespaceListCmd) Run(ctx context.Context, s *session) error {
	db, err := s.open(ctx)
	if err != nil {
		return err
	}
	none := true
	for n, err := range maintain.Namespaces(ctx, db) {
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
}

type namespaceCopyCmd struct {
	From string `arg:"" name:"FROM" help:"The namespace to copy, with those inside it."`
	To   string `arg:"" name:"TO" help:"Where to; it must hold nothing."`
}

func (*namespaceCopyCmd) Help() string {
	return `Let nobody write to FROM meanwhile. A copy that was stopped goes on with the same command. Prints how
many records there are.

Examples:
  userdb create user name=Carol --namespace acme --no-password
  userdb namespace copy acme acme-test`
}

// patient: a large namespace takes its time.
func (*namespaceCopyCmd) patient() {}

func (c *namespaceCopyCmd) Run(ctx context.Context, s *session) error {
	from, err := s.space(c.From)
	if err != nil {
		return err
	}
	to, err := s.space(c.To)
	if err != nil {
		return err
	}
	db, err := s.open(ctx)
	if err != nil {
		return err
	}
	n, err := maintain.CopyNamespace(ctx, db, from, to)
	if err != nil {
		return err
	}
	return s.out.say(n, "copied "+count(n, "record"))
}

type namespaceDropCmd struct {
	Name string `arg:"" name:"NAME" help:"The namespace, with those inside it."`
	Yes  bool   `help:"Do it: there is no way back."`
}

func (*namespaceDropCmd) Help() string {
	return `Without --yes it says how many records there are. Nothing outside the namespace is touched. Prints
how many were removed.

Examples:
  userdb create user name=Carol --namespace acme --no-password
  userdb namespace drop acme --yes`
}

// patient: a large namespace takes its time.
func (*namespaceDropCmd) patient() {}

func (c *namespaceDropCmd) Run(ctx context.Context, s *session) error {
	ns, err := s.space(c.Name)
	if err != nil {
		return err
	}
	db, err := s.open(ctx)
	if err != nil {
		return err
	}
	n, err := maintain.CountNamespace(ctx, db, ns)
	if err != nil {
		return err
	}
	if !c.Yes {
		return usagef("namespace %s holds %s; add --yes to remove them", shown(c.Name), count(n, "record"))
	}
	if n, err = maintain.DropNamespace(ctx, db, ns); err != nil {
		return err
	}
	return s.out.say(n, "removed "+count(n, "record"))
}

type removeCmd struct {
	Pattern string `arg:"" name:"PATTERN" help:"A Redis glob: * any text, ? one character, [ab] one of them."`
	Yes     bool   `help:"Do it: there is no way back."`
}

func (*removeCmd) Help() string {
	return `An entry goes with all that belongs to it; an identifier or an index of an entry that stays, stays,
too. Without --yes it says how many records match. Prints how many were removed.

Examples:
  userdb remove 'user/uid:*/tags' --yes
  userdb remove 'user/*' --yes`
}

func (c *removeCmd) Run(ctx context.Context, s *session) error {
	db, err := s.open(ctx)
	if err != nil {
		return err
	}
	if c.Yes {
		n, err := db.RemoveKeys(ctx, c.Pattern)
		if err != nil {
			return err
		}
		return s.out.say(n, strconv.Itoa(n))
	}
	var n int64
	for _, err := range db.Keys(ctx, c.Pattern) {
		if err != nil {
			return err
		}
		n++
	}
	return usagef("%s matches %s; add --yes to remove what no entry that stays needs", shown(c.Pattern), count(n, "record"))
}
