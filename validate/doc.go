// Package validate decides which values a field takes, and whether the fields of a type can be mistaken for each other.
// It knows the schema and no store.
//
// A secondary value is text, not empty, at most a crumb long, none of the field's reserved values, and what the field's
// kind and pattern want:
//
//	email      an address as in RFC 5321 and 6531, without comments and obsolete forms
//	username   RFC 8265, no spaces
//	nickname   RFC 8266, spaces inside
//	url        an absolute http or https URL with a host
//	pattern    an RE2 expression that matches anywhere in the value, unless it has anchors
//
// A username or nickname besides holds no @, does not begin with http:// or https://, and is not digits only. Rules see
// the canonical form of a secondary value, and other facets as they are written. That a value is unique is the store's
// to say.
//
// # Orthogonality
//
// Two fields are orthogonal when no value satisfies the rules of both. Then an identifier says by itself which field it
// belongs to. [Check] proves that for each pair of secondary fields, or shows a shortest value that both take:
//
//	email kind email            orthogonal
//	name  kind nickname
//
//	email pattern @             both take "http://@"
//	home  pattern ^https?://.+
//
// The proof is of regular expressions (internal/overlap). A kind is code, but none of its values lies outside the
// expressions that describe it; so what is proved of these is true of the kind, and what satisfies these is shown only
// if the code takes it too. The proof is limited: it may end in "not decided", never in a wrong answer. A lookup needs
// none: [Rules.Candidates] goes by the fields' kinds.
package validate
