// Package recordkey is the grammar of record keys: it builds them, takes them apart and escapes what they are made of.
// It knows no schema and no Redis.
//
//	user/uid:9a4c88dbc084                  PRK, the key of an entry
//	user/email:john@example.com/~prk       SRK, where the PRK is found by a secondary value
//	user/uid:9a4c88dbc084/tags             tertiary key, what else belongs to the entry
//	user/job:Programmer/~prks              index key, all PRKs with that value
//	~acme/~eu/user/uid:9a4c88dbc084        a PRK in namespace eu of namespace acme
//	~/schema/user, ~acme/~/schema/user     own keys, the store's own records
//	~acme/~/token/{~acme/user/uid:9a4c}    an own key of an entry, in the entry's cluster slot
//
// A [Key] is made by [PRK], [SRK], [Index], [Own], [Key.Tertiary], [Key.Own] or [Parse] and is nothing else than such a
// text taken apart. No two keys have one text, and Parse gives back every key from its text.
//
// # Escaping
//
// The parts are crumbs of 1 to 1024 bytes of any kind, counted before escaping. In a key they stand escaped:
//
//	plus  space  /   :   {   }    each as two:    ++  +_  +,  +.  +(  +)
//	control characters, other white space, bytes that are not UTF-8    each byte:    +x85
//
// White space is what has the Unicode property White_Space, in a list that is frozen here. Braces are escaped because
// Redis Cluster would choose a slot by what stands between them; only the own key of an entry has them, round the
// entry's key.
//
// # Binary keys
//
// [LengthPrefix] and [HexPath] are not about record keys: they put keys of raw bytes into
// namespaces of raw bytes. The document "Key namespacing for simple key value databases"
// (github.com/webmaster128/key-namespacing) lists five properties:
//
//  1. namespaces and keys may be of any length and hold any bytes
//  2. two keys in different namespaces never have one encoding
//  3. the order of keys within a namespace is kept
//  4. the order of namespaces is kept
//  5. namespaces have several levels
//
// HexPath has all of them, LengthPrefix all but the fourth.
//
// All functions are safe for concurrent use. Everything refused is a [*SyntaxError], which Is
// [ErrSyntax].
package recordkey
