// Package redistest starts temporary Redis servers, clusters and Sentinels for tests, and a proxy
// that loses requests and replies.
//
// Everything that it starts ends with the test, even if the test process is killed. The package
// does not touch servers that it did not start. Functions that start a server skip the test if no
// server program is found, or fail it if USERDB_REQUIRE_REDIS=1. The variable USERDB_REDIS_SERVER
// names the program; without it, the program is redis-server or valkey-server.
//
// A server, cluster or proxy reports failures to the test that started it, so call its methods on
// the goroutine of that test unless their comments say otherwise.
package redistest
