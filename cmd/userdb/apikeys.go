package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

var errKeyTaken = coded.New(userdb.CodeDuplicate, "a key of that name exists (case does not matter): revoke it, or choose another name")

// An apiKey holds what is printed about an API key.
type apiKey struct {
	Name      string   `json:"name"`
	Secret    string   `json:"secret,omitempty"`
	Scopes    []string `json:"scopes"`
	Types     []string `json:"types"`
	Namespace string   `json:"namespace,omitempty"`
	Expires   *string  `json:"expires"`
	By        string   `json:"by,omitempty"`
	Made      string   `json:"made,omitempty"`
}

func apiKeyOf(k admin.Key, secret string) apiKey {
	out := apiKey{Name: k.Name, Secret: secret, Scopes: k.Scopes, Types: append([]string{}, k.Types...), Namespace: k.Namespace, By: k.CreatedBy}
	if !k.CreatedAt.IsZero() {
		out.Made = k.CreatedAt.UTC().Format(time.RFC3339)
	}
	if !k.Expires.IsZero() {
		at := k.Expires.UTC().Format(time.RFC3339)
		out.Expires = &at
	}
	return out
}

func (k apiKey) text() string {
	words := []string{printable(k.Name), strings.Join(k.Scopes, " "), "types " + strings.Join(k.Types, " ")}
	if len(k.Types) == 0 {
		words[2] = "all types"
	}
	if k.Namespace != "" {
		words = append(words, "namespace "+printable(k.Namespace))
	}
	if k.Expires != nil {
		words = append(words, "until "+*k.Expires)
	}
	if k.By != "" {
		words = append(words, "made by "+printable(k.By)+" at "+k.Made)
	}
	return strings.Join(words, ", ")
}

// keyRow returns the columns of a table of API keys.
func keyRow(k admin.Key) []string {
	types, until, made := strings.Join(k.Types, " "), "", ""
	if types == "" {
		types = "all"
	}
	if !k.Expires.IsZero() {
		until = shortTime(k.Expires)
	}
	if !k.Valid(time.Now()) {
		until = "expired"
	}
	if !k.CreatedAt.IsZero() {
		made = shortTime(k.CreatedAt)
	}
	return []string{printable(k.Name), strings.Join(k.Scopes, " "), types, cell(k.Namespace), until, made}
}

// withAPIKeys returns a RunE function that opens the store and passes its API keys to f.
func (s *session) withAPIKeys(f func(ctx context.Context, keys *admin.Keys, words []string) error, traits ...trait) func(*cobra.Command, []string) error {
	return s.run(func(ctx context.Context, words []string) error {
		if err := s.open(ctx); err != nil {
			return err
		}
		keys, err := admin.OpenKeys(s.db)
		if err != nil {
			return err
		}
		return f(ctx, keys, words)
	}, traits...)
}

func apiKeyCommand(s *session) *cobra.Command {
	return group(&cobra.Command{
		Use:   "apikey",
		Short: "Create, list and revoke API keys for 'userdb serve'",
		Example: `  userdb apikey create webshop --scope read login
  userdb apikey list`,
	}, createAPIKeyCommand(s), listAPIKeysCommand(s), revokeAPIKeyCommand(s))
}

