package inspect_test

import (
	"context"
	"fmt"
	"log"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// storeWithAlice opens a store in memory with one user.
func storeWithAlice() (*userdb.DB, *userdb.Type) {
	ctx := context.Background()
	db, err := userdb.Open(ctx, "memory:", userdb.Options{})
	if err != nil {
		log.Fatal(err)
	}
	users, err := db.Type("user")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := users.Create(ctx, userdb.NewEntry{UID: "17c07627d35e", Facets: schema.Texts("email", "alice@hotmail.com", "name", "Alice")}); err != nil {
		log.Fatal(err)
	}
	return db, users
}

func ExampleKeys() {
	db, _ := storeWithAlice()
	defer db.Close()
	for key, err := range inspect.Keys(context.Background(), db, "user/name:*") {
		fmt.Println(key, err)
	}
	// Output: user/name:alice/~prk <nil>
}

func ExampleRemoveKeys() {
	ctx := context.Background()
	db, users := storeWithAlice()
	defer db.Close()
	// RemoveKeys keeps an SRK while its entry exists. Removing an entry removes everything that
	// belongs to it.
	n, err := inspect.RemoveKeys(ctx, db, "user/name:*")
	fmt.Println(n, err)
	n, err = inspect.RemoveKeys(ctx, db, "user/uid:17c07627d35e")
	fmt.Println(n, err)
	exists, err := users.Exists(ctx, hints.Any("alice"))
	fmt.Println(exists, err)
	// Output:
	// 0 <nil>
	// 1 <nil>
	// false <nil>
}
