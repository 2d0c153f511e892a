package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// hash takes the place of a bcrypt hash, and is as long.
const hash = "$2a$10$drXOR3Lt8YRqTwTszLnNZ.Ybnwmur4ZeomIe/d4o5wJbDRCHyKIhi"

func uid(n int) string   { return fmt.Sprintf("%012x", n) }
func email(n int) string { return fmt.Sprintf("user%d@example.com", n) }
func name(n int) string  { return fmt.Sprintf("user number %d", n) }

// fields returns the fields of one user: eight facets, and those that the store adds.
func fields(n int) []any {
	return append(newFields(n), "password", hash)
}

// newFields returns the fields that Create writes.
func newFields(n int) []any {
	return []any{
		"~isa", "user", "~prk", prk(n), "~rev", "abcdefghijkl", "uid", uid(n), "email", email(n), "name", name(n),
		"job", "cook", "city", "Berlin", "lang", "de", "added", "2026-11-20T08:02:40.512Z",
	}
}

func prk(n int) string             { return "user/uid:" + uid(n) }
func srkMail(n int) string         { return srk("email", email(n)) }
func srkName(n int) string         { return srk("name", name(n)) }
func srk(field, val string) string { return "user/" + field + ":" + recordkey.Escape(val) + "/~prk" }

// load writes users as the library would, in bare pipelines.
func load(ctx context.Context, c *redis.Client, from, to int) {
	for from < to {
		pipe := c.Pipeline()
		for ; from < to && pipe.Len() < 3000; from++ {
			put(ctx, pipe, from, fields(from))
		}
		mustGet(pipe.Exec(ctx))
	}
}

// put writes what Create writes, without any check.
func put(ctx context.Context, p redis.Pipeliner, n int, fields []any) {
	p.HSet(ctx, prk(n), fields...)
	p.Set(ctx, srkMail(n), prk(n), 0)
	p.Set(ctx, srkName(n), prk(n), 0)
}

// userSchema returns the built-in schema with the fields that entries have here, and without its
// orders, which the programs that the library is compared with do not keep.
func userSchema() schema.Schema {
	s := schema.User()
	for name, f := range s.Types["user"].Fields {
		f.Role &^= schema.RoleOrdered
		s.Types["user"].Fields[name] = f
	}
	s.Types["user"].Fields["city"], s.Types["user"].Fields["lang"] = schema.Field{}, schema.Field{}
	return s
}

// open opens the library on the server.
func (s *server) open(ctx context.Context, o userdb.Options) (*userdb.DB, *userdb.Type) {
	if o.Schema.Types == nil {
		o.Schema = userSchema()
	}
	db := mustGet(userdb.Open(ctx, s.url(160), o))
	return db, mustGet(db.Type("user"))
}

// facets returns the facets that a caller passes to Create.
func facets(n int) schema.Facets {
	return schema.Texts("email", email(n), "name", name(n), "job", "cook", "city", "Berlin", "lang", "de")
}

func newUser(n int) userdb.NewEntry { return userdb.NewEntry{UID: uid(n), Facets: facets(n)} }
