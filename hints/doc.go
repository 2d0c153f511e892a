// Package hints parses the texts and values that identify an entry, in every form that the
// original, CoffeeNode UserDB, accepts, and returns the record keys to look up. It does not access
// a database.
//
// [UID], [Field], [Any], [Key] and [Facets] return a [Hint]; [Parse] and [ParseJSON] return one
// from an operator's text:
//
//	UID("17c07627d35e")               17c07627d35e   uid=17c07627d35e   ["user","17c07627d35e"]
//	Field("email", "al@example.org")  email=al@example.org   ["email","al@example.org"]
//	Any("Alice")                      *=Alice   ["*","Alice"]   ["user","*","Alice"]
//	Key(k)                            user/uid:17c07627d35e   user/name:Alice/~prk
//	Facets(f)                         {"~isa":"user","name":"Alice"}
//
// Pass a visitor's text to Any or Field, which never interpret it as a key. Parse would let the
// visitor choose the type and the field.
//
// [Hint.Resolve] returns the [Target] of a hint under a schema. It converts secondary values to the
// canonical form of the type, and fails if the schema lacks the type or field.
//
// Hints are values and safe for concurrent use.
package hints
