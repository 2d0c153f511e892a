package main

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/userdb"
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

// BenchmarkCrowd is for profiles of 128 callers.
func BenchmarkCrowd(b *testing.B) {
	ctx := context.Background()
	s, err := startServer(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer s.stop()
	s.reset(ctx)
	db, users, err := s.users(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	var last atomic.Int64
	for name, op := range map[string]func(i int) error{
		"get":    func(i int) error { _, err := users.Find(ctx, hints.UID(uid(i%population))); return err },
		"lookup": func(i int) error { _, err := users.Find(ctx, hints.Any(email(i%population))); return err },
		"create": func(i int) error { _, err := users.Create(ctx, newUser(i)); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(128 / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := op(int(last.Add(1)) + 10*population); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkCluster is for profiles of creates on six nodes.
func BenchmarkCluster(b *testing.B) {
	ctx := context.Background()
	_, err := (&bench{}).withCluster(ctx, func(users *userdb.Type, c *redis.ClusterClient, _ *nodes) (outcome, error) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			i++
			if _, err := users.Create(ctx, newUser(i)); err != nil {
				return outcome{}, err
			}
		}
		return outcome{}, nil
	})
	if err != nil {
		b.Fatal(err)
	}
}
