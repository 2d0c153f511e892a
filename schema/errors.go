package schema

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrSchema matches every *Error: the schema cannot be used.
var ErrSchema = errors.New("schema: bad schema")

// Error describes what is wrong with a schema, and where.
type Error struct {
	// Path leads into the file, as in types.user.fields.email.codec. Ambiguous names are quoted.
	// Path is empty if the error concerns the whole file.
	Path string
	// Reason says what is wrong there.
	Reason string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return "schema: " + e.Reason
	}
	return "schema: " + e.Path + ": " + e.Reason
}

// Is reports whether target is ErrSchema.
func (e *Error) Is(target error) bool { return target == ErrSchema }

// ErrValue matches every *ValueError: an input is not a value of a codec.
var ErrValue = errors.New("schema: bad value")

// ValueError describes why an input is not a value of a codec. It does not name the field.
type ValueError struct {
	// Codec is the codec that refused the input.
	Codec Codec
	// Input is the input, cut after 64 bytes.
	Input string
	// Reason says what is wrong with the input.
	Reason string
}

func (e *ValueError) Error() string {
	return fmt.Sprintf("schema: %s value %q: %s", e.Codec, e.Input, e.Reason)
}

// Is reports whether target is ErrValue.
func (e *ValueError) Is(target error) bool { return target == ErrValue }

// maxShown limits how many bytes of an input an error quotes.
const maxShown = 64

// valueError returns the error for an input that codec c does not accept.
func valueError(c Codec, input, reason string) *ValueError {
	return &ValueError{Codec: c, Input: shorten(input), Reason: reason}
}

func tooLong(c Codec, input string) *ValueError {
	return valueError(c, input, fmt.Sprintf("longer than %d bytes", MaxFacet))
}

// shorten cuts s at a character boundary and appends an ellipsis if it is longer than maxShown.
func shorten(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}

// A problem is an Error whose path is not yet joined.
type problem struct {
	path   []string
	reason string
}

func problemf(reason string, args ...any) *problem {
	return &problem{reason: fmt.Sprintf(reason, args...)}
}

// problemIf returns problemf(reason, args...) if wrong is true, and nil otherwise.
func problemIf(wrong bool, reason string, args ...any) *problem {
	if !wrong {
		return nil
	}
	return problemf(reason, args...)
}

// at puts steps in front of the path of p. It returns nil if p is nil.
func (p *problem) at(steps ...string) *problem {
	if p == nil {
		return nil
	}
	return &problem{append(steps, p.path...), p.reason}
}

// err returns p as an error, or nil if p is nil.
func (p *problem) err() error {
	if p == nil {
		return nil
	}
	steps := make([]string, len(p.path))
	for i, step := range p.path {
		steps[i] = quoteIfUnclear(step)
	}
	return &Error{Path: strings.Join(steps, "."), Reason: p.reason}
}

// quoteIfUnclear returns name, or quotes and shortens it if it could be misread.
func quoteIfUnclear(name string) string {
	unclear := func(r rune) bool { return !strconv.IsPrint(r) || strings.ContainsRune(" .,;:\"\ufffd", r) }
	if name == "" || len(name) > maxShown || strings.ContainsFunc(name, unclear) {
		return strconv.Quote(shorten(name))
	}
	return name
}
