package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/coffeenode/userdb/recordkey"
)

// keysRow counts allocations: they do not depend on the machine.
func keysRow() row {
	return row{
		name: "keys", what: "allocations to parse a key, and to build one and write it as text; 0 and 1", target: 1, most: true,
		run: func(context.Context, *bench) (outcome, error) {
			text := srkMail(1)
			parse := testing.AllocsPerRun(1000, func() {
				if _, err := recordkey.Parse(text); err != nil {
					panic(err)
				}
			})
			build := testing.AllocsPerRun(1000, func() {
				k, _ := recordkey.SRK("user", "email", "user1@example.com")
				_ = k.String()
			})
			return outcome{ratio: parse + build, note: fmt.Sprintf("parse %.0f, build %.0f", parse, build)}, nil
		},
	}
}
