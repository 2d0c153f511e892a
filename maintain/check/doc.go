// Package check finds what is wrong with the records of an account store, and repairs it: of all records of a view, or of
// one entry. It sees only the records of the view's namespace, not those of namespaces inside it.
//
// A check goes one way: it reads records by SCAN, a page at a time, reads what they are to be judged by, judges them, looks
// once more at what seems wrong, repairs it if it is to, and tells.
//
// # Codes
//
// [Run] names every kind of damage by a code. Codes never change. The number is the invariant that
// is broken (see package userdb), 0 for none of them; w marks warnings, which a store can
// live with, and the other letters what a repair does.
//
//	code                 no.  what is wrong
//	delete_unfinished    4 r  an entry was deleted, and the server refused to remove its facets: a repair does that
//	entry_missing        0    what Options.Only points at is no live entry
//	entry_not_compact    0 w  of NotCompact alone: by its schema, Redis does not keep entries of a type compact
//	facet_undecodable    0    the codec of its field cannot read a facet
//	field_missing        0 w  an entry has no facet of a declared secondary field
//	fill_orphan          4 r  on a cluster, elements that were laid ready for an entry, and that no change of it took
//	fill_waiting         5 i  what a change on a cluster made of a tertiary record is not in place yet
//	form_other           1    a secondary value was made canonical by another version than this program's: 'userdb schema apply'
//	index_kind           5 r  an index that is not a Redis set
//	index_missing        5 i  an entry is not in the index set of its facet or its member
//	index_orphan         4 i  a member of an index set leads to no entry
//	index_stale          5 i  an entry is in the index set of something it does not have
//	index_undeclared     0 w  an index of a field or set that the schema does not index
//	index_unkeyable      5    a facet or member that no index key can name: empty, or over 1 KiB
//	isa_missing          3 e  a hash under a PRK has facets, but no ~isa
//	key_field            3    a record where an entry would be, under a field that is not the primary one
//	key_unparsable       4 r  a key that begins as those of a declared type do, and cannot be one
//	order_kind           5 r  an ordered index that is not a sorted set
//	order_missing        5 i  an entry is not at its place in the ordered index of a field
//	order_orphan         4 i  a place in an ordered index names no entry
//	order_stale          5 i  an entry is at a place in an ordered index that is not its own
//	order_undeclared     0 w  an ordered index of a field that the schema does not order
//	order_unplaced       5    a facet of an ordered field that has no place: over 1 KiB, or undecodable
//	own_copying          0    the records are part of a copy of another namespace, which was stopped: nothing else is checked
//	own_schema           0 o  ~/schema/TYPE is lost or cannot be read: verbs of the type stop
//	own_secret           0 o  ~/secret cannot be a secret: logins stop
//	own_throttle         0 r  counters of logins that cannot be read: logins of that account, or from that origin, stop
//	own_types            0 o  ~/types is not the set of the types that have a schema: all verbs of the command stop
//	primary_wrong        3 e  the primary facet is missing or another than in the key
//	prk_kind             3    a record under a PRK is not a Redis hash
//	prk_wrong            3 e  ~prk is missing or another than the key
//	required_missing     0    an entry lacks a field that its type requires
//	schema_missing       0    an entry is of a type that the schema does not declare
//	skv_wrong            1 e  ~skv:FIELD is not the canonical form of the facet
//	srk_kind             4 r  an SRK is not a Redis string
//	srk_missing          1 e  a secondary value has no SRK
//	srk_orphan           4 r  an SRK leads to no entry
//	srk_stale            4 r  an SRK names an entry that does not have the value in that field
//	srk_undeclared       0 w  an SRK of a field that the schema does not declare as secondary
//	srk_wrong            1 e  the SRK of a secondary value names something else, which does not have the value
//	srv_type             4 r  an SRK names an entry of another type, or under another field than the primary one
//	srv_unparsable       4 r  an SRK holds no PRK
//	tertiary_kind        0    a tertiary record is of another Redis type than declared
//	tertiary_orphan      4 r  a tertiary record of no entry
//	tertiary_undeclared  0 w  a tertiary record of a name that the schema does not declare
//	tombstone_endless    4 r  what a delete, or a change of another entry, leaves at a key for a time has no time to live
//	type_mismatch        3 e  ~isa names another type than the key
//	value_shared         2 k  two entries have one secondary value, in the same field or in two
//	value_unkeyable      1    a secondary value that no SRK can name: empty, or over 1 KiB
//
// Values are compared as the schema in force has it: the canonical form of a facet is what
// schema.Type.Canonical gives, also where ~skv:FIELD, which is damage then, is another.
//
// # What is not damage
//
// The tombstones that deletes leave, and the store's own records (~/…) but for those above. A database may be shared
// with other programs: a key that is not ours is passed over unless it begins TYPE/FIELD: with a
// type that the schema declares. Of a type that it does not declare only entries are reported (hashes
// with ~isa under a key like a PRK), and nothing that belongs to them.
//
// # Repair
//
// With Options.Repair, each problem that needs no human decision is repaired by a step that looks
// again and is made whole or not at all. The letter tells by which:
//
//   - e: one change of the entry claims its SRKs and sets ~skv, unless another entry has the value. It also sets ~isa, ~prk
//     and the primary facet to what the key demands, if no more than one of the three differs, and then another agrees.
//     Another primary facet stays as ~lost:FIELD.
//   - i: the entry is put into an index or taken out, as what it holds demands. Elements that wait go into
//     their record, and the entry into its index sets.
//   - r: the record is removed; key_unparsable only where it is the original's form of an SRK, when ours exists or no entry has
//     the value. Failures of logins are then counted from zero.
//   - o: ~/types is built again of the schemas that exist, and a secret is removed: the next login makes a new one. A schema is
//     stored again where the fingerprint that is left is that of the view's schema, else only with Options.Restate.
//   - k: it is listed with its Choices. Options.Keep decides: the facets of the others move to ~lost:FIELD (~lost:FIELD:2 and so
//     on where that is taken).
//
// All others, and warnings, stay: a person must say what the record was meant to be. A value that two
// entries have is never given to either of them without Keep, also where neither has its SRK. Between
// the step that takes a value from one entry and the one that gives it to another, it is free.
package check
