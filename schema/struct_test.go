package schema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/coffeenode/userdb/schema"
)

type person struct {
	UID   string    `userdb:"uid,primary"`
	Email string    `userdb:"email,secondary,kind=email,many=5"`
	Name  *string   `userdb:"name,kind=nickname,secondary,ordered"`
	Added time.Time `userdb:"added,required"`
	Job   string    `userdb:"job"`
	Link  string    `userdb:"link,secondary,untyped,kind=url"`
	Notes []string
	home
}

type home struct {
	City netip.Addr      `userdb:"city,indexed"`
	Size *float32        `userdb:"size,ordered,indexed"`
	Own  bool            `userdb:"own"`
	Debt *big.Int        `userdb:"debt"`
	Pets map[string]int8 `userdb:"pets"`
	Any  any             `userdb:"any"`
}

func TestFrom(t *testing.T) {
	got, err := schema.From[person]()
	want := schema.Type{Primary: "uid", Fields: map[string]schema.Field{
		"email": {Role: schema.RoleSecondary, Kind: "email", Many: 5},
		"name":  {Role: schema.RoleSecondary | schema.RoleOrdered, Kind: "nickname"},
		"added": {Codec: schema.CodecDate, Required: true},
		"job":   {},
		"link":  {Role: schema.RoleSecondary, Kind: "url", Typed: new(false)},
		"city":  {Role: schema.RoleIndexed},
		"size":  {Codec: schema.CodecNumber, Role: schema.RoleIndexed | schema.RoleOrdered},
		"own":   {Codec: schema.CodecBoolean},
		"debt":  {},
		"pets":  {Codec: schema.CodecJSON},
		"any":   {Codec: schema.CodecJSON},
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	again, _ := schema.From[person]()
	again.Fields["more"] = schema.Field{} // must not change what From returns next
	if third, _ := schema.From[person](); !reflect.DeepEqual(third, want) {
		t.Errorf("a change of one result changes the next: got %+v, want %+v", third, want)
	}
}

// TestFromUser checks that a struct can declare the fields of the built-in schema.
func TestFromUser(t *testing.T) {
	type user struct {
		UID   string    `userdb:"uid,primary"`
		Email string    `userdb:"email,secondary,ordered,kind=email"`
		Name  string    `userdb:"name,secondary,ordered,kind=nickname"`
		Added time.Time `userdb:"added,ordered"`
		Job   string    `userdb:"job"`
	}
	got, err := schema.From[user]()
	if err != nil {
		t.Fatal(err)
	}
	if relation, words := got.Compare(schema.User().Types["user"]); relation != schema.Lacks || words != "the stored schema has the tertiary record tags, which is not declared here" {
		t.Errorf("got %d, %s; want %d, the stored schema has the tertiary record tags, which is not declared here", relation, words, schema.Lacks)
	}
}

func checkFromError[T any](t *testing.T, want string) {
	t.Helper()
	got, err := schema.From[T]()
	var bad *schema.Error
	if !errors.As(err, &bad) || err.Error() != want || got.Primary != "" || got.Fields != nil {
		t.Errorf("got %+v, %v\nwant %s", got, err, want)
	}
}

type noKey struct {
	Email string `userdb:"email,secondary"`
}

type mistyped struct {
	UID string `userdb:"uid,primary"`
	Bad string `userdb:"str,omitempty"`
}

func TestFromErrors(t *testing.T) {
	checkFromError[int](t, "schema: int: not a struct")
	checkFromError[*person](t, "schema: *schema_test.person: not a struct")
	checkFromError[struct{ A string }](t, "schema: struct: no field has a tag userdb")
	checkFromError[noKey](t, "schema: noKey: no field has the option primary")
	checkFromError[mistyped](t, `schema: mistyped.Bad: tag "str,omitempty": unknown option "omitempty"; want one of indexed, ordered, primary, required, secondary, set, untyped, kind=NAME, many=N`)
	checkFromError[struct {
		A string `userdb:"a,primary"`
		B string `userdb:"b,primary"`
	}](t, "schema: struct.B: a second primary field, after a")
	checkFromError[struct {
		A string `userdb:"a,primary,secondary"`
	}](t, "schema: struct.A: role: the primary field cannot have a role")
	checkFromError[struct {
		A int `userdb:"a,primary"`
	}](t, "schema: struct.A: codec: a key must be text")
	checkFromError[struct {
		noKey
		A string `userdb:"a,primary"`
		B int    `userdb:"b,secondary"`
	}](t, "schema: struct.B: codec: a key must be text")
	checkFromError[struct {
		A string `userdb:"a,primary"`
		B struct {
			C chan int
		} `userdb:"b"`
	}](t, "schema: struct.B: no codec supports type chan int (field C)")
	checkFromError[struct {
		A string `userdb:"a,primary"`
		B string `userdb:"b,kind=mail"`
	}](t, "schema: struct.B: kind: unknown kind mail; want one of email, email-dots, nickname, pattern, url, username")
	checkFromError[struct {
		A string `userdb:"a,primary"`
		B string `userdb:"*"`
	}](t, "schema: struct.B: the name * is reserved: in a hint it means every secondary field")
	checkFromError[struct {
		A string `userdb:"password,primary"`
	}](t, "schema: struct.A: the password cannot be a field of a struct; set it with SetPassword")
}

func ExampleFrom() {
	type Account struct {
		ID    string    `userdb:"id,primary"`
		Email string    `userdb:"email,secondary,kind=email"`
		Age   *int      `userdb:"age,ordered"`
		Since time.Time `userdb:"since,required"`
	}
	account, err := schema.From[Account]()
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := json.MarshalIndent(account, "", "  ")
	fmt.Println(string(text), err)
	// Output:
	// {
	//   "primary": "id",
	//   "fields": {
	//     "age": {
	//       "role": "ordered",
	//       "codec": "number"
	//     },
	//     "email": {
	//       "role": "secondary",
	//       "kind": "email"
	//     },
	//     "since": {
	//       "codec": "date",
	//       "required": true
	//     }
	//   }
	// } <nil>
}
