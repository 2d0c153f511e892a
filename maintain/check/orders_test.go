package check_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// orderedSchema returns a schema that orders users by age and by last name.
func orderedSchema() schema.Schema {
	return schema.Schema{Types: map[string]schema.Type{"user": {
		Primary: "uid", Fields: map[string]schema.Field{
			"name": {Role: schema.RoleSecondary}, "age": {Role: schema.RoleOrdered, Codec: schema.CodecNumber},
			"last": {Role: schema.RoleOrdered},
		},
	}}}
}

func TestCheckOrders(t *testing.T) {
	const ages, lasts, prk = "~/order/user/age", "~/order/user/last", "user/uid:u1"
	position := func(last, uid string) string {
		return strings.ToLower(last) + "\x00\x01\x00\x03" + last + "\x00\x01user/uid:" + uid
	}
	for _, tt := range []struct {
		name string
		do   [][]string
		want []string
		one  []string // for the entry u1 only; nil means the same as want
	}{
		{"no damage", nil, nil, nil},
		{"a position lost", cmds(cmd("ZREM", lasts, position("Adams", "u1"))), []string{"order_missing " + lasts}, nil},
		{"an order lost", cmds(cmd("DEL", lasts)), []string{"order_missing " + lasts, "order_missing " + lasts}, []string{"order_missing " + lasts}},
		{"an extra position", cmds(cmd("ZADD", lasts, "0", position("Zorn", "u1"))), []string{"order_stale " + lasts}, nil},
		{"a position without an entry", cmds(cmd("ZADD", lasts, "0", position("Zorn", "u9"))), []string{"order_orphan " + lasts}, []string{}},
		{
			"invalid positions", cmds(cmd("ZADD", lasts, "0", "rubbish", "0", "", "0", "x\x00\x01user/name:x", "0", "x\x00\x01firm/id:x")),
			[]string{"order_orphan " + lasts, "order_orphan " + lasts, "order_orphan " + lasts, "order_orphan " + lasts},
			[]string{},
		},
		{"another Redis type", cmds(cmd("DEL", lasts), cmd("SET", lasts, "x")), []string{"order_kind " + lasts, "order_missing " + lasts, "order_missing " + lasts}, []string{"order_kind " + lasts, "order_missing " + lasts}},
		{
			"an undeclared order", cmds(cmd("ZADD", "~/order/user/name", "0", "x"), cmd("ZADD", "~/order/robot/x", "0", "x")),
			[]string{"order_undeclared ~/order/user/name", "order_undeclared ~/order/robot/x"},
			[]string{},
		},
		{"a facet changed by another program", cmds(cmd("HSET", prk, "last", "Zorn")), []string{"order_missing " + lasts, "order_stale " + lasts}, nil},
		{"a facet lost", cmds(cmd("HDEL", prk, "age")), []string{"order_missing " + ages, "order_stale " + ages}, nil},
		{"a value that cannot be ordered", cmds(cmd("HSET", prk, "last", fmt.Sprintf("%01025d", 1))), []string{"order_unplaced " + prk, "order_missing " + lasts, "order_stale " + lasts}, nil},
		{"an entry without a value", cmds(cmd("HDEL", prk, "last"), cmd("ZREM", lasts, position("Adams", "u1")), cmd("ZADD", lasts, "0", "\x00\x00"+prk)), nil, nil},
		{"the position of an entry without a value lost", cmds(cmd("HDEL", prk, "last"), cmd("ZREM", lasts, position("Adams", "u1"))), []string{"order_missing " + lasts}, nil},
		{"an extra position before all values", cmds(cmd("ZADD", lasts, "0", "\x00\x00"+prk)), []string{"order_stale " + lasts}, nil},
		{"a position before all values, without an entry", cmds(cmd("ZADD", lasts, "0", "\x00\x00user/uid:u9")), []string{"order_orphan " + lasts}, []string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *site) {
				s = s.Under(t, orderedSchema())
				for i, last := range []string{"Adams", "Brown"} {
					uid := fmt.Sprintf("u%d", i+1)
					_, err := s.Type(t, "user").Create(s.Ctx, userdb.NewEntry{UID: uid, Facets: schema.Facets{
						"name": schema.Text(uid), "last": schema.Text(last), "age": schema.Number(float64(i)),
					}})
					if err != nil {
						t.Fatal(err)
					}
				}
				for _, c := range tt.do {
					s.Do(t, c...)
				}
				testdb.Same(t, "all", s.Check(t, check.Options{}), tt.want)
				one := tt.one
				if one == nil {
					one = tt.want
				}
				testdb.Same(t, "one entry", s.Check(t, check.Options{Only: testdb.Must(hintsKey(prk))}), one)
				for p, err := range check.Run(s.Ctx, s.DB, check.Options{Repair: true}) {
					if wantRepaired := strings.HasPrefix(p.Code, "order_") && p.Code != "order_undeclared" && p.Code != "order_unplaced"; err != nil || p.Repaired != wantRepaired {
						t.Errorf("repair: got %v, %v; want Repaired %v", p, err, wantRepaired)
					}
				}
				if !strings.Contains(tt.name, "declared") && !strings.Contains(tt.name, "cannot be ordered") {
					testdb.Same(t, "after the repair", s.Check(t, check.Options{}), nil)
				}
			})
		})
	}
}

func hintsKey(prk string) (hints.Hint, error) {
	k, err := recordkey.Parse(prk)
	return hints.Key(k), err
}
