package admin_test

import (
	"encoding/base32"
	"errors"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/totp"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// openWithKeys opens a store with a key for second factors.
func openWithKeys(t *testing.T, url string) *userdb.DB {
	t.Helper()
	db, err := userdb.Open(t.Context(), url, userdb.Options{Keys: [][]byte{make([]byte, 32)}})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

// enrol signs an entry in with the password and adds an authenticator app.
func enrol(t *testing.T, operators *userdb.Type, name string) error {
	t.Helper()
	e, err := operators.Login(t.Context(), name, goodPassword, userdb.Attempt{})
	must(t, err)
	_, session, err := operators.StartSession(t.Context(), e, userdb.SessionOptions{})
	must(t, err)
	app, err := operators.EnrolTOTP(t.Context(), session, userdb.TOTPOptions{})
	if err != nil {
		return err
	}
	secret, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(app.Secret)
	must(t, err)
	_, err = operators.ConfirmTOTP(t.Context(), session, app.ID, totp.Code(secret, totp.Step(time.Now())), userdb.SessionOptions{})
	return err
}

// TestOldStore checks a store whose operators were made by an earlier version: it opens and accepts
// changes as before, and operators can enrol a second factor only after AllowFactors.
func TestOldStore(t *testing.T) {
	url := redistest.Start(t).URL()
	old := openWithKeys(t, url)
	inside, err := admin.Open(old)
	must(t, err)
	inside, err = view.Reconfigure(inside, func(c *view.Config) { // as declared by earlier versions
		operator := c.Schema.Types["operator"]
		operator.Factors = false
		c.Schema.Types["operator"] = operator
	})
	must(t, err)
	before, err := inside.Type("operator")
	must(t, err)
	_, err = before.Create(t.Context(), userdb.NewEntry{UID: "first", Facets: schema.Texts(admin.OperatorName, "Olga"), Password: goodPassword})
	must(t, err)
	stored := func() bool {
		t.Helper()
		all, err := migrate.StoredSchema(t.Context(), inside)
		must(t, err)
		return all.Types["operator"].Factors
	}

	db := openWithKeys(t, url)
	_, err = admin.AddOperator(t.Context(), db, "Paul", goodPassword)
	must(t, err)
	operators, err := admin.Operators(db)
	must(t, err)
	_, err = operators.SetPassword(t.Context(), hints.Any("olga"), goodPassword)
	must(t, err)
	allowed, passkeys, err := admin.FactorsAllowed(t.Context(), db)
	if err != nil || allowed || passkeys || stored() {
		t.Errorf("in an old store, operators may enrol factors: %v, passkeys: %v, %v; stored: %v; want false three times",
			allowed, passkeys, err, stored())
	}
	for _, how := range []string{"a view that has written", "a new view"} {
		if err := enrol(t, operators, "olga"); !errors.Is(err, userdb.ErrInvalid) {
			t.Errorf("%s: enrolling in an old store: got %v, want ErrInvalid", how, err)
		}
		operators, err = admin.Operators(openWithKeys(t, url))
		must(t, err)
	}
	_, err = before.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts(admin.OperatorName, "Quentin"), Password: goodPassword})
	must(t, err) // a process of the earlier version still writes

	must(t, admin.AllowFactors(t.Context(), db))
	must(t, admin.AllowFactors(t.Context(), db))
	if allowed, passkeys, err = admin.FactorsAllowed(t.Context(), db); err != nil || !allowed || passkeys || !stored() {
		t.Errorf("after AllowFactors, operators may enrol factors: %v, passkeys: %v, %v; stored: %v; want true, false and true", allowed, passkeys, err, stored())
	}
	for range 2 {
		_, err = admin.IssueEnrolLink(t.Context(), db, hints.Any("paul"))
		must(t, err)
		if _, passkeys, err = admin.FactorsAllowed(t.Context(), db); err != nil || !passkeys {
			t.Errorf("after IssueEnrolLink, operators may enrol passkeys: %v, %v; want true", passkeys, err)
		}
	}
	must(t, enrol(t, operators, "olga"))
	if _, err := operators.Login(t.Context(), "olga", goodPassword, userdb.Attempt{}); !errors.Is(err, userdb.ErrFactor) {
		t.Errorf("one step after that: got %v, want ErrFactor", err)
	}
}

// TestEnrolLink checks that a link is for one operator, and that it is invalid after it was spent
// or has expired.
func TestEnrolLink(t *testing.T) {
	eachStore(t, func(t *testing.T, db *userdb.DB) {
		ctx := t.Context()
		now := time.Now()
		db, err := view.Reconfigure(db, func(c *view.Config) { c.Clock = func() time.Time { return now } })
		must(t, err)
		if _, err := admin.IssueEnrolLink(ctx, db, hints.Any("olga")); !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("a link for an operator who does not exist: got %v, want ErrNotFound", err)
		}
		e, err := admin.AddOperator(ctx, db, "Olga", goodPassword)
		must(t, err)
		operators, err := admin.Operators(db)
		must(t, err)
		link, err := admin.IssueEnrolLink(ctx, db, hints.Any("olga"))
		must(t, err)
		if owner, err := admin.EnrolLinkOwner(ctx, operators, link); err != nil || owner.Key() != e.Key() {
			t.Errorf("the link is for %v, %v; want olga", owner, err)
		}
		must(t, admin.SpendEnrolLink(ctx, operators, link))
		must(t, admin.SpendEnrolLink(ctx, operators, link)) // changes nothing
		late, err := admin.IssueEnrolLink(ctx, db, hints.Any("olga"))
		must(t, err)
		now = now.Add(admin.EnrolLinkLife + time.Second)
		for _, bad := range []string{"", "x", link, late} {
			if _, err := admin.EnrolLinkOwner(ctx, operators, bad); !errors.Is(err, userdb.ErrNotFound) {
				t.Errorf("link %q: got %v, want ErrNotFound", bad, err)
			}
		}
	})
}
