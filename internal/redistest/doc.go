// Package redistest starts throwaway Redis servers, clusters and Sentinels for
// tests, and a proxy that loses requests and replies.
//
// Everything it starts is ended when the test is, and also when the test
// process dies in any other way. Nothing touches a server that it did not
// start. The functions that start something skip the test where no server
// program is found, and fail it instead where USERDB_REQUIRE_REDIS=1. The
// program is the one that USERDB_REDIS_SERVER names, else redis-server or
// valkey-server.
//
// Methods report failure through the test that they were made for, so they are
// called from its goroutine, unless their comment says otherwise.
package redistest
