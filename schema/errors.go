package schema

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrSchema is what every *Error is, for errors.Is: a schema that cannot be used.
var ErrSchema = errors.New("schema: bad schema")

// Error says what is wrong with a schema, and where.
type Error struct {
	// Path leads into the file: types.user.fields.email.codec. A name that could be misread stands in quotes. It is
	// empty where the file as such is meant.
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

// ValueError says why something is not a value of a codec. It does not know of which field.
type ValueError struct {
	// Codec is the codec that was to read the value.
	Codec Codec
	// Input is what was read, cut after maxShown bytes.
	Input string
	// Reason says what is wrong with it.
	Reason string
}

func (e *ValueError) Error() string {
	return fmt.Sprintf("schema: %s value %q: %s", e.Codec, e.Input, e.Reason)
}

// maxShown is the greatest part of an input that an error quotes, in bytes.
const maxShown = 64

// refuse returns the error for an input of codec c.
func refuse(c Codec, input, reason string) *ValueError {
	return &ValueError{Codec: c, Input: shorten(input), Reason: reason}
}

func tooLong(c Codec, input string) *ValueError {
	return refuse(c, input, fmt.Sprintf("longer than %d bytes", MaxFacet))
}

// shorten cuts s between two characters, and says so.
func shorten(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}

// problem is an Error whose path is not yet one text.
type problem struct {
	path   []string
	reason string
}

func problemf(reason string, args ...any) *problem {
	return &problem{reason: fmt.Sprintf(reason, args...)}
}

// problemIf is problemf where something is wrong, else nil.
func problemIf(wrong bool, reason string, args ...any) *problem {
	if !wrong {
		return nil
	}
	return problemf(reason, args...)
}

// at puts steps before the path of p; there is no problem in nil.
func (p *problem) at(steps ...string) *problem {
	if p == nil {
		return nil
	}
	return &problem{append(steps, p.path...), p.reason}
}

// err returns p as an error, nil for nil.
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

// quoteIfUnclear returns a name as it is, or shortened and in quotes where it could be misread.
func quoteIfUnclear(name string) string {
	unclear := func(r rune) bool { return !strconv.IsPrint(r) || strings.ContainsRune(" .,;:\"\ufffd", r) }
	if name == "" || len(name) > maxShown || strings.ContainsFunc(name, unclear) {
		return strconv.Quote(shorten(name))
	}
	return name
}
