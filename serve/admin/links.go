package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// MaxLinkLife is the longest time for which a link that an operator makes is valid.
const MaxLinkLife = 24 * time.Hour

const linkType = "link"

// A Link records that an operator made a link and saw its secret. The store does not keep the
// secret.
type Link struct {
	ID        string    `userdb:"id,primary"`
	By        string    `userdb:"by"`        // the operator's name
	Namespace string    `userdb:"namespace"` // of the account
	Type      string    `userdb:"type"`
	UID       string    `userdb:"uid"`
	Expires   time.Time `userdb:"expires,ordered"` // when it has ended, by any server's clock
}

func declareLink() (schema.Type, error) {
	t, err := schema.From[Link]()
	t.Fold = schema.FoldExact
	return t, err
}

// clockMargin is how much the clocks of the servers of a store may differ, and those of programs of
// earlier versions, which used their own clocks.
const clockMargin = time.Hour

// Links holds the links that operators made. It is safe for concurrent use.
type Links struct {
	db        *userdb.DB
	view      *view.View // of the records of links
	all       *userdb.Type
	typed     *userdb.Typed[Link]
	operators *userdb.Type
}

// OpenLinks returns the links to the accounts of all namespaces of db's store.
func OpenLinks(db *userdb.DB) (*Links, error) {
	adminDB, t, operators, err := openWithOperators(db, linkType)
	if err != nil {
		return nil, err
	}
	typed, err := userdb.Of[Link](t)
	return &Links{db, view.Of(adminDB), t, typed, operators}, err
}

// Issue records a link for an account of the DB that was passed to OpenLinks, valid for the given
// time, and then calls issue, which makes the link. If the operator has been disabled or has been
// given another password, Issue ends the links of the account and returns ErrOperatorDisabled.
func (ls *Links) Issue(ctx context.Context, operator string, account recordkey.Key, life time.Duration, issue func() error) error {
	now, err := storeTime(ctx, ls.view)
	if err == nil {
		err = ls.prune(ctx, now)
	}
	if err != nil {
		return err
	}
	l := Link{
		ID: strings.ToLower(rand.Text()), By: operator, Namespace: namespaceOf(ls.db), Type: account.Type(), UID: account.Value(),
		Expires: now.Add(life + clockMargin).UTC().Truncate(time.Millisecond),
	}
	if l, err = ls.typed.Create(ctx, l); err != nil {
		return err
	}
	if err = issue(); err != nil {
		if code := userdb.CodeOf(err); code != userdb.CodeUnavailable && code != userdb.CodeOther {
			// Certainly no link was made. If the record cannot be deleted, it is pruned later.
			_ = ls.all.Delete(ctx, hints.UID(l.ID))
		}
		return err
	}
	if err = checkOperator(ctx, ls.operators, operator); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		return errors.Join(err, ls.End(ctx, l))
	}
	return nil
}

// prune deletes the records of links that are no longer valid at now. It leaves out damaged
// records, so that one of them does not keep all operators from making links.
func (ls *Links) prune(ctx context.Context, now time.Time) error {
	last := schema.Date(now)
	for l, err := range ls.typed.All(ctx, userdb.Query{Order: "expires", LTE: &last}) {
		if err == nil {
			err = ls.all.Delete(ctx, hints.UID(l.ID))
		}
		if err != nil && !errors.Is(err, userdb.ErrNotFound) && !isDamaged(err) {
			return err
		}
	}
	return nil
}

// isDamaged reports whether err is about a single record that cannot be read.
func isDamaged(err error) bool {
	return errors.Is(err, userdb.ErrCorrupt) || errors.Is(err, userdb.ErrUnmarshal)
}

// MadeBy returns the links that an operator made and that may still be valid, one for each account:
// the one that is valid longest.
func (ls *Links) MadeBy(ctx context.Context, operator string) (all []Link, err error) {
	now, err := storeTime(ctx, ls.view)
	if err != nil {
		return nil, err
	}
	first, seen := schema.Date(now), map[[3]string]bool{}
	for l, err := range ls.typed.All(ctx, userdb.Query{Order: "expires", GTE: &first, Reverse: true}) {
		if err != nil {
			return nil, err
		}
		account := [3]string{l.Namespace, l.Type, l.UID}
		if l.By == operator && !seen[account] {
			seen[account] = true
			all = append(all, l)
		}
	}
	return all, nil
}

// End ends all links of the account that l is for. It returns nil if there is no such account.
func (ls *Links) End(ctx context.Context, l Link) error {
	ns, err := recordkey.ParseNamespace(l.Namespace)
	if err != nil {
		return err
	}
	db, err := ls.db.In(ns)
	if err != nil {
		return err
	}
	stored, err := migrate.StoredSchema(ctx, db)
	if err == nil && len(stored.Types) > 0 {
		db, err = db.With(stored)
	}
	if err != nil {
		return err
	}
	v := view.Of(db)
	for range maxEndAttempts {
		t, r, err := v.Find(ctx, hints.UID(l.UID), l.Type)
		if errors.Is(err, userdb.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		c, due, err := t.Update(r, change.Facets(r), map[string]string{token.FieldTokens: ""})
		if err != nil || !due {
			return err
		}
		if _, err = v.Apply(ctx, t, c); !errors.Is(err, userdb.ErrConflict) {
			return err
		}
	}
	return userdb.ErrConflict
}

// maxEndAttempts is how often End tries to change an account that others change at the same time.
const maxEndAttempts = 20
