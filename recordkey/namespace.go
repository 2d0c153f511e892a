package recordkey

import "strings"

// maxDepth is how deep namespaces nest, and how many parts an own key has at most.
const maxDepth = 16

const deepReason = "more than 16 levels"

// ownPrefix is the empty namespace, which no caller can have.
const ownPrefix = "~/"

// Namespace is a prefix that gives a view of its own: ~acme/, and nested ~acme/~eu/.
// Namespaces are comparable with ==; the zero Namespace is the whole store.
type Namespace struct{ path string } // with all tildes and slashes, escaped

// Sub is the namespace name inside n. The name may hold any bytes and begin with a tilde; an
// empty one, one of over 1024 bytes and more than 16 levels are a *SyntaxError.
func (n Namespace) Sub(name string) (Namespace, error) {
	if err := checkCrumb("Sub", "name", name); err != nil {
		return Namespace{}, err
	}
	if strings.Count(n.path, "/") >= maxDepth {
		return Namespace{}, &SyntaxError{Func: "Sub", Input: name, Reason: deepReason}
	}
	return Namespace{n.path + "~" + Escape(name) + "/"}, nil
}

// String is the prefix of all keys of n: "~acme/~eu/", and "" for the whole store.
func (n Namespace) String() string { return n.path }

// Path is what ParseNamespace takes: "acme/eu", and "" for the whole store.
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

// ParseNamespace reads a namespace as people write it: escaped names with slashes between
// them, "acme/eu". The empty text is the whole store. Else it fails as Sub does.
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

// parseNamespaces reads the namespaces at the start of a key and says where they end.
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
