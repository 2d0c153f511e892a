// What docs/scs.md shows is compiled in this module, which keeps scs out of the other one.
module github.com/coffeenode/userdb/docs/testdata/scs

go 1.26.0

replace github.com/coffeenode/userdb => ../../../

require (
	github.com/alexedwards/scs/v2 v2.9.0
	github.com/coffeenode/userdb v0.0.0-00010101000000-000000000000
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dlclark/regexp2 v1.12.0 // indirect
	github.com/go-crypt/crypt v0.14.15 // indirect
	github.com/go-crypt/x v0.4.16 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/redis/go-redis/v9 v9.23.0 // indirect
	github.com/tidwall/btree v1.8.2 // indirect
	github.com/trustelem/zxcvbn v1.0.1 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
