package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

var errOperatorTaken = coded.New(userdb.CodeDuplicate, "an operator of that name exists (case does not matter): choose another name")

func operatorCommand(s *session) *cobra.Command {
	return group(&cobra.Command{
		Use:   "operator",
		Short: "Manage the operators of the console of 'userdb serve'",
		Long: `Operators look after accounts in the console of 'userdb serve'. They are not among your entries.
Names that look the same to people are the same, and case does not matter. Operators are never
deleted, because histories name them: disable one who may no longer sign in.`,
		Example: `  userdb operator add Olga --password-stdin < secret.txt
  userdb operator list`,
	}, addOperatorCommand(s), listOperatorsCommand(s), operatorPasswordCommand(s),
		disableOperatorCommand(s), enableOperatorCommand(s), enrolOperatorCommand(s), removeOperatorFactorsCommand(s))
}

// operators opens the store and returns the type of its operators.
func (s *session) operators(ctx context.Context) (*userdb.Type, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	return admin.Operators(s.db)
}

func addOperatorCommand(s *session) *cobra.Command {
	return s.withStdin(&cobra.Command{
		Use:   "add NAME",
		Short: "Add an operator",
		Long: `Add an operator. The command asks for the password twice without echo, or reads it as one line with
--password-stdin. From then on, the set-up link that 'userdb serve' printed is void.`,
		Example: `  userdb operator add Olga --password-stdin < secret.txt`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			var pw string
			add := func(ctx context.Context) error {
				if err := s.open(ctx); err != nil {
					return err
				}
				_, err := admin.AddOperator(ctx, s.db, words[0], pw)
				if errors.Is(err, userdb.ErrDuplicate) {
					err = fmt.Errorf("operator %s: %w", printable(words[0]), errOperatorTaken)
				}
				return err
			}
			check := func(ctx context.Context) error { return ignoreMissingPassword(add(ctx)) }
			return s.ask(ctx, check, func(ctx context.Context) error {
				if err := add(ctx); err != nil {
					return err
				}
				done := "added " + printable(words[0])
				return s.printRecorded(ctx, words[0], done, done, userdb.EventOperatorAdd, words[0])
			}, secret{"password", newPassword, &pw})
		}, asking),
	})
}

// An operatorLine holds what is printed about an operator.
type operatorLine struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Added     string `json:"added"`
	Disabled  bool   `json:"disabled"`
	TwoSteps  bool   `json:"two_steps"` // the operator has a second factor
}

func (o operatorLine) text() string {
	text := printable(o.Name) + ", since " + o.Added
	if o.Namespace != "" {
		text += ", namespace " + printable(o.Namespace)
	}
	if o.TwoSteps {
		text += ", two steps"
	}
	if o.Disabled {
		text += ", disabled"
	}
	return text
}

// row returns the columns of a table of operators. since is when the operator was added.
func (o operatorLine) row(since string) []string {
	var status []string
	if o.TwoSteps {
		status = append(status, "two steps")
	}
	if o.Disabled {
		status = append(status, "disabled")
	}
	return []string{printable(o.Name), cell(o.Namespace), since, strings.Join(status, ", ")}
}

func listOperatorsCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the operators",
		Example: `  userdb operator add Olga --password-stdin < secret.txt
  userdb operator list --json`,
		RunE: s.run(func(ctx context.Context, _ []string) error {
			operators, err := s.operators(ctx)
			if err != nil {
				return err
			}
			list := s.newRows([]string{"name", "since"}, "name", "namespace", "since", "status")
			for e, err := range operators.All(ctx, userdb.Query{Order: admin.OperatorName}) {
				if err != nil {
					return err
				}
				line := operatorLine{Name: e.Text(admin.OperatorName), Namespace: e.Text(admin.OperatorNamespace), Disabled: e.Disabled(), TwoSteps: len(e.FactorMethods()) > 0}
				if !admin.CanSee(s.Namespace, line.Namespace) {
					continue
				}
				since := ""
				if v, ok := e.Get(admin.OperatorAdded); ok {
					at, _ := v.Time()
					line.Added, since = at.Format(time.RFC3339), shortTime(at)
				}
				if err := list.add(line, line.text(), line.row(since)...); err != nil {
					return err
				}
			}
			return list.end("no operators; 'userdb operator add' makes one")
		}, reading),
	}
}

