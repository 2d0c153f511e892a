//go:build linux

package chaos

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// chaosSchema returns a schema with three secondary fields, whose values are case-folded. cost is
// the bcrypt cost. Clients use different costs, so that a login replaces a hash that another client
// wrote.
func chaosSchema(cost int) schema.Schema {
	secondary := schema.Field{Role: schema.RoleSecondary}
	return schema.Schema{Types: map[string]schema.Type{testdb.ListType: testdb.ListSchema(), "user": {
		Primary: "uid", Fold: schema.FoldCasefold,
		Fields:   map[string]schema.Field{"email": secondary, "name": secondary, "nick": secondary},
		Tertiary: map[string]schema.Tertiary{"tags": {Kind: "set", Indexed: true}},
		Password: &schema.Password{Cost: cost},
	}}}
}

func uidOf(epoch, uid int) string { return fmt.Sprintf("e%d-%d", epoch, uid) }

// spelling returns one of three texts that stand for value v and have the same canonical form. They
// contain characters that keys escape.
func spelling(epoch int, v int8, how int) string {
	text := fmt.Sprintf("value %c/%d+{x}: y", 'a'+v-1, epoch)
	switch how {
	case 1:
		return strings.ToUpper(text)
	case 2:
		return "  " + strings.ReplaceAll(text, " ", "  ")
	}
	return text
}

// canonical returns the canonical form of a text from spelling.
func canonical(text string) string { return strings.Join(strings.Fields(strings.ToLower(text)), " ") }

// valueOf returns the number of the value that a text stands for in an epoch: 0 if the text is
// empty, and -1 if it stands for no value.
func valueOf(epoch int, text string) int8 {
	if text == "" {
		return 0
	}
	for v := int8(1); v <= values; v++ {
		if canonical(text) == spelling(epoch, v, 0) {
			return v
		}
	}
	return -1
}

func facetsOf(epoch int, e userdb.Entry) (f facets) {
	for i, field := range fields {
		f[i] = valueOf(epoch, e.Text(field))
	}
	return f
}

// accountOf returns the number of the account that an entry is, or -2 if the entry is not an
// account of the epoch.
func accountOf(epoch int, e userdb.Entry) int {
	uids := make([]string, accounts)
	for i := range uids {
		uids[i] = uidOf(epoch, i)
	}
	if i := slices.Index(uids, e.UID()); i >= 0 {
		return i
	}
	return -2
}

func passwordText(p int8) string { return fmt.Sprintf("the password no. %d", p) }
