// Package hints reads what points at an entry, in every form that the original knows, and says
// which record keys to look at. It asks no database.
//
// A [Hint] is made by a typed constructor or from an operator's text by [Parse] and [ParseJSON]:
//
//	UID("17c07627d35e")                   17c07627d35e   uid=17c07627d35e   ["user","17c07627d35e"]
//	Field("email", "alice@hotmail.com")   email=alice@hotmail.com   ["user","email","alice@hotmail.com"]
//	Any("Alice")                          *=Alice   ["*","Alice"]   ["user","*","Alice"]
//	Key(k)                                user/uid:17c07627d35e   user/name:Alice/~prk
//	Facets(f)                             {"~isa":"user","name":"Alice"}
//
// What a visitor typed goes to Any or Field, which never take it for a key. Passed to Parse it
// would let the visitor choose the type and the field.
//
// [Hint.Resolve] makes a [Target] of it under a schema. Secondary values are brought into the
// canonical form of the type; a type or a field that the schema lacks is an error.
//
// Hints are values and safe for concurrent use.
package hints
