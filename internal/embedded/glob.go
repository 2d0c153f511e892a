package embedded

import "strings"

// matchGlob reports whether a Redis glob matches a key, as the SCAN of a server would: by bytes,
// with ranges in either order, and with classes that need no closing bracket. After a mismatch it
// lets the last star match another byte. It never goes back to an earlier star, which could match
// nothing that the last star cannot.
func matchGlob(pattern, key string) bool {
	star, from := -1, 0 // positions in the pattern after the last star, and in the key at that time
	p, k := 0, 0
	for k < len(key) {
		ok, size := matchByte(pattern[p:], key[k])
		switch {
		case strings.HasPrefix(pattern[p:], "*"):
			p++
			star, from = p, k
		case ok:
			p, k = p+size, k+1
		case star < 0:
			return false
		default:
			from++
			p, k = star, from
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// matchByte reports whether c matches the first element of a pattern, and returns the length of
// that element.
func matchByte(pattern string, c byte) (ok bool, size int) {
	switch {
	case pattern == "":
		return false, 0
	case pattern[0] == '?':
		return true, 1
	case pattern[0] == '[':
		ok, end := matchClass(pattern[1:], c)
		return ok, min(end+2, len(pattern))
	case pattern[0] == '\\' && len(pattern) > 1:
		return pattern[1] == c, 2
	}
	return pattern[0] == c, 1
}

// matchClass reports whether c matches a class, which is given without its opening bracket. end is
// the index of the closing bracket, or len(class) if there is none.
func matchClass(class string, c byte) (ok bool, end int) {
	i, not := 0, false
	if i < len(class) && class[i] == '^' {
		i, not = 1, true
	}
	for ; i < len(class) && class[i] != ']'; i++ {
		switch {
		case class[i] == '\\' && i+1 < len(class):
			i++
			ok = ok || class[i] == c
		case i+2 < len(class) && class[i+1] == '-':
			low, high := min(class[i], class[i+2]), max(class[i], class[i+2])
			ok = ok || low <= c && c <= high
			i += 2
		default:
			ok = ok || class[i] == c
		}
	}
	return ok != not, i
}

// literalPrefix returns a prefix of every key that a glob matches.
func literalPrefix(pattern string) string {
	var prefix []byte
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		if c == '*' || c == '?' || c == '[' {
			break
		}
		if c == '\\' && i+1 < len(pattern) {
			i++
			c = pattern[i]
		}
		prefix = append(prefix, c)
	}
	return string(prefix)
}
