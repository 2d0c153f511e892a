// Package recordkey builds, parses and escapes the keys of the records in Redis. It knows neither
// schemas nor Redis itself.
//
//	user/uid:9a4c88dbc084                  PRK: the key of an entry
//	user/email:john@example.com/~prk       SRK: holds the PRK of the entry with that value
//	user/uid:9a4c88dbc084/tags             tertiary key: holds other data of the entry
//	user/job:Programmer/~prks              index key: holds all PRKs with that value
//	~acme/~eu/user/uid:9a4c88dbc084        a PRK in namespace eu of namespace acme
//	~/schema/user, ~acme/~/schema/user     records of the store itself
//	~acme/~/token/{~acme/user/uid:9a4c}    a record of the store itself, in the slot of an entry
//
// A [Key] holds the parts of such a text. [PRK], [SRK], [Index], [Own], [Key.Tertiary], [Key.Own]
// and [Parse] return keys. Different keys have different texts, and Parse turns the text of a key
// back into that key.
//
// # Escaping
//
// The parts of a key are called crumbs. A crumb has 1 to 1024 bytes of any kind, counted before
// escaping. In the text of a key, crumbs are escaped:
//
//	plus  space  /   :   {   }    two characters:    ++  +_  +,  +.  +(  +)
//	control characters, other white space, bytes that are not UTF-8    each byte:    +x85
//
// White space is every character with the Unicode property White_Space, from a list that is frozen
// in this package. Braces are escaped because Redis Cluster hashes the text between them to choose
// a slot. A key that [Key.Own] returns is the only one with braces: they stand around the key of
// the entry, so that the record lies in the entry's slot.
//
// # Binary keys
//
// [LengthPrefix] and [HexPath] have nothing to do with record keys: they place keys of raw bytes in
// namespaces of raw bytes. The document "Key namespacing for simple key value databases"
// (github.com/webmaster128/key-namespacing) lists five properties of such encodings:
//
//  1. namespaces and keys may have any length and contain any bytes
//  2. two keys in different namespaces never have the same encoding
//  3. the order of the keys within a namespace is preserved
//  4. the order of the namespaces is preserved
//  5. namespaces can be nested
//
// HexPath has all of them, LengthPrefix all but the fourth.
//
// All functions are safe for concurrent use. Every error is a [*SyntaxError], which matches
// [ErrSyntax].
package recordkey
