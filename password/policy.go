package password

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// A Policy holds the rules for a new password. It has no rules about classes of characters. The
// zero Policy accepts every password. Every other Policy also refuses the identifiers of the
// password's owner.
type Policy struct {
	Min       int  // minimum length in code points; 0 means no minimum
	Blocklist bool // refuse the 30,000 most common passwords
	Strength  int  // minimum Report.Score, 1 to 4; 0 means no minimum
}

// Check returns nil if password may be set, and otherwise a *PolicyError for the first rule that it
// violates. own holds the identifiers of the owner: name, e-mail address and so on.
//
// Check ignores case when it compares the password with common passwords and with identifiers and
// their parts before an "@". It does not refuse a password that only contains an identifier;
// Strength takes own into account instead.
func (p Policy) Check(password string, own ...string) error {
	if p == (Policy{}) {
		return nil
	}
	if len(password) > maxPepperedBytes {
		return tooLong(maxPepperedBytes)
	}
	if n := utf8.RuneCountInString(password); n < p.Min {
		verb := "characters are"
		if n == 1 {
			verb = "character is"
		}
		return &PolicyError{Rule: ruleMin, Reason: fmt.Sprintf("%d %s fewer than %d", n, verb, p.Min), Min: p.Min}
	}
	if err := p.checkKnown(fold(password), own); err != nil {
		return err
	}
	return p.checkStrength(password, own)
}

// checkKnown refuses the passwords that an attacker tries first.
func (p Policy) checkKnown(folded string, own []string) error {
	if p.Blocklist {
		found, err := isCommon(folded)
		if err != nil {
			return err
		}
		if found {
			return &PolicyError{Rule: ruleBlocklist, Reason: "it is one of the most common passwords, which are tried first"}
		}
	}
	if slices.ContainsFunc(own, func(id string) bool { return isIdentifier(folded, id) }) {
		return &PolicyError{Rule: ruleIdentifier, Reason: "it is a name, address or other identifier of its owner"}
	}
	return nil
}

func (p Policy) checkStrength(password string, own []string) error {
	if p.Strength <= 0 {
		return nil
	}
	r := Strength(password, own...)
	if r.Score >= p.Strength {
		return nil
	}
	reason := fmt.Sprintf("its strength %d is less than %d", r.Score, p.Strength)
	if len(r.Suggestions) > 0 {
		reason += ": " + r.Suggestions[0]
	}
	return &PolicyError{Rule: ruleStrength, Reason: reason}
}

// isIdentifier reports whether a folded password is the identifier id or its local part.
func isIdentifier(folded, id string) bool {
	id = fold(id)
	local, _, _ := strings.Cut(id, "@")
	return folded != "" && (folded == id || folded == local)
}

// fold maps texts that differ only in case, width or the encoding of accents to the same text,
// because an attacker tries all of them. The result is only for comparisons.
func fold(text string) string {
	return strings.TrimSpace(cases.Fold().String(norm.NFKC.String(text)))
}

// packed holds 30,000 common passwords in lower case, one on each line, the most common first.
//
//go:embed common-passwords.gz
var packed []byte

// common returns the sorted list, which it unpacks on the first call.
var common = sync.OnceValues(func() ([]string, error) {
	text, err := unpack(packed)
	words := strings.Fields(text)
	slices.Sort(words)
	return words, err
})

func unpack(packed []byte) (string, error) {
	var text []byte
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err == nil {
		text, err = io.ReadAll(r)
	}
	if err != nil {
		return "", fmt.Errorf("reading the common passwords: %w", err)
	}
	return string(text), nil
}

// isCommon reports whether a folded password is on the list.
func isCommon(folded string) (bool, error) {
	words, err := common()
	_, found := slices.BinarySearch(words, folded)
	return found, err
}
