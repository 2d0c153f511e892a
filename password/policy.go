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

// Policy is what a new password has to fulfil. There is no rule about kinds of characters. The zero Policy takes
// everything; any other one also refuses the identifiers of the password's owner.
type Policy struct {
	Min       int  // min length in code points; 0: none
	Blocklist bool // refuse the 30,000 most common passwords
	Strength  int  // min Report.Score, 1 to 4; 0: any
}

// Check returns nil if password may be set, else a *PolicyError with the first rule that it breaks. own are the
// identifiers of its owner: name, e-mail address and so on.
//
// A common password is refused however its letters are cased, and so is an identifier, or the part of one before an
// "@". A password that only holds an identifier is left to Strength, which takes own into account.
func (p Policy) Check(password string, own ...string) error {
	if p == (Policy{}) {
		return nil
	}
	if len(password) > maxPepperedBytes {
		return tooLong(maxPepperedBytes)
	}
	if n := utf8.RuneCountInString(password); n < p.Min {
		return &PolicyError{ruleMin, fmt.Sprintf("%d characters are fewer than %d", n, p.Min)}
	}
	if err := p.checkKnown(fold(password), own); err != nil {
		return err
	}
	return p.checkStrength(password, own)
}

// checkKnown refuses what an attacker tries first.
func (p Policy) checkKnown(folded string, own []string) error {
	if p.Blocklist {
		found, err := isCommon(folded)
		if err != nil {
			return err
		}
		if found {
			return &PolicyError{ruleBlocklist, "it is one of the most common passwords, which are tried first"}
		}
	}
	if slices.ContainsFunc(own, func(id string) bool { return isIdentifier(folded, id) }) {
		return &PolicyError{ruleIdentifier, "it is a name, address or other identifier of its owner"}
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
	return &PolicyError{ruleStrength, reason}
}

// isIdentifier reports whether a folded password is an identifier or its local part.
func isIdentifier(folded, id string) bool {
	id = fold(id)
	local, _, _ := strings.Cut(id, "@")
	return folded != "" && (folded == id || folded == local)
}

// fold makes texts equal that differ in case, in width or in how their accents are written: an attacker tries all of
// these. It is for comparing only.
func fold(text string) string {
	return strings.TrimSpace(cases.Fold().String(norm.NFKC.String(text)))
}

// packed holds 30,000 common passwords, lower case, in rank order, one a line.
//
//go:embed common-passwords.gz
var packed []byte

// common is the list sorted, unpacked when it is first needed.
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
