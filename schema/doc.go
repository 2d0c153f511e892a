// Package schema describes the contents of an account store and how it writes each value. It
// consists of data and pure functions.
//
// A [Schema] has types, and a [Type] has fields. A schema comes from a file ([Load]), from the
// program ([From] derives a type from the tags of a struct), or is the built-in one ([User]). A
// file looks like this:
//
//	{"types": {"user": {
//	    "primary": "uid", "fold": "casefold",
//	    "fields": {"email": {"role": "secondary", "kind": "email"},
//	               "name":  {"role": "secondary", "kind": "nickname"},
//	               "added": {"codec": "date"}, "job": {}},
//	    "tertiary": {"tags": {"kind": "set", "indexed": true}},
//	    "password": {"cost": 12, "min": 8}}}}
//
// json.Marshal of a Schema returns such a file. [Load] also reads the options.json of CoffeeNode
// UserDB, the original of this store. An [Error] says what is wrong with a schema, with a path into
// the file. Do not change a schema after [Schema.Validate] has accepted it, because goroutines may
// then read it at the same time.
//
// # Where records lie
//
// The keys of a type's records depend on the primary field, the fold and the version of its
// canonical form, the secondary, indexed and ordered fields, and the indexed tertiary records.
// [Type.Fingerprint] returns a digest of all that, and [Type.Difference] explains why two
// fingerprints differ. Everything else in a schema may change without moving a record.
//
// Keys and rules use the canonical form of a secondary value ([Type.Canonical]): under
// FoldCasefold, "Alice", "alice " and "ＡＬＩＣＥ" are the same value. In addresses and URLs the domain
// has the form in which IDNA 2008 compares it. The last text of each line is the canonical form of
// the others:
//
//	bob@straße.de   "bob"@STRAẞE.de.   bob@xn--strae-oqa.de    bob@xn--strae-oqa.de
//	bob@strasse.de  bo\u034fb@strasse.de                       bob@strasse.de
//
// The rules of the canonical form and its Unicode tables have a version, [FormVersion]. The version
// is stored with a schema and is part of its fingerprint, so that a program with another version
// does not write.
//
// # Values
//
// A [Value] is the value of a facet. On the wire it has the form that the original writes, which is
// the form that JavaScript prints:
//
//	codec     wire                        in the JSON of an entry
//	text      unchanged                   "text"
//	identity  unchanged; read as text     "text"
//	number    42  1e+21  NaN  Infinity    42  1e+21  "NaN"  "Infinity"
//	boolean   true  false                 true  false
//	date      2026-11-20T08:02:40.512Z    "2026-11-20T08:02:40.512Z"
//	json      {"a":[1,null]}              {"a":[1,null]}
//	null      null                        null
//
// [Decode] reads the wire form, [ParseText] reads what a person entered, and [ParseJSON] reads the
// JSON of an entry. Their errors are of type [ValueError].
package schema
