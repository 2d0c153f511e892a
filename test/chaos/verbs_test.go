//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// verbs lists the questions of clients. A verb that is listed twice is asked twice as often. Most
// are named after a method of the library. The others are: get for Find by UID; begin, check, end,
// endid and endall for sessions (endid ends one by its ID, endall all of an account); issue and
// redeem for tokens; invite and accept for invitations; once for a request with an idempotency key;
// list for a change of a list of identifiers (testdb.ListQuestion); and swap, for which client.swap
// asks several others.
var verbs = []string{
	"create", "create", "create", "create", "create", "update", "update", "update", "update", "update", "update", "delete", "delete", "delete",
	"find", "find", "find", "find", "get", "get", "swap", "password", "login", "login", "disable", "enable", "enable", "tag", "tag", "replace", "tags", "tags",
	"begin", "begin", "begin", "check", "check", "check", "check", "end", "end", "endid", "endid", "endall", "issue", "redeem", "redeem", "invite", "accept", "accept", "once", "once",
	"list", "list", "list", "list", "list", "list", "list", "list", "list", "list", "list", "list", "list", "list", "list", "list",
}

// randomQuestion returns a random question. It calls tag for each new tag.
func randomQuestion(rnd *rand.Rand, tag func() string) question {
	q := question{Verb: verbs[rnd.IntN(len(verbs))], UID: rnd.IntN(accounts)}
	value := func() int8 { return int8(1 + rnd.IntN(values)) }
	// Mostly password 1, because logins are throttled after too many wrong passwords.
	password := func() int8 { return int8(1 + rnd.IntN(5)/4) }
	switch q.Verb {
	case "create":
		for i := range q.Facets {
			if rnd.IntN(2) > 0 {
				q.Facets[i] = value()
			}
		}
		q.Password = password()
		for range rnd.IntN(3) {
			q.Tags = append(q.Tags, tag())
		}
	case "update":
		q.Change = []string{"put", "put", "put", "drop", "drop", "move", "move", "exchange"}[rnd.IntN(8)]
		q.Field, q.Value = rnd.IntN(len(fields)), value()
		q.To = (q.Field + 1 + rnd.IntN(len(fields)-1)) % len(fields)
	case "find":
		q.Field, q.Value = rnd.IntN(len(fields)+3)-3, value()
		q.Field = max(q.Field, -1)
	case "password", "login":
		q.Password, q.Value = password(), value()
	case "tag":
		q.Tags = []string{tag()}
	case "replace":
		for range rnd.IntN(3) {
			q.Tags = append(q.Tags, tag())
		}
	case "invite", "accept", "once":
		q.UID = noAccount
	case "list":
		list := testdb.RandomListQuestion(rnd)
		q.UID, q.List = noAccount, &list
	}
	return q
}

// A caller asks questions about one epoch.
type caller struct {
	users, members *userdb.Type

	epoch int
	how   int // selects the spelling of values, and the service to ask

	serviceAddrs []string // addresses of the services
	key          string   // API key for the services
}

func (c caller) text(v int8) string { return spelling(c.epoch, v, c.how) }

func (c caller) uid(q question) hints.Hint { return hints.UID(uidOf(c.epoch, q.UID)) }

// do asks a question and returns the answer.
func (c caller) do(ctx context.Context, q question) answer {
	if q.Verb == "once" {
		return c.once(ctx, q)
	}
	a := answer{UID: -1}
	var e userdb.Entry
	var err error
	switch q.Verb {
	case "create":
		e, err = c.create(ctx, q)
		a.Facets = q.Facets
	case "update":
		e, err = c.users.Update(ctx, c.uid(q), func(e *userdb.Entry) error {
			c.change(e, q)
			a.Facets = facetsOf(c.epoch, *e)
			return nil
		})
	case "find":
		h := hints.Any(c.text(q.Value))
		if q.Field >= 0 {
			h = hints.Field(fields[q.Field], c.text(q.Value))
		}
		e, err = c.users.Find(ctx, h)
	case "get":
		e, err = c.users.Find(ctx, c.uid(q))
	case "login":
		e, err = c.users.Login(ctx, c.text(q.Value), passwordText(q.Password), userdb.Attempt{Origin: fmt.Sprint(now())})
	case "tags":
		a.Tags, err = c.users.Tags(c.uid(q)).Members(ctx)
	case "check":
		e, _, err = c.users.Session(ctx, q.Secret)
	case "begin", "issue", "invite", "accept":
		err = c.askForSecret(ctx, q, &a)
	case "list":
		var list testdb.ListAnswer
		list, err = testdb.AskList(ctx, c.members, c.epoch, *q.List)
		a.List = &list
	default:
		err = c.askSimple(ctx, q)
	}
	if err == nil && e.UID() != "" {
		a.UID, a.Facets, a.Disabled = accountOf(c.epoch, e), facetsOf(c.epoch, e), e.Disabled()
	}
	a.setOutcome(q, err)
	return a
}

func (c caller) create(ctx context.Context, q question) (userdb.Entry, error) {
	n := userdb.NewEntry{UID: uidOf(c.epoch, q.UID), Facets: schema.Facets{}, Tags: q.Tags, Password: passwordText(q.Password)}
	for i, v := range q.Facets {
		if v > 0 {
			n.Facets[fields[i]] = schema.Text(c.text(v))
		}
	}
	return c.users.Create(ctx, n)
}

