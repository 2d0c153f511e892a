// Package schema declares what an account store keeps, and how each value is written. It consists of data and pure
// functions.
//
// A [Schema] has types, a [Type] fields. It comes from a file ([Load]), from the program ([From] writes a type by the tags of
// a struct), or is the built-in one ([User]):
//
//	{"types": {"user": {
//	    "primary": "uid", "fold": "casefold",
//	    "fields": {"email": {"role": "secondary", "kind": "email"},
//	               "name":  {"role": "secondary", "kind": "nickname"},
//	               "added": {"codec": "date"}, "job": {}},
//	    "tertiary": {"tags": {"kind": "set", "indexed": true}},
//	    "password": {"cost": 12, "min": 8}}}}
//
// json.Marshal of a Schema is such a file again. The options.json of the original is read too. What is wrong with a
// schema is an [Error] with the path into the file. A schema that [Schema.Validate] has passed may be read from any
// number of goroutines, and is not changed again.
//
// # Where records lie
//
// The primary field, the fold, the version of its canonical form, the secondary and the indexed fields decide where the
// records of a type lie. [Type.Fingerprint] is short for all that, and [Type.Difference] says in words why two of them
// differ. Everything else in a schema may change from one day to the next.
//
// The canonical form of a secondary value ([Type.Canonical]) is what keys hold and rules see: under FoldCasefold
// "Alice", "alice " and "ＡＬＩＣＥ" are one value. Addresses and URLs have their domain as IDNA 2008 compares it:
//
//	bob@straße.de   "bob"@STRAẞE.de.   bob@xn--strae-oqa.de    bob@xn--strae-oqa.de
//	bob@strasse.de  bo\u034fb@strasse.de                       bob@strasse.de
//
// The rules of the canonical form and the Unicode tables that it uses have a version, [FormVersion]. It is stored with
// a schema and part of its fingerprint, so that a program of another version does not write.
//
// # Values
//
// A [Value] is what stands in a facet. On the wire it is what the original writes, which is what JavaScript prints:
//
//	codec     wire                        in the JSON of an entry
//	text      as it is                    "text"
//	identity  as it is; read as a text    "text"
//	number    42  1e+21  NaN  Infinity    42  1e+21  "NaN"  "Infinity"
//	boolean   true  false                 true  false
//	date      2026-11-20T08:02:40.512Z    "2026-11-20T08:02:40.512Z"
//	json      {"a":[1,null]}              {"a":[1,null]}
//	null      null                        null
//
// [Decode] reads what is written, [ParseText] what a person typed, [ParseJSON] what
// stands in the JSON of an entry. What they refuse is a [ValueError].
package schema
