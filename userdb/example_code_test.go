package userdb_test

import (
	"errors"
	"fmt"

	"github.com/coffeenode/userdb/userdb"
)

func ExampleCodeOf() {
	err := errors.Join(
		&userdb.FieldError{Err: userdb.ErrDuplicate, Field: "name"},
		&userdb.FieldError{Err: userdb.ErrInvalid, Field: "email", Rule: "email", Reason: "no @ in the address"},
	)
	code := userdb.CodeOf(err)
	fmt.Println(code, code.HTTPStatus(), code.ExitStatus())
	// Output: invalid 422 2
}
