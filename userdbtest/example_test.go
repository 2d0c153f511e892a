package userdbtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdbtest"
)

// A link to a new password is good for ten minutes. In a test, t is its *testing.T.
func Example() {
	t := &recorder{}
	ctx := context.Background()
	s := userdbtest.New(t, userdbtest.Fixtures(os.DirFS("testdata"), "users.jsonl"))
	users := s.Type("user")
	secret, err := users.Issue(ctx, hints.Any("alice@example.com"), userdb.Token{Purpose: "reset", Life: 10 * time.Minute})
	if err != nil {
		t.Fatalf("issuing: %v", err)
	}
	s.Clock.Advance(10 * time.Minute)
	_, err = users.ResetPassword(ctx, "reset", secret, "brand new horse")
	fmt.Println(errors.Is(err, userdb.ErrNotFound))
	fmt.Println(s.Close()) // as the end of a test does, after a check of all records
	// Output:
	// true
	// <nil>
}
