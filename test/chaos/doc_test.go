//go:build linux

// Package chaos has processes use one store while a nemesis breaks what can break, and judges what they were told:
//
//	make chaos KIND=cluster MINUTES=10 SEED=7
//
// The store is a Redis Cluster, one server (KIND=one), or a master and its replica with Sentinels
// (KIND=sentinel). Six clients are processes of their own: this test binary, run once more as
// TestClient. They ask for random verbs over few accounts and few values, which all of them want
// under three fields, and write each question and each answer, with the time of the machine's
// monotonic clock, to a file that outlives them. They share the secrets of sessions, tokens and
// invitations, so that several use one at a time. Two more processes answer over HTTP as userdb
// serve does; clients send them requests under few names, each of which makes one entry however
// often it is sent. A follower reads the feed all the time. One nemesis kills masters, services and
// clients, stops them for a while, fails over, moves slots, which stay half open, loses replies,
// has servers refuse commands, and has a crowd of calls meet a master that keeps silent.
//
// Nothing of that needs a right of the machine. The clocks of processes are an hour apart (view.Config.OwnClock); a full
// disk is a limit on the size of the server's files (prlimit), a full memory a setting of the server, and a
// right that is taken away a rule of its ACL.
//
// # Time
//
// The run is made of cycles, a cycle of epochs. Each epoch has accounts and values of its own, so
// that a history is short and begins with nothing. After each cycle all is healed and all clients
// pause: the epochs are judged, and the raw records are read. A run has at least as many cycles as
// it takes for each kind of step to come once.
//
// # What is judged
//
//   - Histories: for each account and for each value of an epoch, porcupine looks for an order in which all answers are
//     true. A verb without an answer, or with ErrOutcomeUnknown, may take effect at any later time or never;
//     ErrUnavailable and ErrConflict say that nothing was written. Any answer that no documentation has is a violation.
//   - Tags: nobody reads one that was acknowledged before a delete of the account, or a replace of its tags, began, once
//     that has returned; nor one of a change that was refused, or came to nothing. One that was acknowledged, and that
//     nobody took away, is read.
//   - Sessions, tokens, invitations: none is good after its end, no token or invitation is used twice, and none is denied that
//     nobody ended. No session is listed whose beginning was refused.
//   - Names: all requests of one name make one entry, and it can be had when all is healed, from a service whose clock is
//     ahead as well as from one whose clock is behind.
//   - Waits: no call goes on after its context has ended, but for a grace of two seconds. Calls that hash a password are left out.
//   - Lines: each operation is an actor of its own. Every acknowledged change has exactly one line in the feed, no other
//     operation has one, and the lines of a live account are those of its history, in that order. What a client that was
//     killed has left out, or a server refused, comes with the next change, or with a repair of the account.
//   - The follower hears each event once, also after the last ones were taken out of the feed, whether or not it reads
//     before others come.
//   - Raw records (raw_test.go), read with plain commands and parsed here, sharing no code with the project: I1, I2, I3, and
//     tags again. Damage is only what stays when it is read once more.
//   - Through the library, each entry's own identifiers find it.
//   - In the end check.Run repairs and then finds nothing, and neither do the raw records, leftovers included.
//
// # What the nemesis must not do
//
// Redis replicates asynchronously, and a failover that loses acknowledged writes is not repaired (docs/security.md). So
// no step may lose any:
//
//   - Every node has appendonly yes and appendfsync always: what was acknowledged is in the file when a master is killed.
//   - cluster-replica-no-failover keeps replicas from taking over by themselves. A killed or stopped master stays
//     the master; the same node comes back with its file.
//   - Failovers are coordinated (CLUSTER FAILOVER, without FORCE): the master holds writes back until the replica
//     has all of them. They are asked for only of a replica whose link is up. Sentinels do not do that, and take a minute
//     to notice that a master is gone. So the nemesis pauses writes at the master, asks Sentinels for a failover
//     when the replica has all of them, and ends the pause when the master is a replica.
//   - No failover while a slot is half open: Redis 7.0 does not tell replicas which slots are migrating. A slot that a
//     failover leaves without a master is given to the new one.
//   - A server whose disk is full leaves part of a transaction in its file. Redis 7.0 carries that out at the next but one start,
//     so the file is cut where the last complete one ends.
//   - MIGRATE runs while both masters are up, with a time-out that nothing reaches. One that breaks off leaves a
//     copy at the target, which would be served once the source's is deleted: an acknowledged delete would be lost.
//     So a MIGRATE that fails ends the run as a fault of the test, and not as a violation.
//
// # What it finds
//
// Each of these faults, put in by hand, was found within the first minute, mostly the first cycle: a commit that does not compare
// ~fence; claims that do not look at the other fields; a takeover that does not fence; a delete that unlinks the entry
// before it writes the tombstone; a delete that leaves tertiary records. That the judge and the reader of raw
// records see what they are for is tested with every other test (TestJudge, TestLines, TestRaw).
//
// # Running it again
//
// The seed determines the plan of every cycle, printed before the cycle begins, and what each client asks for.
// When things happen is up to the machine, so a run is repeated nearly, and never exactly.
package chaos
