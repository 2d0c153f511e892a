package hints_test

import (
	"encoding/json"
	"fmt"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
)

func Example() {
	visitor := "Alice" // entered into a login form
	target, err := hints.Any(visitor).Resolve(schema.User(), "user")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, k := range target.Keys {
		fmt.Println(k)
	}
	fmt.Println(target.Pattern())
	// Output:
	// user/email:alice/~prk
	// user/name:alice/~prk
	// user/*:alice/~prk
}

func ExampleParse() {
	for _, text := range []string{
		"17c07627d35e", "name=Alice", "user/name:Alice/~prk", `["email","alice@hotmail.com"]`, `{"name":"Alice"}`, "age=42",
	} {
		h, err := hints.Parse(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		target, err := h.Resolve(schema.User(), "user")
		if err != nil {
			fmt.Println(err)
			continue
		}
		answer, _ := json.Marshal(target)
		fmt.Printf("%s\n", answer)
	}
	// Output:
	// ["prk","user/uid:17c07627d35e","user","uid","17c07627d35e"]
	// ["srk","user/name:alice/~prk","user","name","alice"]
	// ["srk","user/name:alice/~prk","user","name","alice"]
	// ["srk","user/email:alice@hotmail.com/~prk","user","email","alice@hotmail.com"]
	// ["srk","user/name:alice/~prk","user","name","alice"]
	// hints: field "age": type "user" has no such field
}

func ExampleAsUser() {
	s := schema.User()
	for _, hint := range []string{`"17c07627d35e"`, `["name","Alice"]`, `["user","name","Alice"]`} {
		q, err := hints.AsUser(s, "user", []byte(hint))
		if err != nil {
			fmt.Println(err)
			continue
		}
		answer, _ := json.Marshal(q)
		fmt.Printf("%s\n", answer)
	}
	// Output:
	// ["prk","user/uid:17c07627d35e","user","uid","17c07627d35e"]
	// ["srk","user/name:alice/~prk","user","name","alice"]
	// hints: "[\"user\",\"name\",\"Alice\"]": list of 3, want two
}
