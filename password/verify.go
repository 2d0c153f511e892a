package password

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// What Result.Renew can be; the first that applies is told.
const (
	renewAlgorithm = "algorithm"
	renewEncoding  = "encoding"
	renewPepper    = "pepper"
	renewCost      = "cost"
)

// Result is the answer to a password. The zero Result is "wrong".
type Result struct {
	OK bool
	// Renew is "", or why the hash should be replaced by Hash(password): "algorithm": it is not $2a$; "encoding": it is
	// of the original's form of text that is not ASCII; "pepper": it was made without one, or not with the first;
	// "cost": it has another bcrypt cost. It is only set if OK, if Hash takes the password, and if no other password can
	// be the one that the owner set.
	Renew string
}

// Verify checks a password against what is stored. It does the work of one hash of h's cost, or of two if password is
// not ASCII, whatever it answers, even an error: what a stored hash of a lower cost leaves of that is made up for. One
// of a higher cost takes its own work, and a foreign one that of one hash; one of WordPress takes twice its work for a
// password with quotes or backslashes. Nothing stored ("") is a wrong password; so
// is one that is longer than what the hash can be of.
//
// Errors are ErrHash: what is stored cannot be used, or its pepper is not among Options.Peppers. They are for the
// operator, not for the visitor.
func (h *Hasher) Verify(stored, password string) (Result, error) {
	return h.verify(stored, password, false)
}

// VerifyOriginal is Verify, by the same work, for a hash that the original may have made: it also takes the password in
// the original's form of text that is not ASCII. Several texts have one such form, ASCII among them: of a hash of our
// own it would let in with passwords that were never set.
func (h *Hasher) VerifyOriginal(stored, password string) (Result, error) {
	return h.verify(stored, password, true)
}

func (h *Hasher) verify(stored, password string, original bool) (Result, error) {
	if stored == "" {
		stored = unmatched(h.cost)
	}
	d, err := h.parse(stored)
	if err != nil {
		h.Dummy(password)
		return Result{}, err
	}
	d.original = d.original && original
	return d.check(password), nil
}

// Dummy does the work of Verify, at h's own cost, for an identifier that does not exist.
func (h *Hasher) Dummy(password string) { _, _ = h.verify("", password, false) }

// Usable returns the error that Verify would, without the work: for imports.
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
	right := d.try(d.secret(password))
	if !isASCII(password) && d.foreign == nil && d.try(d.legacySecret(password)) && !right {
		if b, _ := legacyBytes(password); utf8.Valid(b) && !bytes.ContainsFunc(b, unicode.IsControl) {
			// A person may have typed b: it may be the hash of that text, and this another one with the same bytes, or
			// the right one garbled on its way. A hash of what arrived would lock the owner out.
			return Result{OK: true}
		}
		right, d.renew = true, renewEncoding
	}
	return d.result(right, password)
}

// result is the answer to a password that is right or not.
func (d digest) result(right bool, password string) Result {
	if err := d.hasher.Hashable(password); err != nil || !right {
		d.renew = ""
	}
	return Result{OK: right, Renew: d.renew}
}
