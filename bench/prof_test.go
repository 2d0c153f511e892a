package main

import (
	"context"
	"testing"

	"github.com/coffeenode/userdb/hints"
)

func BenchmarkCreate(b *testing.B) {
	ctx := context.Background()
	s, err := startServer(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer s.stop()
	s.reset(ctx)
	_, users, _ := s.users(ctx)
	b.ReportAllocs()
	b.Run("create", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, err := users.Create(ctx, newUser(serial(1, b.N%100, i))); err != nil {
				i += 1000
			}
		}
	})
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			users.Find(ctx, hints.UID(uid(i%population)))
		}
	})
	b.Run("lookup", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			users.Find(ctx, hints.Any(email(i%population)))
		}
	})
}
