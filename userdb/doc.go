// Package userdb stores accounts in Redis. An account is an entry that can be found by any
// identifier it owns, and one identifier never means two entries of a type.
//
// # Records
//
//	user/uid:9a4c88dbc084                 hash    an entry: ~isa ~prk ~rev uid name email …
//	user/email:john@example.com/~prk      string  an SRK: its value is the PRK of the entry
//	user/name:jonny/~prk                  string  user/uid:9a4c88dbc084
//	user/uid:9a4c88dbc084/tags            set     a tertiary record
//	user/job:Programmer/~prks             set     an index: PRKs of entries with this value
//	user/tags:python/~prks                set     the same for a member of a tertiary set
//	~acme/user/uid:9a4c88dbc084           hash    an entry in the namespace acme
//	~/token/{user/uid:9a4c88dbc084}       hash    the single-use tokens of an entry, in its slot
//	~/session/{user/uid:9a4c88dbc084}     hash    the sessions of an entry, in its slot
//	~/schema/user                         hash    the schema that the records were written under
//	~/types                               set     the types that have a stored schema
//
// A facet is a field of an entry with its value. The primary facet, the UID, is part of the key. A
// secondary facet, such as a name or an e-mail address, also identifies the entry; secondary values
// are compared in a canonical form, which may ignore case. An entry is live until it is deleted;
// its key may then hold a tombstone for some time. A tertiary record is a set, list, hash, string
// or sorted set that belongs to an entry. Package schema describes all of these. Package hints
// describes how callers name an entry.
//
// A PRK is a primary record key, the key of an entry; an SRK is a secondary record key, which leads
// from a secondary value to a PRK. Records under "~/" belong to the store itself. On a cluster, the
// tokens and sessions of an entry are in the entry's hash slot.
//
// The field ~rev of an entry begins with its revision, twelve characters that are new with every
// change, followed by the three revisions before it. ~skv:FIELD holds the canonical form of a
// secondary value if that differs from the facet. ~also:FIELD:VALUE holds a further value of a
// secondary field that may have several.
//
// The original, to which comments of this module refer, is coffeenode-userdb 0.0.10, the JavaScript
// program that first wrote such records. This package reads its records without conversion.
//
// # Invariants
//
//   - I1: Every secondary value of a live entry has its SRK, and that SRK names this entry.
//   - I2: No canonical secondary value belongs to two live entries of a type, whichever fields
//     contain it. A value of a field that is not typed (schema.Field.Typed) is compared only with
//     the values of that field.
//   - I3: The ~isa, ~prk and primary facet of an entry agree with its key.
//   - I4: A record whose entry is not live (an SRK, an index member, a tertiary record) is never
//     shown to a reader, and check.Run finds it.
//   - I5: An indexed facet of a live entry is in its index set, and a live entry is at its position
//     in the ordered indexes of its type, or check.Run reports it.
//   - I6: A write that is based on a stale ~rev changes nothing and reports a conflict.
//   - I7: A write happens completely or not at all, whatever crashes. If its reply is lost and it
//     is sent again, it is not applied twice and is not reported as a duplicate of itself.
//
// # How the invariants hold
//
// A method reads an entry, builds one change value that describes the difference (facets, SRKs to
// claim and to release, index members), and has the store apply it. On one server, one Lua script
// compares the entry's revision, looks up each claimed value under every typed secondary field of
// the type, and writes all or nothing. On a cluster, whose scripts cannot reach other slots, the
// store first claims each value by writing its SRK, and then commits with one script on the entry.
// A reader believes an SRK only if its entry is live and has the value.
//
// # Structs
//
// Of returns a view of a type whose methods take and return structs with `userdb` tags; schema.From
// derives a schema from the same tags. When a struct is saved, only the facets that differ from the
// entry it was read from are written.
//
// # Caveats
//
// Pass text from visitors through hints.Any and hints.Field, which never parse keys; hints.Parse is
// for operators. A server that evicts keys (a maxmemory-policy other than noeviction) or loses
// acknowledged writes breaks the invariants; check.Run finds the damage.
package userdb
