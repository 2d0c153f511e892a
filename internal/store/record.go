package store

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/recordkey"
)

// Names of the store's own fields of an entry, and of the password facet.
const (
	FieldType  = "~isa"
	FieldPRK   = "~prk"
	FieldRev   = "~rev"
	FieldFence = "~fence"
	// FieldFill lists, on a cluster, records that were prepared before the entry was committed and
	// are not yet in their places. See [Fill].
	FieldFill = "~fill"
	// FieldDrop lists, on one server, records that a change moved away and that are not deleted
	// yet. See [DropKey].
	FieldDrop = "~drop"
	// FieldChanged is the time at which the password was last set.
	FieldChanged = "~passwd"
	// FieldImported says that an import set the password. It holds the result of [ImportMark] for
	// the imported hash. It stays when a login replaces the hash; SetPassword removes it.
	FieldImported = "~imported"
	// FieldOnce identifies the request and the reservation by which CreateOnce created the entry.
	FieldOnce = "~once"
	// FieldDisabled is the time since which the entry may not log in.
	FieldDisabled = "~disabled"
	// FieldUnproven says that the entry was self-registered and that nobody has yet proved to be
	// the owner of its identifier.
	FieldUnproven = "~unproven"
	// FieldRetired is the time of the delete, in the tombstone of an entry whose UID is retired.
	// Such a tombstone has no time to live.
	FieldRetired  = "~retired"
	FieldPassword = "password"
)

// A Facet is one field of an entry with its value in wire form.
type Facet struct{ Field, Wire string }

// Version identifies the state of an entry when it was read. The zero Version describes an entry
// that never existed.
type Version struct{ Rev, Fence string }

// A Record holds an entry as it was read, with every field of the hash.
type Record struct {
	Key    recordkey.Key
	Fields map[string]string
}

// FieldSKV returns the name of the field that holds the canonical value of a secondary field if it
// differs from the facet.
func FieldSKV(field string) string { return "~skv:" + field }

// FieldLost returns the name of the field that keeps a facet whose value belongs to another entry.
func FieldLost(field string) string { return lostPrefix + field }

const lostPrefix = "~lost:"

// IsLost reports whether own is the name of a field for a lost facet; see [FieldLost]. These are
// the only fields of the store that people see and can remove.
func IsLost(own string) bool { return strings.HasPrefix(own, lostPrefix) }

// FieldOldSKV returns the name of the field that holds, during a schema change, the canonical value
// of a secondary field under the old schema, so that the entry can still be found by it.
func FieldOldSKV(field string) string { return "~was:" + field }

// FieldVerified returns the name of the field that says which value of a facet is verified, which
// means that the owner has proved that messages sent to it arrive. The field holds the result of
// [Verified].
func FieldVerified(field string) string { return verifiedPrefix + field }

const verifiedPrefix = "~verified:"

// Verified returns the digest of a value that the field of [FieldVerified] holds.
func Verified(wire string) string { return token.Digest(wire) }

// Unverified returns the text of the field of [FieldVerified] for a value to which no secrets go
// before it is verified: one that was a further value of the field and was not verified when it
// became the facet, or one that a stranger may have entered.
func Unverified(wire string) string { return "-" + Verified(wire) }

// FacetUnverified reports whether a facet has the mark that [Unverified] returns.
func (r Record) FacetUnverified(field string) bool {
	mark := r.Fields[FieldVerified(field)]
	return strings.HasPrefix(mark, "-") && mark == Unverified(r.Fields[field])
}

// ImportMark returns the digest of a password hash that [FieldImported] holds. It copies the hash
// to the stack, to save an allocation for each line of an import.
func ImportMark(hash string) string {
	var text [128]byte
	sum := sha256.Sum256(append(text[:0], hash...))
	var mark [12]byte
	base64.RawURLEncoding.Encode(mark[:], sum[:9])
	return string(mark[:])
}

// IsImportMark reports whether text has the form of a result of [ImportMark].
func IsImportMark(text string) bool {
	sum, err := base64.RawURLEncoding.DecodeString(text)
	return err == nil && len(sum) == 9 && len(text) == 12
}

// HashImported reports whether an import wrote the password hash of r.
func (r Record) HashImported() bool {
	mark := r.Fields[FieldImported]
	return mark != "" && mark == ImportMark(r.PasswordHash())
}

// PasswordHash returns the password hash of r, or "" if it has none. The hash of an entry with a
// factor is in a separate field, unless a program that does not know factors has set another hash
// since.
func (r Record) PasswordHash() string {
	if hash := r.Fields[FieldPassword]; hash != factor.HashMarker {
		return hash
	}
	return r.Fields[factor.FieldHash]
}

