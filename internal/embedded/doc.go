// Package embedded is a Redis without a server: miniredis inside this process,
// kept in one file.
//
// Nothing listens. The client that [Store.Client] returns talks to miniredis
// over pipes in memory, so no other user of the machine can reach the records.
//
// # Durability
//
// A command that changes records is answered when the change is in the file.
// Commands that wait at the same time share one write. The file is always
// written whole, to a temporary file beside it, synced, and renamed over the
// old one, so a crash at any moment leaves the old records or the new ones.
// [Store.Bulk] puts many changes into one write.
//
// When a write fails, on a full disk say, everybody who waits for it gets
// [ErrUnsaved], the old file stays, and the records in memory go back to what
// the file holds before the next command runs. Until they are told, other
// readers in the process may see such a change.
//
// # The file
//
//	{"userdb":"embedded","version":1,"crc":"…"}
//	{"key":"user/name:Bob/~prk","string":"user/uid:17c0","crc":"…"}
//	{"key":"user/uid:17c0","hash":{"name":"Bob","~isa":"user"},"crc":"…"}
//	{"base64":true,"key":"/w==","list":["AA=="],"until":1767225600000,"crc":"…"}
//	{"records":3,"crc":"…"}
//
// One record a line, sorted by key. The value stands under its Redis type:
// string, hash, list, set, or zset (pairs of member and score). A record with
// bytes that are not UTF-8 has all its text in base64. until is when it
// expires, in milliseconds since 1970. crc is the CRC-32C of everything in the
// file up to it, line ends and the sums before it left out, so that damage is
// found on its line. A file that is not exactly so is refused and left alone.
//
// # Limits
//
// One process at a time, 50,000 records, 1 GiB, database 0. Streams,
// HyperLogLogs, times to live on hash fields, blocking commands and
// subscriptions are refused. Expiry lags by at most a twentieth of the time
// that the store is busy: a millisecond while it is small, about half a second
// at 50,000 records.
package embedded