func operatorPasswordCommand(s *session) *cobra.Command {
	return s.withStdin(&cobra.Command{
		Use:   "passwd NAME",
		Short: "Set the password of an operator, and end their sessions and jobs",
		Example: `  userdb operator add Olga --password-stdin < secret.txt
  userdb operator passwd olga --password-stdin < secret.txt`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			var pw string
			return s.ask(ctx, func(ctx context.Context) error {
				return s.onOperator(ctx, words[0], "", "", func(*userdb.Type, userdb.Entry) error { return nil })
			}, func(ctx context.Context) error {
				name := ""
				err := s.onOperator(ctx, words[0], "changed", userdb.EventOperatorPassword, func(t *userdb.Type, e userdb.Entry) error {
					name = e.Text(admin.OperatorName)
					_, err := t.SetPassword(ctx, hints.Key(e.Key()), pw)
					return err
				})
				if err != nil && !errors.Is(err, errUnrecorded) {
					return err
				}
				return cmp.Or(s.endJobsOf(ctx, name), err)
			}, secret{"password", newPassword, &pw})
		}, asking),
	})
}

func enableOperatorCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "enable NAME",
		Short: "Let an operator sign in again",
		Example: `  userdb operator add Olga --password-stdin < secret.txt
  userdb operator enable olga`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			return s.onOperator(ctx, words[0], "enabled", userdb.EventOperatorEnable, func(t *userdb.Type, e userdb.Entry) error {
				return t.Enable(ctx, hints.Key(e.Key()))
			})
		}),
	}
}

func disableOperatorCommand(s *session) *cobra.Command {
	revoke, endLinks := false, false
	c := &cobra.Command{
		Use:   "disable NAME",
		Short: "Keep an operator from signing in, and end their sessions and jobs",
		Long: `Keep an operator from signing in. Their sessions end at once, and their running jobs within seconds.
API keys that they made in the console still work and are listed; --revoke-keys revokes them. Links
that they made for accounts in the last day, and whose secrets they have seen, still work as well: the
accounts are listed, and --end-links ends all links of these accounts.`,
		Example: `  userdb operator add Olga --password-stdin < secret.txt
  userdb operator disable olga --revoke-keys --end-links`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			name := ""
			err := s.onOperator(ctx, words[0], "disabled", userdb.EventOperatorDisable, func(t *userdb.Type, e userdb.Entry) error {
				name = e.Text(admin.OperatorName)
				return t.Disable(ctx, hints.Key(e.Key()))
			})
			if err != nil && !errors.Is(err, errUnrecorded) {
				return err
			}
			return cmp.Or(s.endWorkOf(ctx, name, revoke), s.endLinksOf(ctx, name, endLinks), err)
		}),
	}
	c.Flags().BoolVar(&revoke, "revoke-keys", false, "also revoke the API keys that the operator made")
	c.Flags().BoolVar(&endLinks, "end-links", false, "also end the links of accounts for which the operator made one")
	return c
}

// An enrolLine holds what is printed about a link for the first second factor of an operator.
type enrolLine struct {
	Name    string `json:"name"`
	Link    string `json:"link"`
	Expires string `json:"expires"`
}

func enrolOperatorCommand(s *session) *cobra.Command {
	console := ""
	c := &cobra.Command{
		Use:   "enrol NAME",
		Short: "Make a link with which an operator adds an app or a passkey",
		Long: `Print a link with which an operator who has no second factor adds an authenticator app or a passkey.
The link is valid for an hour, works once, and needs the operator's password. With 'userdb serve
--operators-factor' it is the only way to add the first factor.

In a store that an earlier version made, this command first allows second factors for all operators.
Processes of earlier versions can then no longer change operators, so replace these processes first.`,
		Example: `  userdb operator add Olga --password-stdin < secret.txt
  userdb operator enrol olga --url https://console.example.com/console`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			u, err := url.Parse(console)
			if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
				return usagef("--url %s: want the address of the console, such as https://console.example.com/console", printable(console))
			}
			var link enrolLine
			var stored string
			err = s.onOperator(ctx, words[0], "", "", func(_ *userdb.Type, e userdb.Entry) error {
				stored = e.Text(admin.OperatorName)
				secret, err := admin.IssueEnrolLink(ctx, s.db, hints.Key(e.Key()))
				link = enrolLine{stored, strings.TrimSuffix(console, "/") + "/enrol?token=" + secret, time.Now().Add(admin.EnrolLinkLife).UTC().Format(time.RFC3339)}
				return err
			})
			if err != nil {
				return err
			}
			return s.printRecorded(ctx, link, link.Link, "made a link", userdb.EventOperatorLink, stored)
		}),
	}
	c.Flags().StringVar(&console, "url", "http://127.0.0.1:8470/console", "the console is at `URL`")
	return c
}