func createAPIKeyCommand(s *session) *cobra.Command {
	var k admin.Key
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an API key for 'userdb serve'",
		Long: `Create an API key for 'userdb serve' and print its secret. The secret cannot be printed again,
because only its hash is stored. The key is for the namespace of --namespace, and for all types
unless --type names some. Scopes: read, write (also passwords, disabling and tags), login (logins,
sessions, tokens and invitations: what the backend of a web application needs), scim, admin
(everything).`,
		Example: `  userdb apikey create webshop --scope read login --type user
  userdb apikey create nightly --scope admin --expires 90d --json > key.json`,
		RunE: s.withAPIKeys(func(ctx context.Context, keys *admin.Keys, words []string) error {
			k.Name, k.Namespace = words[0], s.Namespace
			for _, name := range k.Types {
				if _, err := s.db.Type(name); err != nil {
					return noTypeError(name, s.db.Schema())
				}
			}
			if err := s.checkOutput(); err != nil {
				return err
			}
			secret, err := keys.Create(ctx, k)
			if errors.Is(err, userdb.ErrInvalid) {
				return usagef("the name of a key consists of at most 64 letters, digits, dots, hyphens and underscores")
			}
			if errors.Is(err, userdb.ErrDuplicate) {
				err = fmt.Errorf("key %s: %w", printable(k.Name), errKeyTaken)
			}
			if err != nil {
				return err
			}
			s.warnExposed()
			valid := "until it is revoked"
			if !k.Expires.IsZero() {
				valid = "until " + formatTime(k.Expires)
			}
			s.note("this secret is shown only once; it is valid %s ('userdb apikey revoke %s')", valid, printable(k.Name))
			return s.printRecorded(ctx, apiKeyOf(k, secret), secret, "created the API key "+printable(k.Name), userdb.EventKeyCreate, k.Name)
		}),
	}
	c.Flags().StringArrayVar(&k.Scopes, "scope", nil, "what the key may do: `SCOPE...`")
	c.Flags().StringArrayVar(&k.Types, "type", nil, "the key is for type `T` only; may be repeated")
	c.Flags().Func("expires", "the key is valid for `D`, such as 12h or 90d (default forever)", func(text string) error {
		d, err := parseDuration(text)
		if err == nil && d == 0 {
			err = errors.New("want more than zero")
		}
		k.Expires = time.Now().Add(d).Truncate(time.Second)
		return err
	})
	c.MarkFlagRequired("scope") // it is declared, so this cannot fail
	return c
}

func listAPIKeysCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the API keys, without their secrets",
		Example: `  userdb apikey create webshop --scope read > key.txt
  userdb apikey list --json`,
		RunE: s.withAPIKeys(func(ctx context.Context, keys *admin.Keys, _ []string) error {
			all, err := keys.All(ctx)
			if err != nil {
				return err
			}
			list := s.newRows([]string{"name", "until", "made"}, "name", "scopes", "types", "namespace", "until", "made")
			for _, k := range all {
				line := apiKeyOf(k, "")
				text := line.text()
				if !k.Valid(time.Now()) {
					text += ", expired"
				}
				if err := list.add(line, text, keyRow(k)...); err != nil {
					return err
				}
			}
			return list.end("no API keys; 'userdb apikey create' makes one")
		}, reading, allTypes),
	}
}

func revokeAPIKeyCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME",
		Short: "Revoke an API key: within five seconds every service refuses it",
		Long: `Revoke an API key: within five seconds every service refuses it.

Entries, sessions, tokens and invitations that were made with the key stay. If somebody else may have
used it, 'userdb events --kind session_start --kind issue' shows which sessions and tokens were made
'by key:NAME', unless the service ran with --history=false. 'userdb session end HINT --all' ends the
sessions of an account; 'userdb passwd' and 'userdb disable' also end its tokens. An invitation is
valid until it is used or expires, at most 30 days.`,
		Example: `  userdb apikey create webshop --scope read > key.txt
  userdb apikey revoke webshop`,
		RunE: s.withAPIKeys(func(ctx context.Context, keys *admin.Keys, words []string) error {
			name := printable(words[0])
			err := keys.Revoke(ctx, words[0])
			if errors.Is(err, userdb.ErrNotFound) {
				return fmt.Errorf("key %s: %w", name, userdb.ErrNotFound)
			}
			if err != nil {
				return err
			}
			s.note("sessions, tokens and invitations that were made with the key stay valid ('userdb apikey revoke --help' says how to end them)")
			return s.printRecorded(ctx, words[0], "revoked "+name, "revoked the API key "+name, userdb.EventKeyRevoke, words[0])
		}),
	}
}
