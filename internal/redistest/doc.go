// Package redistest starts temporary Redis servers, clusters and Sentinels for tests, and a proxy
// that loses requests and replies.
//
// Everything it starts ends with the test, and also if the test process dies in any other way. The
// package does not touch servers that it did not start. Functions that start a server skip the test
// if no server program is found, or fail it if USERDB_REQUIRE_REDIS=1. The program is the one named
// by USERDB_REDIS_SERVER, or else redis-server or valkey-server.
//
// Methods report failures to the test that they were made for, so call them on its goroutine unless
// their comment says otherwise.
package redistest
