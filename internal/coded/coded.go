// Package coded makes errors that say their code themselves, for packages that import userdb: its
// table cannot have them.
package coded

import "github.com/coffeenode/userdb/userdb"

// New returns an error with a code that [userdb.CodeOf] finds. Each call returns another error, as
// that of errors.New does.
func New(code userdb.Code, text string) error { return &coded{code, text} }

type coded struct {
	code userdb.Code
	text string
}

func (c *coded) Error() string { return c.text }

func (c *coded) ErrorCode() userdb.Code { return c.code }
