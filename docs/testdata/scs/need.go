// Package scs imports what the code in docs/scs.md imports, so that go mod tidy keeps it in go.mod.
package scs

import (
	_ "github.com/alexedwards/scs/v2"

	_ "github.com/coffeenode/userdb/userdb"
)
