//go:build linux

// Package chaos tests a store under faults: client processes use one store while a nemesis breaks
// servers, services, clients and connections, and a judge checks every answer the clients got.
//
//	make chaos KIND=cluster MINUTES=10 SEED=7
//
// The store is a Redis Cluster, one server (KIND=one), or a master and its replica with Sentinels
// (KIND=sentinel). A run does not need root. Each process has its own clock, which is right, an
// hour ahead or an hour behind (view.Config.OwnClock). A full disk is a limit on the size of the
// server's files (prlimit), full memory is a setting of the server, and a missing permission is a
// rule of its ACL.
//
// # Who takes part
//
//   - Six clients. Each is a process: this test binary, started again as TestClient. They call
//     random methods of the library. They use few accounts, and few values in three fields, so that
//     they compete for each value. An operation is such a call, and its verb says which method it
//     calls. Each client writes every question and every answer to a file, with the time of the
//     machine's monotonic clock; the file outlives the process. The clients share the secrets of
//     sessions, tokens and invitations, so that several of them use the same secret at the same
//     time.
//   - Two services. Each is a process that answers over HTTP as 'userdb serve' does. Clients send
//     them requests with an idempotency key. There are only a few keys, and each makes one
//     entry, however often its request is sent.
//   - A follower in the parent process, which reads the feed all the time.
//   - The nemesis, also in the parent. It kills masters, services and clients, and stops them for
//     a while; fails over; moves slots and leaves them half open, which means that the move has
//     begun but not ended; loses requests and replies; makes servers refuse commands; and stops
//     a master while a burst of calls needs it.
//
// # Cycles and epochs
//
// A run consists of cycles, and a cycle of epochs. Each epoch has its own accounts and values, so
// its history is short and begins with an empty store. After each cycle the nemesis has repaired
// what it broke and all clients pause. Then the epochs are judged and the raw records are read. A
// run has at least as many cycles as it takes to carry out each kind of step once.
//
// # What is judged
//
//   - Histories: for each account and each value of an epoch, porcupine looks for an order of the
//     operations in which every answer is true (linearizability). An operation without an answer,
//     or with ErrOutcomeUnknown, may take effect at any later time or never. ErrUnavailable and
//     ErrConflict promise that nothing was written. An answer that is not documented is a
//     violation.
//   - Tags: a tag that was acknowledged before the account was deleted, or before its tags were
//     replaced, must not be read afterwards. A tag of a change that was refused, or that never
//     took effect, must not be read. A tag that was acknowledged and not removed must be read.
//   - Sessions, tokens and invitations: none works after its end. No token or invitation works
//     twice. None is rejected unless somebody ended it. No session is listed if its start was
//     refused.
//   - Lists of identifiers (testdb.ListViolations): nobody gets a value while it is held for
//     another entry, which gave it up, and no UID is given twice. Clients add values, drop them,
//     put them first, exchange them, release them, and delete their entries. At the end of each
//     cycle the raw records must show what was acknowledged: what is held, and which UIDs are
//     retired.
//   - Idempotency keys: all requests with the same key make one entry. When all faults are
//     repaired, both services answer the request, though the clock of one is ahead and that of the
//     other behind.
//   - Time limits: no call goes on for more than two seconds after its context ended, except calls
//     that hash a password.
//   - Lines: a change of an account writes a line of its history, which is also added to the feed
//     of all accounts. Each operation is an actor of its own, so its lines can be told apart. Every
//     acknowledged change has exactly one line in the feed, an operation whose outcome is unknown
//     has at most one, and a refused one has none. For an account that exists, the feed has the
//     lines of its history, in the same order. Lines of logins and sessions may be missing for
//     good, and have no order among the others. Another line may be missing because a client was
//     killed or a server refused to write it; then the next change or a repair of the account must
//     add it.
//   - The follower gets each event once. This is also true if the feed loses its newest events, as
//     in a failover, whether the follower next reads before or after new ones are added.
//   - Raw records (raw_test.go), read with plain commands and parsed by code that shares nothing
//     with the project: the invariants I1, I2 and I3, for lists and held values as well, and tags
//     again. Damage counts only if it is still there when the records are read again.
//   - Identifiers: through the library, each entry is found by each of its own identifiers.
//   - The end: after check.Run has repaired the store, neither check.Run nor the raw records show
//     any problem, not even a leftover.
//
// # What the nemesis must not do
//
// Redis replicates asynchronously. The project does not promise anything after a failover that
// loses acknowledged writes (docs/security.md), so no step may lose any:
//
//   - Every node has appendonly yes and appendfsync always, so an acknowledged write is in the
//     file when the master is killed.
//   - cluster-replica-no-failover keeps replicas from taking over by themselves. A killed or
//     stopped master remains the master: the same node comes back with its file.
//   - Failovers of a cluster are coordinated (CLUSTER FAILOVER, without FORCE): the master holds
//     writes back until the replica has all of them. The nemesis asks only a replica whose link is
//     up. Sentinels do not coordinate, and need a minute to notice that a master is gone. So the
//     nemesis pauses writes at the master, waits until the replica has all of them, asks the
//     Sentinels for a failover, and ends the pause when the old master is a replica.
//   - There is no failover while a slot is half open, because Redis 7.0 does not tell replicas
//     which slots are migrating. A slot that a failover leaves without a master is given to the
//     new master.
//   - A server whose disk is full leaves part of a transaction in its file. Redis 7.0 ignores that
//     part at its next start, but carries it out at the start after that. So the nemesis cuts the
//     file after the last complete transaction.
//   - MIGRATE runs while both masters are up, with a time-out that is never reached. A MIGRATE
//     that breaks off leaves a copy at the target. If the record were then deleted at the source,
//     the copy would still be served, and an acknowledged delete would be lost. So a failed
//     MIGRATE ends the run as a fault of the test, not as a violation.
//
// # Reading a failure
//
// A line with VIOLATION names the epoch, what is wrong, and the operations that show it. Each
// operation is printed as
//
//	CLIENT BEGIN–END QUESTION → ANSWER
//
// BEGIN and END are seconds of the monotonic clock, as in events.log of the log folder, which lists
// the steps of the nemesis. END is "…" if the operation may still take effect. A client is
// NUMBER.LIFE, where LIFE counts how often it was replaced; the parent is "end", the reader of raw
// records "raw". A value is a number from 1, and 0 is no value; [1 0 2] are the values of email,
// name and nick. If no order explains a history, the judge prints a part of it that shows the
// problem, as short as it could make it. A failed run keeps its log folder and prints the path.
//
// # What it can find
//
// We added each of these bugs to the code, and a run found each within a minute, most of them in
// the first cycle: a commit that does not compare ~fence; claims that ignore the other fields; a
// takeover that does not set the fence; a delete that removes the entry before it writes the
// tombstone; a delete that leaves tertiary records. The judge and the reader of raw records have
// tests of their own, which run with all other tests (TestJudge, TestLines, TestRaw).
//
// # Repeating a run
//
// The seed determines the plan of each cycle, which is printed before the cycle begins, and what
// each client asks. The timing depends on the machine, so a second run is similar, not identical.
package chaos
