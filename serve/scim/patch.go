package scim

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Limits of a PATCH request. The parser takes about 10 µs for each byte of a path and more than
// 20 µs for a short one, so only a few paths may need it.
const (
	maxOperations  = 2000
	maxParsed      = 200      // paths that need the parser
	maxParsedBytes = 16 << 10 // total length of these paths
)

// A patch holds the body of a PATCH request.
type patch struct {
	Operations []patchOperation
}

type patchOperation struct {
	Op    string
	Path  *string
	Value json.RawMessage
}

// path returns the path of an operation for an error.
func (o patchOperation) path() string {
	if o.Path == nil {
		return "the resource"
	}
	return quoted(*o.Path)
}

// A step holds one operation on one attribute, as in a PATCH request.
type step struct {
	op string // add, remove, replace
	at target
	v  any // nil removes the attribute
}

// A patchReader reads the steps of one PATCH request.
type patchReader struct {
	urn                 string // of the resource
	parsed, parsedBytes int    // paths that were given to the parser
}

// steps reads the steps of a PATCH request from its body.
func (c *call) steps(urn string) ([]step, error) {
	var body patch
	if err := c.decodeBody(&body); err != nil {
		return nil, err
	}
	r := patchReader{urn: urn}
	return r.steps(body)
}

// steps returns the steps of a patch. It leaves out operations on attributes that are not stored.
func (r *patchReader) steps(p patch) (all []step, err error) {
	if n := len(p.Operations); n == 0 || n > maxOperations {
		return nil, badRequest(invalidSyntax, "a PATCH must have 1 to %d Operations, not %d", maxOperations, n)
	}
	for _, o := range p.Operations {
		s := step{op: strings.ToLower(o.Op)}
		if len(o.Value) > 0 && json.Unmarshal(o.Value, &s.v) != nil {
			return nil, badRequest(invalidSyntax, "the value of %s cannot be parsed", o.path())
		}
		switch {
		case !has([]string{"add", "remove", "replace"}, s.op):
			return nil, badRequest(invalidSyntax, "the operation on %s must be add, remove or replace", o.path())
		case s.op == "remove" && o.Path == nil:
			return nil, badRequest(noTarget, "remove requires a path")
		case s.op != "remove" && len(o.Value) == 0:
			return nil, badRequest(invalidValue, "%s requires a value for %s", s.op, o.path())
		}
		path := r.urn
		if o.Path != nil {
			path = *o.Path
		}
		some, err := r.expand(s, path)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// expand returns the steps of an operation on a path. There may be several if the path denotes the
// resource itself.
func (r *patchReader) expand(s step, path string) (all []step, err error) {
	at, unsupported, err := r.parsePath(path)
	if err != nil || unsupported {
		return nil, err
	}
	if s.at = at; at.name != "" {
		return []step{s}, nil
	}
	members, ok := s.v.(map[string]any)
	if !ok || s.op == "remove" {
		return nil, badRequest(invalidValue, "without a path, the value must be an object")
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if has(readOnly, strings.ToLower(name)) { // Okta sends them with every change
			continue
		}
		some, err := r.expand(step{op: s.op, v: members[name]}, name)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}
