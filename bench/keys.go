package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/coffeenode/userdb/recordkey"
)

// keys counts allocations: they do not depend on the machine.
func (*bench) keys(context.Context) (outcome, error) {
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
}
