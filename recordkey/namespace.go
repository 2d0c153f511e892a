package recordkey

import "strings"

// maxDepth limits how deep namespaces nest, and how many parts callers may pass to Own.
const maxDepth = 16

const deepReason = "more than 16 levels"

// ownPrefix begins the store's own keys. It looks like a namespace with an empty name, which
// callers cannot create.
const ownPrefix = "~/"

// A Namespace is a key prefix that separates a set of keys from all others: ~acme/, or nested
// ~acme/~eu/. Namespaces are comparable with ==. The zero Namespace is the whole store.
type Namespace struct{ path string } // escaped, with all tildes and slashes

// Sub returns the namespace called name inside n. The name may contain any bytes and may begin with
// a tilde. The error is a *SyntaxError if name is empty or over 1024 bytes, or if the result has
// more than 16 levels.
func (n Namespace) Sub(name string) (Namespace, error) {
	if err := checkCrumb("Sub", "name", name); err != nil {
		return Namespace{}, err
	}
	if strings.Count(n.path, "/") >= maxDepth {
		return Namespace{}, &SyntaxError{Func: "Sub", Input: name, Reason: deepReason}
	}
	return Namespace{n.path + "~" + Escape(name) + "/"}, nil
}

// String returns the prefix of all keys in n: "~acme/~eu/", or "" for the whole store.
func (n Namespace) String() string { return n.path }

// Path returns n in the form that ParseNamespace accepts: "acme/eu", or "" for the whole store.
func (n Namespace) Path() string {
	var b strings.Builder
	for level := range strings.SplitSeq(strings.TrimSuffix(n.path, "/"), "/") {
		if b.Len() > 0 {
			b.WriteByte('/')
		}
		b.WriteString(strings.TrimPrefix(level, "~"))
	}
	return b.String()
}

// ParseNamespace parses a namespace as people write it: escaped names separated by slashes, as in
// "acme/eu". The empty string is the whole store. ParseNamespace returns the same errors as Sub.
func ParseNamespace(path string) (Namespace, error) {
	ns, at := Namespace{}, 0
	if path == "" {
		return ns, nil
	}
	for depth := 1; ; depth++ {
		if depth > maxDepth {
			return Namespace{}, &SyntaxError{Func: "ParseNamespace", Input: path, At: at, Reason: deepReason}
		}
		name, rest, more := strings.Cut(path[at:], "/")
		if _, err := checkEscaped("ParseNamespace", "name", path, at, name); err != nil {
			return Namespace{}, err
		}
		ns.path += "~" + name + "/"
		if !more {
			return ns, nil
		}
		at = len(path) - len(rest)
	}
}

// parseNamespaces parses the namespaces at the start of a key and returns the offset after them.
func parseNamespaces(s string) (ns Namespace, at int, err error) {
	for depth := 0; strings.HasPrefix(s[at:], "~") && !strings.HasPrefix(s[at:], ownPrefix); depth++ {
		if depth == maxDepth {
			return Namespace{}, 0, &SyntaxError{Func: "Parse", Input: s, At: at, Reason: deepReason}
		}
		name, _, found := strings.Cut(s[at+1:], "/")
		if _, err := checkEscaped("Parse", "namespace", s, at+1, name); err != nil {
			return Namespace{}, 0, err
		}
		if !found {
			return Namespace{}, 0, &SyntaxError{Func: "Parse", Input: s, At: len(s), Reason: "no / after the namespace"}
		}
		at += len(name) + 2
	}
	return Namespace{s[:at]}, at, nil
}
