package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/hashcost"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

func TestMain(m *testing.M) { os.Exit(hashcost.Cheap(m)) }

// open opens an empty store in memory.
func open() (*userdb.DB, *userdb.Type) {
	db, err := userdb.Open(context.Background(), "memory:", userdb.Options{})
	if err != nil {
		log.Fatal(err)
	}
	users, err := db.Type("user")
	if err != nil {
		log.Fatal(err)
	}
	return db, users
}

// openWithAlice opens a store with one user.
func openWithAlice() (*userdb.DB, *userdb.Type) {
	db, users := open()
	_, err := users.Create(context.Background(), userdb.NewEntry{
		UID:      "17c07627d35e",
		Facets:   schema.Texts("email", "alice@hotmail.com", "name", "Alice"),
		Tags:     []string{"cook", "driver"},
		Password: "correct horse battery staple",
	})
	if err != nil {
		log.Fatal(err)
	}
	return db, users
}

func Example() {
	ctx := context.Background()
	db, err := userdb.Open(ctx, "memory:", userdb.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	users, err := db.Type("user")
	if err != nil {
		log.Fatal(err)
	}
	_, err = users.Create(ctx, userdb.NewEntry{
		Facets:   schema.Texts("email", "alice@hotmail.com", "name", "Alice"),
		Password: "correct horse battery staple",
	})
	if err != nil {
		log.Fatal(err)
	}
	alice, err := users.Login(ctx, "ALICE", "correct horse battery staple", userdb.Attempt{})
	fmt.Println(alice.Text("email"), err)
	// Output: alice@hotmail.com <nil>
}

func ExampleOpen() {
	db, err := userdb.Open(context.Background(), "memory:", userdb.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	fmt.Println(db.Ping(context.Background()))
	// Output: <nil>
}

func ExampleType_Create() {
	db, users := openWithAlice()
	defer db.Close()
	// A value belongs to one entry, however it is spelled and whichever field it is in.
	_, err := users.Create(context.Background(), userdb.NewEntry{Facets: schema.Texts("name", "ALICE")})
	var field *userdb.FieldError
	if errors.As(err, &field) {
		fmt.Println(errors.Is(err, userdb.ErrDuplicate), field.Field)
	}
	_, err = users.Create(context.Background(), userdb.NewEntry{Facets: schema.Texts("name", "bob@x.org")})
	fmt.Println(err)
	// Output:
	// true name
	// invalid value: name: contains an @
}

func ExampleType_Find() {
	db, users := openWithAlice()
	defer db.Close()
	for _, h := range []hints.Hint{
		hints.Any("alice"),
		hints.Field("email", "Alice@Hotmail.com"),
		hints.UID("17c07627d35e"),
		hints.Any("nobody"),
	} {
		e, err := users.Find(context.Background(), h)
		fmt.Println(e.Text("name"), err)
	}
	// Output:
	// Alice <nil>
	// Alice <nil>
	// Alice <nil>
	//  not found
}

func ExampleType_FindAll() {
	db, users := openWithAlice()
	defer db.Close()
	hs := []hints.Hint{hints.Any("nobody"), hints.Any("alice")}
	for e, err := range users.FindAll(context.Background(), hs...) {
		fmt.Println(e.UID(), err)
	}
	// Output:
	//  not found
	// 17c07627d35e <nil>
}

func ExampleType_Update() {
	db, users := openWithAlice()
	defer db.Close()
	e, err := users.Update(context.Background(), hints.Any("alice"), func(e *userdb.Entry) error {
		e.Put("name", schema.Text("Alicia"))
		e.Put("job", schema.Text("cook"))
		return nil
	})
	fmt.Println(e.Text("name"), e.Text("job"), err)
	exists, err := users.Exists(context.Background(), hints.Any("alice"))
	fmt.Println(exists, err)
	// Output:
	// Alicia cook <nil>
	// false <nil>
}

func ExampleType_Save() {
	ctx := context.Background()
	db, users := openWithAlice()
	defer db.Close()
	mine, err := users.Find(ctx, hints.Any("alice"))
	if err != nil {
		log.Fatal(err)
	}
	theirs := mine
	theirs.Put("job", schema.Text("cook"))
	_, err = users.Save(ctx, theirs)
	fmt.Println(err)
	mine.Put("job", schema.Text("driver"))
	_, err = users.Save(ctx, mine)
	fmt.Println(err, errors.Is(err, userdb.ErrConflict))
	// Output:
	// <nil>
	// changed meanwhile true
}

func ExampleType_Check() {
	ctx := context.Background()
	db, users := openWithAlice()
	defer db.Close()
	e, err := users.Find(ctx, hints.Any("alice"))
	if err != nil {
		log.Fatal(err)
	}
	e.Put("email", schema.Text("no address"))
	fmt.Println(users.Check(ctx, e))
	// Output:
	// invalid value: email: no @ in the address
}

func ExampleType_Delete() {
	ctx := context.Background()
	db, users := openWithAlice()
	defer db.Close()
	fmt.Println(users.Delete(ctx, hints.Any("alice")))
	fmt.Println(users.Delete(ctx, hints.Any("alice")))
	// Output:
	// <nil>
	// not found
}

func ExampleType_Login() {
	ctx := context.Background()
	db, users := openWithAlice()
	defer db.Close()
	for _, password := range []string{"correct horse battery staple", "123456"} {
		e, err := users.Login(ctx, "alice@hotmail.com", password, userdb.Attempt{Origin: "192.0.2.1"})
		fmt.Printf("%q %v\n", e.Text("name"), err)
	}
	// Output:
	// "Alice" <nil>
	// "" wrong identifier or password
}

func ExampleType_Tags() {
	ctx := context.Background()
	db, users := openWithAlice()
	defer db.Close()
	tags := users.Tags(hints.Any("alice"))
	added, err := tags.Add(ctx, "cook", "singer")
	fmt.Println(added, err)
	members, err := tags.Members(ctx)
	fmt.Println(members, err)
	for e, err := range users.All(ctx, userdb.Query{Tags: []string{"singer", "cook"}}) {
		fmt.Println(e.Text("name"), err)
	}
	// Output:
	// 1 <nil>
	// [cook driver singer] <nil>
	// Alice <nil>
}

func ExampleType_Page() {
	ctx := context.Background()
	db, users := open()
	defer db.Close()
	for _, name := range []string{"Ann", "Bob", "Cy"} {
		if _, err := users.Create(ctx, userdb.NewEntry{UID: "uid-of-" + name, Facets: schema.Texts("name", name)}); err != nil {
			log.Fatal(err)
		}
	}
	q := userdb.Query{Limit: 2}
	for {
		page, err := users.Page(ctx, q)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(len(page.Entries))
		if q.After = page.Next; page.Next == "" {
			break
		}
	}
	// Output:
	// 2
	// 1
}

// An Account is a user as an application may represent one.
type Account struct {
	UID   string          `userdb:"uid,primary"`
	Rev   userdb.Revision `userdb:"~rev"`
	Email string          `userdb:"email,secondary,kind=email"`
	Name  string          `userdb:"name,secondary,kind=nickname"`
	Age   *int            `userdb:"age"` // nil if unknown
	Added time.Time       `userdb:"added"`
}

// openAccounts opens an empty store whose schema is derived from the tags of Account.
func openAccounts() (*userdb.DB, *userdb.Typed[Account]) {
	user, err := schema.From[Account]()
	if err != nil {
		log.Fatal(err)
	}
	db, err := userdb.Open(context.Background(), "memory:", userdb.Options{Schema: schema.Schema{Types: map[string]schema.Type{"user": user}}})
	if err != nil {
		log.Fatal(err)
	}
	users, err := db.Type("user")
	if err != nil {
		log.Fatal(err)
	}
	accounts, err := userdb.Of[Account](users)
	if err != nil {
		log.Fatal(err)
	}
	return db, accounts
}

func ExampleOf() {
	ctx := context.Background()
	db, accounts := openAccounts()
	defer db.Close()
	alice, err := accounts.Create(ctx, Account{Email: "alice@hotmail.com", Name: "Alice"})
	fmt.Println(len(alice.UID), alice.Added.IsZero(), err)
	found, err := accounts.Find(ctx, hints.Any("ALICE"))
	fmt.Println(found.Email, found.Age, found.Rev.String() == alice.Rev.String(), err)
	// Output:
	// 12 false <nil>
	// alice@hotmail.com <nil> true <nil>
}

func ExampleOf_error() {
	db, users := open()
	defer db.Close()
	_, err := userdb.Of[struct {
		Mail string `userdb:"emial"`
	}](users)
	fmt.Println(err)
	_, err = userdb.Of[struct {
		Job string `userdb:"job,omitempty"`
	}](users)
	fmt.Println(err)
	_, err = userdb.Of[struct {
		Job int `userdb:"job"`
	}](users)
	fmt.Println(err)
	// Output:
	// schema: struct.Mail: facet "emial": type "user" has no such field; did you mean "email"?
	// schema: struct.Job: tag "job,omitempty": unknown option "omitempty"; want one of indexed, ordered, primary, required, secondary, set, untyped, kind=NAME, many=N
	// schema: struct.Job: facet "job" has codec text, which does not support type int
}

func ExampleTyped_Update() {
	ctx := context.Background()
	db, accounts := openAccounts()
	defer db.Close()
	_, err := accounts.Create(ctx, Account{UID: "17c07627d35e", Name: "Alice"})
	fmt.Println(err)
	alice, err := accounts.Update(ctx, hints.UID("17c07627d35e"), func(a *Account) error {
		a.Age = new(42)
		return nil
	})
	fmt.Println(alice.Name, *alice.Age, err)
	// Output:
	// <nil>
	// Alice 42 <nil>
}

func ExampleTyped_Save() {
	ctx := context.Background()
	db, accounts := openAccounts()
	defer db.Close()
	mine, err := accounts.Create(ctx, Account{Name: "Alice"})
	fmt.Println(err)
	theirs := mine
	theirs.Name = "Alicia"
	_, err = accounts.Save(ctx, theirs)
	fmt.Println(err)
	mine.Age = new(42)
	_, err = accounts.Save(ctx, mine)
	fmt.Println(err, errors.Is(err, userdb.ErrConflict))
	// Output:
	// <nil>
	// <nil>
	// changed meanwhile true
}

func ExampleTyped_FromEntry() {
	ctx := context.Background()
	db, users := openWithAlice()
	defer db.Close()
	type account struct {
		Email string `userdb:"email"`
	}
	accounts, err := userdb.Of[account](users)
	if err != nil {
		log.Fatal(err)
	}
	e, err := users.Login(ctx, "alice", "correct horse battery staple", userdb.Attempt{})
	fmt.Println(err)
	alice, err := accounts.FromEntry(e)
	fmt.Println(alice.Email, err)
	// Output:
	// <nil>
	// alice@hotmail.com <nil>
}

func ExampleDB_In() {
	ctx := context.Background()
	db, users := openWithAlice()
	defer db.Close()
	ns, err := recordkey.Namespace{}.Sub("acme")
	if err != nil {
		log.Fatal(err)
	}
	acme, err := db.In(ns)
	if err != nil {
		log.Fatal(err)
	}
	theirs, err := acme.Type("user")
	if err != nil {
		log.Fatal(err)
	}
	here, _ := users.Exists(ctx, hints.Any("alice"))
	there, _ := theirs.Exists(ctx, hints.Any("alice"))
	fmt.Println(here, there)
	// Output: true false
}

func ExampleEntry() {
	db, users := openWithAlice()
	defer db.Close()
	e, err := users.Find(context.Background(), hints.Any("alice"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(e.Key(), e.Type(), e.UID(), e.Text("email"))
	// An entry never holds the password hash.
	v, has := e.Get("password")
	fmt.Println(v.Text(), has)
	// Output:
	// user/uid:17c07627d35e user 17c07627d35e alice@hotmail.com
	//  false
}
