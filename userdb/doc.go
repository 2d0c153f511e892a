// Package userdb keeps accounts in Redis: entries that are found by any identifier they own, with the promise that one
// identifier never means two entries of a type.
//
// # The data
//
//	user/uid:9a4c88dbc084                 hash    an entry: ~isa ~prk ~rev uid name email …
//	user/email:john@example.com/~prk      string  an SRK: its value is the entry's PRK
//	user/name:jonny/~prk                  string  user/uid:9a4c88dbc084
//	user/uid:9a4c88dbc084/tags            set     a tertiary record
//	user/job:Programmer/~prks             set     an index: the PRKs of the entries with that value
//	user/tags:python/~prks                set     the same for the members of a tertiary set
//	~acme/user/uid:9a4c88dbc084           hash    the same in namespace acme; values stay relative to it
//	~/token/{user/uid:9a4c88dbc084}       hash    the store's own: an entry's single-use tokens, in its cluster slot
//	~/session/{user/uid:9a4c88dbc084}    hash    its sessions, in the same slot
//	~/schema/user                         hash    the store's own: the schema that records were written by
//	~/types                               set     the types that have one
//
// An entry's ~rev begins with its Rev, twelve characters that are new with every change, and remembers the three
// before. ~skv:FIELD holds the canonical form of a secondary value where it differs from the facet.
//
// # Invariants
//
//   - I1: a live entry's every secondary value has its SRK, and that SRK names this entry.
//   - I2: no canonical secondary value belongs to two live entries of a type, whatever the fields.
//   - I3: an entry's ~isa, ~prk and primary facet agree with its key.
//   - I4: a record whose entry is not live (SRK, index member, tertiary record) is never shown to a
//     reader, and check.Run finds it.
//   - I5: an indexed facet of a live entry is in its index set, or check.Run says so.
//   - I6: a write made from a stale ~rev changes nothing and says so.
//   - I7: a write is all or nothing whatever dies; a lost reply, sent again, is not done twice and
//     not reported as a duplicate of itself.
//
// # How they are kept
//
// A verb reads an entry, makes one change value of what shall differ (facets, SRKs to claim and to release, index
// members), and has it carried out. On one server one Lua script compares the entry's Rev, looks at the claimed value
// under every secondary field of the type, and writes all or nothing; on a cluster claims and one commit do. A reader
// believes an SRK only if its entry is live and holds the value.
//
// # Structs
//
// Of is a view of a type by the `userdb` tags of a struct, which schema.From makes a schema of: its verbs take and return
// structs, and write the facets in which a struct differs from the entry that it was read from.
//
// # Caveats
//
// Text from visitors goes through hints.Any and hints.Field, which never parse keys; hints.Parse is for operators. A
// server that evicts keys (maxmemory-policy other than noeviction) or loses acknowledged writes breaks the promise;
// check.Run finds what is left of it.
package userdb
