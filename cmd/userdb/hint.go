package main

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
)

type hintCmd struct {
	Hints []string `arg:"" name:"HINT" optional:"" help:"Hints, in any form."`
	As    string   `placeholder:"entry|user" enum:"entry,user," default:"" help:"Take only what resolve_entry_hint or resolve_user_entry_hint of the original takes."`
	Batch bool     `help:"Read hints from standard input, one JSON value a line; answer each with one line."`
}

func (*hintCmd) Help() string {
	return `A hint points at an entry. These are the forms:

  17c07627d35e                       a UID
  user/uid:17c07627d35e              a record key, of an entry or of an identifier
  email=alice@example.com            a field and its value
  *=Alice                            a value, in whatever secondary field
  ["user","name","Alice"]            also [TYPE,UID], [FIELD,VALUE], ["*",VALUE]
  {"name":"Alice","job":"author"}    an entry or a part of one

The answer is ["prk" or "srk",KEY,TYPE,FIELD,VALUE], or for * ["any",[SRK…],TYPE,"*",VALUE,PATTERN].
No store is asked: whether there is such an entry, get says. The schema is that of --schema, else the
built-in one.

Examples:
  userdb hint email=Alice@Example.com
  userdb hint '*=Alice' 17c07627d35e
  userdb hint --as user '["name","Alice"]'
  userdb hint --batch < hints.jsonl`
}

// patient: nobody is waited for but standard input.
func (*hintCmd) patient() {}

func (c *hintCmd) Run(ctx context.Context, s *session) error {
	sc, err := s.schemaAlone()
	if err != nil {
		return err
	}
	if c.Batch {
		if len(c.Hints) > 0 {
			return usagef("--batch reads hints from standard input: leave the others out")
		}
		return s.batch(ctx, func(raw json.RawMessage) (any, error) {
			return c.resolveJSON(sc, s.Type, raw)
		})
	}
	if len(c.Hints) == 0 {
		return usagef("a HINT is missing; see 'userdb hint --help'")
	}
	return eachText(s, c.Hints, func(text string) (any, error) { return c.resolve(sc, s.Type, text) })
}

func (c *hintCmd) resolve(sc schema.Schema, meant, text string) (any, error) {
	if c.As == "" {
		h, err := hints.Parse(text)
		if err != nil {
			return nil, err
		}
		return resolve(h, sc, meant)
	}
	raw := []byte(text)
	if !bytes.HasPrefix(raw, []byte("[")) && !bytes.HasPrefix(raw, []byte("{")) {
		var err error
		if raw, err = json.Marshal(text); err != nil {
			return nil, err
		}
	}
	return c.resolveJSON(sc, meant, raw)
}

func (c *hintCmd) resolveJSON(sc schema.Schema, meant string, raw json.RawMessage) (any, error) {
	switch c.As {
	case "entry":
		return hints.AsEntry(sc, raw)
	case "user":
		return hints.AsUser(sc, meant, raw)
	}
	h, err := hints.ParseJSON(raw)
	if err != nil {
		return nil, err
	}
	return resolve(h, sc, meant)
}
