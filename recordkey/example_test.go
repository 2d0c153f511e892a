package recordkey_test

import (
	"fmt"

	"github.com/coffeenode/userdb/recordkey"
)

func Example() {
	prk, err := recordkey.PRK("user", "uid", "9a4c88dbc084")
	if err != nil {
		fmt.Println(err)
		return
	}
	tags, _ := prk.Tertiary("tags")
	srk, _ := recordkey.SRK("user", "name", "Just A. User")
	fmt.Println(prk)
	fmt.Println(tags)
	fmt.Println(srk)
	// Output:
	// user/uid:9a4c88dbc084
	// user/uid:9a4c88dbc084/tags
	// user/name:Just+_A.+_User/~prk
}

func ExampleParse() {
	k, err := recordkey.Parse("~acme/user/name:Just+_A.+_User/~prk")
	fmt.Println(k.Kind(), k.Namespace(), k.Type(), k.Field(), k.Value(), err)

	_, err = recordkey.Parse("user/name:Just A. User/~prk")
	fmt.Println(err)
	// Output:
	// SRK ~acme/ user name Just A. User <nil>
	// recordkey.Parse: "user/name:Just A. User/~prk" at byte 14: " " must be written +_
}

func ExampleNamespace() {
	acme, _ := recordkey.Namespace{}.Sub("acme")
	europe, _ := acme.Sub("eu")
	k, _ := recordkey.PRK("user", "uid", "x")
	fmt.Println(k.In(europe))
	fmt.Println(europe.Path())
	// Output:
	// ~acme/~eu/user/uid:x
	// acme/eu
}

func ExamplePattern() {
	p := recordkey.Pattern{Kind: recordkey.KindSRK, Type: "user", Value: "who*?"}
	fmt.Println(p)
	// Output: user/*:who\*\?/~prk
}

func ExampleEscape() {
	escaped := recordkey.Escape("http://example.com/a b")
	raw, err := recordkey.Unescape(escaped)
	fmt.Println(escaped)
	fmt.Println(raw, err)
	// Output:
	// http+.+,+,example.com+,a+_b
	// http://example.com/a b <nil>
}

func ExampleHexPath() {
	fmt.Printf("%q\n", recordkey.HexPath([][]byte{[]byte("fo")}, []byte("obar")))
	fmt.Printf("%q\n", recordkey.HexPath([][]byte{[]byte("foo")}, []byte("bar")))
	// Output:
	// "666f\x006f626172"
	// "666f6f\x00626172"
}
