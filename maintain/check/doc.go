// Package check finds and repairs damage in the records of an account store: in all records of a
// view, or in those of one entry. It sees only the records of the view's namespace, not those of
// namespaces inside it.
//
// A check reads records with SCAN, page by page, and with each page everything on which the
// soundness of its records depends. It checks a second time whatever seems wrong, repairs the
// problem if asked to, and reports it.
//
// # Codes
//
// [Run] gives every kind of damage a code. Codes never change. The number is the invariant that is
// broken (see package userdb), or 0 if none is. The letter w marks a warning, which a store can
// live with; the other letters say how a repair fixes the problem.
//
//	code                 no.  what is wrong
//	delete_unfinished    4 r  an entry was deleted, but the server refused to remove its facets
//	drop_waiting         4 r  members of a large record, replaced or deleted, are not dropped yet
//	entry_missing        0    the key in Options.Only leads to no live entry
//	entry_not_compact    0 w  under the schema, entries are not stored compactly (NotCompact only)
//	facet_undecodable    0    the codec of its field cannot read a facet
//	factor_hash          0    an entry's password hash does not fit its second factors
//	factor_missing       0    a second factor that an entry lists is absent or unreadable
//	factor_orphan        4 r  a record of second factors belongs to no entry
//	field_missing        0 w  an entry has no facet of a declared secondary field
//	fill_orphan          4 r  elements staged for an entry that no change uses (clusters only)
//	fill_waiting         5 i  staged elements are not yet in their tertiary record (clusters only)
//	form_other           1    another version made a canonical value: run 'userdb schema apply'
//	further_many         0 w  an entry has more values in a field than the schema allows
//	further_wrong        1 e  a further value has no first one, repeats it or is kept wrongly
//	held_ending          4 r  a tombstone holds values for longer than its time to live
//	held_missing         2 r  the SRK of a value that an entry gave up and holds is absent
//	held_taken           2    the SRK of such a value names another entry
//	history_orphan       4 r  a history belongs to no entry
//	index_kind           5 r  an index is not a Redis set
//	index_missing        5 i  an entry is not in the index set of its facet or its member
//	index_orphan         4 i  a member of an index set leads to no entry
//	index_stale          5 i  an entry is in the index set of a value that it does not have
//	index_undeclared     0 w  the schema does not index the field or set of an index
//	index_unkeyable      5    no index key can hold a facet or member: empty, or over 1 KiB
//	isa_missing          3 e  a hash under a PRK has facets but no ~isa
//	key_field            3    a record has the key of an entry, but not under the primary field
//	key_unparsable       4 r  a key begins like a key of a declared type but cannot be one
//	order_kind           5 r  an ordered index is not a sorted set
//	order_missing        5 i  an entry is not at its position in the ordered index of a field
//	order_orphan         4 i  a position in an ordered index leads to no entry
//	order_stale          5 i  an entry is at a wrong position in an ordered index
//	order_undeclared     0 w  the schema does not order the field of an ordered index
//	order_unplaced       5    an ordered facet has no position: over 1 KiB, or undecodable
//	own_copying          0    an unfinished copy of a namespace: nothing else is checked
//	own_schema           0 o  ~/schema/TYPE is lost or unreadable: operations on the type stop
//	own_secret           0 o  ~/secret cannot be a secret: logins stop
//	own_throttle         0 r  unreadable login counters: logins of an account or origin stop
//	own_types            0 o  ~/types does not list the types with a schema: all commands stop
//	passkey_lost         0    an entry has a passkey, but not the digest by which it is found
//	passkey_orphan       0    a digest belongs to no passkey of its entry
//	primary_wrong        3 e  the primary facet is missing or differs from the key
//	prk_kind             3    a record under a PRK is not a Redis hash
//	prk_wrong            3 e  ~prk is missing or differs from the key
//	required_missing     0    an entry lacks a field that its type requires
//	retired_ending       4 r  the UID is retired, but its tombstone has a time to live
//	schema_missing       0    the schema does not declare the type of an entry
//	skv_wrong            1 e  ~skv:FIELD is not the canonical form of the facet
//	srk_kind             4 r  an SRK is not a Redis string
//	srk_missing          1 e  a secondary value has no SRK
//	srk_orphan           4 r  an SRK leads to no entry
//	srk_stale            4 r  an SRK names an entry that does not have the value in that field
//	srk_undeclared       0 w  the schema does not declare the field of an SRK as secondary
//	srk_wrong            1 e  the SRK of a secondary value names something without that value
//	srv_type             4 r  an SRK names an entry of another type or under another field
//	srv_unparsable       4 r  an SRK holds no PRK
//	tertiary_kind        0    a tertiary record has another Redis type than declared
//	tertiary_orphan      4 r  a tertiary record belongs to no entry
//	tertiary_undeclared  0 w  the schema does not declare the name of a tertiary record
//	tombstone_endless    4 r  a tombstone has no time to live
//	type_mismatch        3 e  ~isa names another type than the key
//	value_shared         2 k  two entries have the same secondary value, in any fields
//	value_unkeyable      1    no SRK can hold a secondary value: empty, or over 1 KiB
//
// A check compares values under the schema in force. It computes the canonical form of a facet with
// schema.Type.Canonical and does not rely on ~skv:FIELD. A ~skv:FIELD that differs is also damage
// (skv_wrong).
//
// # What is not damage
//
// The tombstones of deleted entries are not damage, and the store's own records (~/…) are checked
// only for the damage listed above. A database may be shared with other programs: a key that is not
// ours is skipped unless it begins TYPE/FIELD: with a type that the schema declares. Of types that
// the schema does not declare, only entries are reported (hashes with ~isa under a key like a PRK),
// not the records that belong to them.
//
// # Repair
//
// With Options.Repair, each problem that needs no human decision is repaired in one step, which
// checks again and is applied completely or not at all. The letter says which step:
//
//   - e: one change of the entry claims its SRKs and sets ~skv, unless another entry has the value.
//     If a field has further values but no facet, one of them becomes the facet: the first that is
//     verified, or else the first. The change also adds whichever of ~isa, ~prk and the primary
//     facet is missing, and corrects one that differs from the key if another of the three agrees
//     with the key. A wrong primary facet is kept as ~lost:FIELD.
//   - i: the entry is added to an index or removed from it, according to its values. Staged
//     elements go into their record, and the entry into the index sets of those elements.
//   - r: the record is removed. A key_unparsable record is removed only if its key is an SRK in the
//     form that CoffeeNode UserDB wrote, and either our SRK of the value names the same entry, or
//     that entry does not have the value. After login counters are removed, failures are counted
//     from zero.
//   - o: ~/types is rebuilt from the stored schemas. A bad secret is removed, and the next login
//     creates a new one. A schema is stored again if the remaining fingerprint is that of the
//     view's schema; otherwise only with Options.Restate.
//   - k: the problem is listed with its Choices, and Options.Keep decides. The facets of the other
//     entries move to ~lost:FIELD (or ~lost:FIELD:2 and so on, if that exists).
//
// All other problems, and warnings, stay: a person must say what the record was meant to be.
// Without Keep, a value that two entries have is given to neither, even if neither has its SRK.
// Between the step that takes a value from one entry and the step that gives it to another, the
// value is free.
package check