func removeOperatorFactorsCommand(s *session) *cobra.Command {
	return s.withYes(&cobra.Command{
		Use:   "unenrol NAME",
		Short: "Remove all second factors of an operator, and end their sessions",
		Long: `Remove all second factors of an operator, and end their sessions. From then on the password alone signs
in, or nothing with 'userdb serve --operators-factor', until 'userdb operator enrol' has made a link
and the operator has used it. First make sure who is asking.`,
		Example: `  userdb operator add Olga --password-stdin < secret.txt
  userdb operator unenrol olga --yes`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			if !s.yes {
				return usagef("would remove the second factors of the operator %s: add --yes", printable(words[0]))
			}
			return s.onOperator(ctx, words[0], "removed the second factors of", userdb.EventOperatorNoFactor, func(t *userdb.Type, e userdb.Entry) error {
				_, err := t.ResetFactors(ctx, hints.Key(e.Key()))
				return err
			})
		}),
	})
}

// endJobsOf asks the processes of an operator's running jobs to end these jobs.
func (s *session) endJobsOf(ctx context.Context, operator string) error {
	jobs, err := admin.OpenJobs(s.db)
	if err != nil {
		return err
	}
	return jobs.RequestStopOf(ctx, operator)
}

// endWorkOf ends the jobs of an operator, and lists or revokes the API keys that the operator made.
// If the event of one key cannot be recorded, it goes on with the other keys.
func (s *session) endWorkOf(ctx context.Context, operator string, revoke bool) error {
	if err := s.endJobsOf(ctx, operator); err != nil {
		return err
	}
	keys, err := admin.OpenKeys(s.db)
	if err != nil {
		return err
	}
	made, err := keys.MadeBy(ctx, operator)
	if err != nil {
		return err
	}
	var unrecorded error
	for _, k := range made {
		name := printable(k.Name)
		if !revoke {
			err = s.out.print(apiKeyOf(k, ""), "the API key "+name+" still works: 'userdb apikey revoke "+name+"' revokes it")
		} else if err = keys.Revoke(ctx, k.Name); err == nil {
			done := "revoked the API key " + name
			err = s.printRecorded(ctx, apiKeyOf(k, ""), done, done, userdb.EventKeyRevoke, k.Name)
		} else if errors.Is(err, userdb.ErrNotFound) {
			err = nil // revoked meanwhile
		}
		if errors.Is(err, errUnrecorded) {
			unrecorded, err = err, nil // the other keys are revoked nevertheless
		}
		if err != nil {
			return err
		}
	}
	return unrecorded
}

// A linkLine holds what is printed about an account for which an operator made a link.
type linkLine struct {
	Namespace string `json:"namespace,omitempty"`
	Type      string `json:"type"`
	UID       string `json:"uid"`
	Ended     bool   `json:"ended"`
	Expires   string `json:"expires"` // when the link is no longer valid
}

// endLinksOf lists the accounts for which an operator made links that may still be valid. If end is
// set, it ends all links of these accounts, as far as it can.
func (s *session) endLinksOf(ctx context.Context, operator string, end bool) error {
	links, err := admin.OpenLinks(s.db)
	if err != nil {
		return err
	}
	made, err := links.MadeBy(ctx, operator)
	if err != nil {
		return err
	}
	var failed []error
	for _, l := range made {
		account := printable(l.Type) + " " + printable(l.UID)
		if l.Namespace != "" {
			account += " in " + printable(l.Namespace)
		}
		line := linkLine{Namespace: l.Namespace, Type: l.Type, UID: l.UID, Ended: end, Expires: l.Expires.Format(time.RFC3339)}
		text := "a link for " + account + " may still be valid until " + line.Expires + ": --end-links ends the links of this account"
		if end {
			text = "ended the links of " + account
			if err := links.End(ctx, l); err != nil {
				failed = append(failed, fmt.Errorf("ending the links of %s: %w", account, err))
				continue
			}
		}
		if err := s.out.print(line, text); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

// onOperator calls do with the operator called name. Unless kind is "", it then prints done and the
// name, as in "disabled olga", and records an event of that kind.
func (s *session) onOperator(ctx context.Context, name, done string, kind userdb.EventKind, do func(*userdb.Type, userdb.Entry) error) error {
	operators, err := s.operators(ctx)
	if err != nil {
		return err
	}
	e, err := operators.Find(ctx, hints.Field(admin.OperatorName, name))
	if err == nil && !admin.CanSee(s.Namespace, e.Text(admin.OperatorNamespace)) {
		err = userdb.ErrNotFound
	}
	if err == nil {
		err = do(operators, e)
	}
	if errors.Is(err, userdb.ErrNotFound) {
		err = fmt.Errorf("operator %s: %w", printable(name), userdb.ErrNotFound)
	}
	if err != nil || kind == "" {
		return err
	}
	done += " " + printable(name)
	return s.printRecorded(ctx, name, done, done, kind, e.Text(admin.OperatorName))
}
