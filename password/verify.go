package password

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// The values of Result.Renew. The first that applies is returned.
const (
	renewAlgorithm = "algorithm"
	renewEncoding  = "encoding"
	renewPepper    = "pepper"
	renewCost      = "cost"
)

// A Result reports whether a password is correct. The zero Result means that it is not.
type Result struct {
	OK bool
	// Renew says why the hash should be replaced by Hash(password), or is "". The reasons are
	// "algorithm", the hash is not plain bcrypt; "encoding", it uses CoffeeNode UserDB's encoding
	// of text beyond ASCII; "pepper", it was made without a pepper, or not with the first one;
	// "cost", it has a different bcrypt cost. Renew is set only if OK is true, if Hash accepts the
	// password, and if the owner cannot have set a different password.
	Renew string
}

// Verify checks a password against a stored hash. A password is wrong if stored is "" or if the
// password is too long for the kind of hash. A password is also right if its other Unicode form is:
// the composed one (NFC), or the decomposed one (NFD) if the password is composed. Systems differ
// in the form that they send for the same keys.
//
// Verify does the work of one hash at h's cost, or of three if password is not ASCII, whatever the
// result, even for an error. It does extra work to make up for a stored hash of a lower cost. A
// hash of a higher cost takes its own time. A hash of another algorithm takes the time of one such
// hash, of one more if the password is not ASCII, and of one more if the hash is from WordPress and
// the password has quotes or backslashes.
//
// The error matches ErrHash if stored cannot be used or if its pepper is not in Options.Peppers. It
// is meant for the operator, not for the visitor.
func (h *Hasher) Verify(stored, password string) (Result, error) {
	return h.verify(stored, password, byUs)
}

// VerifyOriginal does the same as Verify, with the same work, for a hash that CoffeeNode UserDB,
// the original of this store, may have written: it also accepts the password in the original's
// encoding of text beyond ASCII. Several texts have the same encoding, even ASCII ones. Do not use
// it for our own hashes, because it would accept passwords that were never set.
func (h *Hasher) VerifyOriginal(stored, password string) (Result, error) {
	return h.verify(stored, password, byOriginal)
}

// VerifyImported does the same as Verify, with the same work, for a hash that another product wrote
// and that is stored as it was imported. Many products pass a longer password to bcrypt, which
// ignores everything after 72 bytes. VerifyImported therefore compares only the first 72 bytes of a
// password with a bcrypt hash. It does not renew such a hash for a password of 72 bytes or more,
// because the owner may type the rest differently or not at all.
func (h *Hasher) VerifyImported(stored, password string) (Result, error) {
	return h.verify(stored, password, byProduct)
}

// A writer says which program wrote a hash.
type writer int

const (
	byUs       writer = iota
	byOriginal        // perhaps CoffeeNode UserDB
	byProduct         // another product
)

func (h *Hasher) verify(stored, password string, by writer) (Result, error) {
	if stored == "" {
		stored = unmatchableHash(h.cost)
	}
	d, err := h.parse(stored)
	if err != nil {
		h.Dummy(password)
		return Result{}, err
	}
	d.original = d.original && by == byOriginal
	d.cuts = by == byProduct && d.foreign == nil && d.prehash == nil && d.pepper == nil
	return d.check(password), nil
}

// Dummy does the work of Verify, at h's own cost, for an identifier that does not exist.
func (h *Hasher) Dummy(password string) { _, _ = h.verify("", password, byUs) }

// Usable returns the error that Verify would return, without the work. Imports use it.
func (h *Hasher) Usable(stored string) error {
	if stored == "" {
		return &HashError{Reason: "empty"}
	}
	_, err := h.parse(stored)
	return err
}

func (d digest) check(password string) Result {
	if d.wordpress {
		right, only := d.checkWordPress(password)
		if !only {
			d.renew = ""
		}
		return d.result(right, password)
	}
	if d.nfkc {
		form := password
		if len(password) <= maxNormalized {
			form = norm.NFKC.String(password)
		}
		if form != password {
			d.renew = "" // the product also accepts form, which the owner may type
		}
		return d.result(d.try(d.secret(form)), password)
	}
	right := d.try(d.secret(password))
	if isASCII(password) {
		return d.result(right, password)
	}
	if d.try(d.secretOfOther(password, func(other string) string { return other })) && !right {
		d.renew = "" // a new hash of this form might not match the form that the owner types next
		right = true
	}
	if d.foreign == nil && d.try(d.legacySecret(password)) && !right {
		if b, _ := legacyBytes(password); utf8.Valid(b) && !bytes.ContainsFunc(b, unicode.IsControl) {
			// The bytes b are also a text in UTF-8 that a person can type, so it may be the
			// password that was set. The given password may then be another text with the same
			// bytes, or b garbled on its way. Renewing the hash would lock out the owner.
			return Result{OK: true}
		}
		right, d.renew = true, renewEncoding
	}
	return d.result(right, password)
}

// result returns the Result for a password. It sets Renew only if the password is right and Hash
// accepts it.
func (d digest) result(right bool, password string) Result {
	if err := d.hasher.Hashable(password); err != nil || !right || d.cuts && len(password) >= maxBytes {
		d.renew = ""
	}
	return Result{OK: right, Renew: d.renew}
}
