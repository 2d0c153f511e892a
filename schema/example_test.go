package schema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/coffeenode/userdb/schema"
)

func ExampleLoad() {
	s, err := schema.Load(strings.NewReader(`{"types": {"invoice": {
		"primary": "id",
		"fields": {
			"number": {"role": "secondary", "kind": "pattern", "pattern": "^[0-9]{7}$"},
			"total":  {"codec": "number"},
			"due":    {"codec": "date"}
		}
	}}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	invoice := s.Types["invoice"]
	fmt.Println(invoice.Primary, invoice.Secondary(), invoice.Codec("total"), invoice.Codec("note"))
	// Output: id [number] number text
}

func ExampleLoad_error() {
	_, err := schema.Load(strings.NewReader(`{"types": {"user": {
		"primary": "uid",
		"fields": {"added": {"codec": "time"}}
	}}}`))
	var bad *schema.Error
	fmt.Println(errors.As(err, &bad), bad.Path)
	fmt.Println(bad.Reason)
	// Output:
	// true types.user.fields.added.codec
	// unknown codec time; want one of boolean, date, identity, json, null, number, text
}

func ExampleSchema() {
	text, err := json.MarshalIndent(schema.User(), "", "  ")
	if err != nil {
		fmt.Println(err)
		return
	}
	again, err := schema.Load(strings.NewReader(string(text)))
	fmt.Println(again.Names(), err)
	// Output: [user] <nil>
}

func ExampleType_Canonical() {
	user := schema.User().Types["user"]
	for _, name := range []string{"alice", " Alice ", "ＡＬＩＣＥ", "Straße"} {
		fmt.Printf("%q\n", user.Canonical(name))
	}
	// Output:
	// "alice"
	// "alice"
	// "alice"
	// "strasse"
}

func ExampleType_Difference() {
	stored := schema.User().Types["user"]
	here := schema.User().Types["user"]
	here.Fields["name"] = schema.Field{}
	here.Fields["city"] = schema.Field{}
	fmt.Println(here.Fingerprint() == stored.Fingerprint())
	fmt.Println(here.Difference(stored))
	// Output:
	// false
	// secondary fields: stored email, name; here email, and ordered fields: stored added, email, name; here added, email
}

func ExampleDecode() {
	v, err := schema.Decode(schema.CodecNumber, "1e+21")
	f, ok := v.Number()
	fmt.Println(f, ok, err)

	_, err = schema.Decode(schema.CodecJSON, "undefined")
	fmt.Println(err)
	// Output:
	// 1e+21 true <nil>
	// schema: json value "undefined": not one JSON value
}

func ExampleParseText() {
	for _, text := range []string{"42", "4.20e1", "42 years"} {
		v, err := schema.ParseText(schema.CodecNumber, text)
		fmt.Println(v.Wire(), err)
	}
	// Output:
	// 42 <nil>
	// 42 <nil>
	//  schema: number value "42 years": not a number
}

func ExampleFacets() {
	f := schema.Texts("name", "Alice", "email", "alice@hotmail.com")
	f["age"] = schema.Number(42)
	text, err := json.Marshal(f)
	fmt.Println(string(text), err)
	// Output: {"age":42,"email":"alice@hotmail.com","name":"Alice"} <nil>
}