// askSimple asks the questions whose only answer is success or an error.
func (c caller) askSimple(ctx context.Context, q question) error {
	switch q.Verb {
	case "delete":
		return c.users.Delete(ctx, c.uid(q))
	case "password":
		_, err := c.users.SetPassword(ctx, c.uid(q), passwordText(q.Password))
		return err
	case "disable":
		return c.users.Disable(ctx, c.uid(q))
	case "enable":
		return c.users.Enable(ctx, c.uid(q))
	case "tag":
		_, err := c.users.Tags(c.uid(q)).Add(ctx, q.Tags...)
		return err
	case "replace":
		return c.users.Tags(c.uid(q)).Replace(ctx, q.Tags...)
	case "end":
		return c.users.EndSession(ctx, q.Secret)
	case "endid":
		return c.users.EndSessionID(ctx, c.uid(q), q.ID)
	case "endall":
		_, err := c.users.EndSessions(ctx, c.uid(q))
		return err
	case "redeem":
		_, _, err := c.users.Redeem(ctx, purpose, q.Secret)
		return err
	}
	return fmt.Errorf("no such verb: %s", q.Verb)
}

// change carries out the change of an update on an entry. It corresponds to facets.changed in the
// model.
func (c caller) change(e *userdb.Entry, q question) {
	field, to := fields[q.Field], fields[q.To]
	from, has := e.Get(field)
	other, had := e.Get(to)
	switch q.Change {
	case "put":
		e.Put(field, schema.Text(c.text(q.Value)))
	case "drop":
		e.Drop(field)
	case "move", "exchange":
		if !has && q.Change == "move" {
			return
		}
		set(e, to, from, has)
		set(e, field, other, had && q.Change == "exchange")
	}
}

// set sets a field, or drops it if has is false.
func set(e *userdb.Entry, field string, v schema.Value, has bool) {
	if has {
		e.Put(field, v)
	} else {
		e.Drop(field)
	}
}

// setOutcome sets the outcome of an answer from the error that a call returned.
func (a *answer) setOutcome(q question, err error) {
	switch {
	case err == nil && (a.UID == -2 || a.Facets.mask(-1) != 0):
		a.What, a.Text = "odd", "an account or a value of another epoch"
	case err == nil && slices.Contains([]string{"create", "update", "get", "check"}, q.Verb) && a.UID != q.UID:
		a.What, a.Text = "odd", "another account"
	case err == nil:
		a.What = "ok"
	case errors.Is(err, userdb.ErrOutcomeUnknown), errors.Is(err, userdb.ErrUnconfirmed):
		a.What = "unknown"
	case errors.Is(err, userdb.ErrDuplicate):
		a.What, a.Fields = "taken", takenFields(err)
	case errors.Is(err, userdb.ErrNotFound):
		a.What = "absent"
	case errors.Is(err, userdb.ErrConflict):
		a.What = "conflict"
	case errors.Is(err, userdb.ErrUnavailable), errors.Is(err, userdb.ErrTooManyAttempts):
		a.What = "refused"
	case errors.Is(err, userdb.ErrLogin):
		a.What = "denied"
	case errors.Is(err, context.DeadlineExceeded):
		a.What = "unknown"
	default:
		a.What = "odd"
	}
	if err != nil {
		a.Text = err.Error()
	}
}

// purpose is the purpose of all tokens. noAccount is the account of questions that concern none.
const (
	purpose   = "chaos"
	noAccount = -1
)

// askForSecret asks the questions that return a secret, and accept, which uses the secret of an
// invitation.
func (c caller) askForSecret(ctx context.Context, q question, a *answer) (err error) {
	switch q.Verb {
	case "begin":
		var e userdb.Entry
		var s userdb.Session
		if e, err = c.users.Find(ctx, c.uid(q)); err == nil {
			s, a.Secret, err = c.users.StartSession(ctx, e, userdb.SessionOptions{})
			a.ID = s.ID
		}
	case "issue":
		a.Secret, err = c.users.Issue(ctx, c.uid(q), userdb.Token{Purpose: purpose})
	case "invite":
		var i userdb.Invitation
		name := fmt.Sprint(now())
		i, err = c.users.Invite(ctx, "email", "invited "+name, userdb.Token{}, userdb.Attempt{Origin: name})
		a.Secret = i.Secret
	case "accept":
		var e userdb.Entry
		e, err = c.users.AcceptInvitation(ctx, q.Secret, userdb.NewEntry{})
		a.ID = e.UID()
	}
	return err
}

// takenFields returns the taken fields that an error names. An error of a create or update may name
// several.
func takenFields(err error) (names []string) {
	if joined, all := err.(interface{ Unwrap() []error }); all {
		for _, err := range joined.Unwrap() {
			names = append(names, takenFields(err)...)
		}
		return names
	}
	if field, ok := errors.AsType[*userdb.FieldError](err); ok && errors.Is(err, userdb.ErrDuplicate) {
		names = append(names, field.Field)
	}
	return names
}
