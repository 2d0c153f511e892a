// Package coded makes errors that carry their own code. It is for packages that import userdb: the
// table of codes in userdb cannot list their errors.
package coded

import "github.com/coffeenode/userdb/userdb"

// New returns an error with a code that [userdb.CodeOf] finds. Like errors.New, it returns a
// distinct error each time.
func New(code userdb.Code, text string) error { return &coded{code, text} }

type coded struct {
	code userdb.Code
	text string
}

func (c *coded) Error() string { return c.text }

func (c *coded) ErrorCode() userdb.Code { return c.code }
