// Package scs keeps the requirements of this module, for go mod tidy.
package scs

import (
	_ "github.com/alexedwards/scs/v2"

	_ "github.com/coffeenode/userdb/userdb"
)
