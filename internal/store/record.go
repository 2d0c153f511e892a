package store

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/coffeenode/userdb/recordkey"
)

// The store's own fields of an entry.
const (
	FieldType     = "~isa"
	FieldPRK      = "~prk"
	FieldRev      = "~rev"
	FieldFence    = "~fence"
	FieldFill     = "~fill"     // on a cluster: what was laid ready before the entry was committed is not in its place yet
	FieldDrop     = "~drop"     // on one server: records that a change moved away are not dropped yet, see DropKey
	FieldTokens   = "~tokens"   // the single-use tokens beside the entry count, but those it names; some wait here: see scripts/tokens.lua
	FieldNote     = "~note"     // lines of its history that lie here until more follow: see scripts/history.lua
	FieldEpoch    = "~epoch"    // what sessions are bound to: a rev that is new when all of them end; absent before the first begins
	FieldChanged  = "~passwd"   // when the password was last set
	FieldDisabled = "~disabled" // since when the entry may not log in
	FieldPassword = "password"
)

// A Facet is one field of an entry with its value on the wire.
type Facet struct{ Field, Wire string }

// Seen is what an entry was when it was read. The zero Seen is that of an entry that was never there.
type Seen struct{ Rev, Fence string }

// A Record is an entry as it was read: every field of the hash.
type Record struct {
	Key    recordkey.Key
	Fields map[string]string
}

// FieldSKV is the field that keeps the canonical value of a secondary field where it differs.
func FieldSKV(field string) string { return "~skv:" + field }

// FieldLost is the field that keeps a facet whose value was decided to belong to another entry.
func FieldLost(field string) string { return "~lost:" + field }

// FieldWas is the field that keeps, while a schema changes, the canonical value of a secondary field
// by the old schema, so that it can still be found by that.
func FieldWas(field string) string { return "~was:" + field }

// FieldVerified is the field that keeps of which value of a facet its owner has proved to read what is sent there: see Verified.
func FieldVerified(field string) string { return verifiedPrefix + field }

const verifiedPrefix = "~verified:"

// Verified is the mark of a value, as FieldVerified has it.
func Verified(wire string) string {
	sum := sha256.Sum256([]byte(wire))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// VerifiedField is the facet that an own field of FieldVerified is about; "" for other fields.
func VerifiedField(own string) string {
	field, is := strings.CutPrefix(own, verifiedPrefix)
	if !is {
		return ""
	}
	return field
}

// Holds reports whether the record has a canonical value under a secondary field, by the schema in force
// or by the one that is just being left.
func (r Record) Holds(field, value string) bool {
	was, changing := r.Fields[FieldWas(field)]
	return r.SKV(field) == value || changing && was == value
}

// OwnField reports whether a field is the store's own and not a facet.
func OwnField(field string) bool { return strings.HasPrefix(field, "~") }

// Live reports whether the record is an entry, not a tombstone. Readers go by this alone: what an entry takes is written
// before its ~isa or in the same script, and a delete empties ~isa before it removes the rest.
func (r Record) Live() bool { return r.Fields[FieldType] != "" }

// Seen is what a change of the record expects.
func (r Record) Seen() Seen {
	return Seen{Rev: Rev(r.Fields[FieldRev]), Fence: r.Fields[FieldFence]}
}

// SKV is the canonical value of a secondary field as it was written, never computed anew; "" when absent.
func (r Record) SKV(field string) string {
	if v, ok := r.Fields[FieldSKV(field)]; ok {
		return v
	}
	return r.Fields[field]
}

// Tombstone reports whether a record is what a delete or a fence leaves: ~isa is empty, which only
// a delete writes, or there is none, and only the store's own fields are left.
func Tombstone(fields map[string]string) bool {
	if isa, is := fields[FieldType]; is {
		return isa == ""
	}
	for f := range fields {
		if !OwnField(f) {
			return false
		}
	}
	return len(fields) > 0
}

// HalfDeleted reports whether a record was deleted and has not been stripped: the server refused
// to.
func HalfDeleted(fields map[string]string) bool {
	isa, is := fields[FieldType]
	return is && isa == ""
}

// Owner is the PRK in an SRV, which a cluster writes with the rev of the claim after it.
func Owner(srv string) string {
	prk, _, _ := strings.Cut(srv, " ")
	return prk
}

// RevLen is the length of a rev. The field ~rev holds up to four of them, the newest first.
const RevLen = 12

// revs is how revs are written: without a hyphen, since a shell's user gives them as arguments,
// and one that begins with a hyphen is an option there.
var revs = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.").WithPadding(base64.NoPadding)

// NewRev returns a fresh rev: 72 random bits in RevLen characters.
func NewRev() string {
	var b [RevLen / 4 * 3]byte
	rand.Read(b[:]) // never fails, says its documentation
	return revs.EncodeToString(b[:])
}

// Rev is the newest rev in a ~rev field.
func Rev(past string) string { return past[:min(len(past), RevLen)] }

// Accounts reports whether the ~rev field past tells all that happened to an entry since it had a rev:
// then one that is not in it was never committed (I7).
func Accounts(past, rev string) bool {
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
