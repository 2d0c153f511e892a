package main

import (
	"context"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// hash stands for a bcrypt string: it has its length.
const hash = "$2a$10$drXOR3Lt8YRqTwTszLnNZ.Ybnwmur4ZeomIe/d4o5wJbDRCHyKIhi"

func uid(n int) string   { return fmt.Sprintf("%012x", n) }
func email(n int) string { return fmt.Sprintf("user%d@example.com", n) }
func name(n int) string  { return fmt.Sprintf("user number %d", n) }

// fields are those of one user, eight facets and what the store itself keeps.
func fields(n int) []any {
	return []any{
		"~isa", "user", "~prk", "user/uid:" + uid(n), "~rev", "abcdefghijkl", "uid", uid(n), "email", email(n), "name", name(n),
		"password", hash, "job", "cook", "city", "Berlin", "lang", "de", "added", "2026-11-20T08:02:40.512Z",
	}
}

func prk(n int) string     { return "user/uid:" + uid(n) }
func srkMail(n int) string { return "user/email:" + email(n) + "/~prk" }
func srkName(n int) string { return "user/name:" + recordkey.Escape(name(n)) + "/~prk" }

// load writes users as the library would, in bare pipelines.
func load(ctx context.Context, c *redis.Client, from, to int) error {
	for from < to {
		pipe := c.Pipeline()
		for ; from < to && pipe.Len() < 3000; from++ {
			pipe.HSet(ctx, prk(from), fields(from)...)
			pipe.Set(ctx, srkMail(from), prk(from), 0)
			pipe.Set(ctx, srkName(from), prk(from), 0)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// users opens the library on the server.
func (s *server) users(ctx context.Context) (*userdb.DB, *userdb.Type, error) {
	return s.open(ctx, userdb.Options{})
}

func (s *server) open(ctx context.Context, o userdb.Options) (*userdb.DB, *userdb.Type, error) {
	db, err := userdb.Open(ctx, s.url()+"?pool_size=160", o)
	if err != nil {
		return nil, nil, err
	}
	t, err := db.Type("user")
	return db, t, err
}

// facets are those that a caller gives Create.
func facets(n int) schema.Facets {
	return schema.Texts("email", email(n), "name", name(n), "job", "cook", "city", "Berlin", "lang", "de")
}

func newUser(n int) userdb.NewEntry { return userdb.NewEntry{UID: uid(n), Facets: facets(n)} }

func bytesNote(ours, theirs float64) string {
	return fmt.Sprintf("%.0f bytes an entry with its SRKs, against %.0f", ours, theirs)
}