// Factors returns the mark that lists the entry's second factors.
func (r Record) Factors() factor.Mark {
	mark := factor.Mark(r.Fields[factor.FieldMark])
	if !mark.Any() && r.Fields[FieldPassword] == factor.HashMarker {
		return factor.HashMarker // damaged: there is a factor, but nothing that could prove it
	}
	return mark
}

// FieldOfVerified returns the facet to which a field of [FieldVerified] belongs, or "" for other
// fields.
func FieldOfVerified(own string) string {
	field, ok := strings.CutPrefix(own, verifiedPrefix)
	if !ok {
		return ""
	}
	return field
}

// HasValue reports whether value is a canonical value of the record in a secondary field, the first
// or a further one, under the schema in force or, during a schema change, under the old one.
func (r Record) HasValue(field, value string) bool {
	if r.SKV(field) == value {
		return true
	}
	was, changing := r.Fields[FieldOldSKV(field)]
	_, further := r.Fields[FieldAlso(field, value)]
	return changing && was == value || further && value != ""
}

// OwnField reports whether a field belongs to the store and is not a facet.
func OwnField(field string) bool { return strings.HasPrefix(field, "~") }

// Live reports whether the record is an entry, not a tombstone. Readers rely on nothing else: the
// SRKs of an entry are written before its ~isa or in the same script, and a delete empties ~isa
// before it removes the other fields.
func (r Record) Live() bool { return r.Fields[FieldType] != "" }

// Version returns the state that a change of the record must expect.
func (r Record) Version() Version {
	return Version{Rev: Rev(r.Fields[FieldRev]), Fence: r.Fields[FieldFence]}
}

// Tokens returns the entry's mark about its tokens.
func (r Record) Tokens() token.Mark { return token.Mark(r.Fields[token.FieldTokens]) }

// ForSessions returns the fields on which sessions of the entry depend.
func (r Record) ForSessions() session.Entry {
	return session.Entry{
		Rev: Rev(r.Fields[FieldRev]), Epoch: r.Fields[session.FieldEpoch],
		Changed: r.Fields[FieldChanged], Factor: r.Fields[factor.FieldMark], Disabled: r.Fields[FieldDisabled] != "",
	}
}

// SKV returns the canonical value of a secondary field as it is stored, never computed again. It
// returns "" if there is none.
func (r Record) SKV(field string) string {
	if v, ok := r.Fields[FieldSKV(field)]; ok {
		return v
	}
	return r.Fields[field]
}

// Tombstone reports whether a delete or a fence left the record behind. In such a record, ~isa is
// empty, which only a delete writes, or ~isa is missing and all fields are the store's own.
func Tombstone(fields map[string]string) bool {
	if isa, ok := fields[FieldType]; ok {
		return isa == ""
	}
	for f := range fields {
		if !OwnField(f) {
			return false
		}
	}
	return len(fields) > 0
}

// HalfDeleted reports whether a delete has emptied ~isa but not removed it. A delete removes ~isa
// after the facets, so some facets may remain, because the server refused to remove them.
func HalfDeleted(fields map[string]string) bool {
	isa, ok := fields[FieldType]
	return ok && isa == ""
}

// Owner returns the PRK in an SRV, the value of an SRK. On a cluster the rev of the claim follows
// the PRK.
func Owner(srv string) string {
	prk, _, _ := strings.Cut(srv, " ")
	return prk
}

// RevLen is the length of a rev. The field ~rev holds up to four revs, newest first.
const RevLen = 12

// revEncoding encodes revs. It avoids the hyphen, because people pass revs as shell arguments and a
// leading hyphen would make one an option.
var revEncoding = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.").WithPadding(base64.NoPadding)

// NewRev returns a fresh rev: 72 random bits in RevLen characters.
func NewRev() string {
	var b [RevLen / 4 * 3]byte
	rand.Read(b[:]) // never fails, according to its documentation
	return revEncoding.EncodeToString(b[:])
}

// Rev returns the newest rev in a ~rev field.
func Rev(past string) string { return past[:min(len(past), RevLen)] }

// RevsComplete reports whether past, the value of a ~rev field, lists every rev since the entry had
// rev. If so, a later rev that is missing from it was never committed (I7).
func RevsComplete(past, rev string) bool {
	if len(past) < 4*RevLen {
		return true
	}
	for i := 0; i+RevLen <= len(past); i += RevLen {
		if rev != "" && past[i:i+RevLen] == rev {
			return true
		}
	}
	return false
}
