// Package validate decides which values a field accepts, and whether the fields of a type can be
// confused with each other. It knows schemas, but no store.
//
// A secondary value must be text. It must not be empty, longer than a crumb (a part of a record
// key: 1 KiB), or one of the field's reserved values, and it must satisfy the field's kind and
// pattern:
//
//	email       an address as in RFC 5321 and 6531, without comments and obsolete forms
//	email-dots  the same, or such an address with additional dots before the @
//	username    RFC 8265, without spaces
//	nickname    RFC 8266, which allows spaces inside
//	url         an absolute http or https URL with a host
//	pattern     an RE2 expression that matches anywhere in the value, unless it has anchors
//
// In addition, a username or nickname must not contain an @, begin with http:// or https://, or
// consist of digits only. Rules apply to the canonical form of a secondary value, and to the wire
// form of other facets. The store, not this package, checks that values are unique.
//
// # Orthogonality
//
// Two fields are orthogonal if no value satisfies the rules of both. An identifier then reveals
// which of the fields it belongs to. For each pair of secondary fields whose values people type,
// [Check] proves that they are orthogonal, returns a value that both accept, or reports that it
// could not decide:
//
//	email kind email            orthogonal
//	name  kind nickname
//
//	email pattern @             both accept "http://@"
//	home  pattern ^https?://.+
//
// The proof works on regular expressions (internal/overlap). A kind is code, but every value that
// it accepts also matches the expressions that describe it. If no value matches the expressions of
// both kinds, no value is of both kinds. A value that matches the expressions counts as an overlap
// only if the code also accepts it. The work is limited, so that some pairs are not decided, but no
// result is wrong. Lookups do not depend on the proof: [Rules.Candidates] uses the kinds of the
// fields.
package validate
