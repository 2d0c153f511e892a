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

// A password reset link is valid for ten minutes. In a real test, t is the *testing.T.
func Example() {
	t := &recorder{}
	ctx := context.Background()
	s := userdbtest.New(t, userdbtest.Fixtures(os.DirFS("testdata"), "users.jsonl"))
	users := s.Type("user")
	secret, err := users.Issue(ctx, hints.Any("alice@example.com"), userdb.Token{Purpose: "reset", Lifetime: 10 * time.Minute})
	if err != nil {
		t.Fatalf("issuing: %v", err)
	}
	s.Clock.Advance(10 * time.Minute)
	_, err = users.ResetPassword(ctx, "reset", secret, "brand new horse")
	fmt.Println(errors.Is(err, userdb.ErrNotFound))
	fmt.Println(s.Close()) // the end of a test also closes the store, after checking all records
	// Output:
	// true
	// <nil>
}
