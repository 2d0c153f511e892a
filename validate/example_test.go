package validate_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/validate"
)

func ExampleCheck() {
	pairs, err := validate.Check(schema.Type{
		Primary: "uid",
		Fields: map[string]schema.Field{
			"email":   {Role: schema.RoleSecondary, Kind: "email"},
			"home":    {Role: schema.RoleSecondary, Pattern: `^https?://.+`},
			"invoice": {Role: schema.RoleSecondary, Pattern: `[0-9]{7}`},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range pairs {
		fmt.Printf("%s, %s: %s %q\n", p.A, p.B, p.Verdict, p.Witness)
	}
	// Output:
	// email, home: orthogonal ""
	// email, invoice: overlap "a@0000000"
	// home, invoice: overlap "http://0000000"
}

func ExampleRules_Secondary() {
	user := schema.User().Types["user"]
	rules, err := validate.Compile(user)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(rules.Secondary("email", user.Canonical("Alice@HotMail.com")))
	err = rules.Secondary("email", user.Canonical("alice"))
	fmt.Println(err, errors.Is(err, validate.ErrRule))
	fmt.Println(rules.Secondary("name", user.Canonical("alice＠hotmail.com")))
	// Output:
	// <nil>
	// email: no @ in the address true
	// name: nickname: contains an @
}

func ExampleRules_Candidates() {
	rules, err := validate.Compile(schema.User().Types["user"])
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, value := range []string{"alice@hotmail.com", "alice", "1234567"} {
		fmt.Println(value, strings.Join(rules.Candidates(value), " "))
	}
	// Output:
	// alice@hotmail.com email
	// alice name
	// 1234567 email name
}
