package password

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
	// Renew is "", or why the hash should be replaced by Hash(password): "algorithm":
	// it is not $2a$; "encoding": it is of the original's form of text that is not
	// ASCII; "pepper": it was made without one, or not with the first; "cost": it has
	// another bcrypt cost. It is only set if OK, and if Hash takes the password.
	Renew string
}

// Verify checks a password against what is stored. It makes one hash, or two if
// password is not ASCII, whatever it answers, even an error: of the stored hash's
// cost, and of h's own cost where that cannot be used. Nothing stored ("") is a
// wrong password; so is one that is longer than what the hash can be of.
//
// Errors are ErrHash: what is stored cannot be used, or its pepper is not among
// Options.Peppers. They are for the operator, not for the visitor.
func (h *Hasher) Verify(stored, password string) (Result, error) {
	if stored == "" {
		h.Dummy(password)
		return Result{}, nil
	}
	d, err := h.parse(stored)
	if err != nil {
		h.Dummy(password)
		return Result{}, err
	}
	return h.check(d, password), nil
}

// Dummy does the work of Verify, at h's own cost, for an identifier that nobody has.
func (h *Hasher) Dummy(password string) { h.check(h.dummy(), password) }

// Usable returns the error that Verify would, without the work: for imports.
func (h *Hasher) Usable(stored string) error {
	if stored == "" {
		return &HashError{Reason: "empty"}
	}
	if usualBcrypt(stored) {
		return nil
	}
	_, err := h.parse(stored)
	return err
}

func (h *Hasher) check(d digest, password string) Result {
	right := d.try(d.secret, password)
	if isASCII(password) {
		return h.result(right, d.renew, password)
	}
	legacy := d.try(d.legacySecret, password)
	if right || !legacy {
		return h.result(right, d.renew, password)
	}
	if mojibake(password) {
		// The right password, garbled by the visitor's program: a hash of what
		// arrived would lock its owner out.
		return Result{OK: true}
	}
	return h.result(true, renewEncoding, password)
}

// try makes one hash in any case. Without a secret it is one that cannot match.
func (d digest) try(form func(string) ([]byte, error), password string) bool {
	secret, err := form(password)
	return d.match(secret) && err == nil // the work comes first
}

// result asks for a new hash only where h can make one.
func (h *Hasher) result(ok bool, renew string, password string) Result {
	if _, err := h.newest().secret(password); !ok || err != nil {
		renew = ""
	}
	return Result{OK: ok, Renew: renew}
}
