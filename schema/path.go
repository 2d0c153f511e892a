package schema

import (
	"fmt"
	"strconv"
	"strings"
)

// problem is an Error whose path is not yet one text.
type problem struct {
	path   []string
	reason string
}

func problemf(reason string, args ...any) *problem {
	return &problem{reason: fmt.Sprintf(reason, args...)}
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
		steps[i] = bare(step)
	}
	return &Error{Path: strings.Join(steps, "."), Reason: p.reason}
}

// first returns the first that is a problem.
func first(problems ...*problem) *problem {
	for _, p := range problems {
		if p != nil {
			return p
		}
	}
	return nil
}

// bare returns a name as it is, or shortened and in quotes where it could be
// misread.
func bare(name string) string {
	for _, r := range name {
		if !strconv.IsPrint(r) || strings.ContainsRune(` .,;:"`, r) || r == '\ufffd' {
			return strconv.Quote(shorten(name))
		}
	}
	if name == "" || len(name) > maxShown {
		return strconv.Quote(shorten(name))
	}
	return name
}
