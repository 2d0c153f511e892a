package single

// match says whether a Redis glob matches a key, as a server's own SCAN has it: by bytes, with
// ranges in either order and with classes that are never closed. Where what follows a star does not
// match, only the last star takes a byte more: an earlier one could give it no better place.
func match(pattern, key string) bool {
	star, from := -1, 0 // behind the last star, and where the key was then
	p, k := 0, 0
	for k < len(key) {
		if p < len(pattern) && pattern[p] == '*' {
			p++
			star, from = p, k
			continue
		}
		if p < len(pattern) {
			if ok, size := matchByte(pattern[p:], key[k]); ok {
				p, k = p+size, k+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		from++
		p, k = star, from
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// matchByte matches one byte with the beginning of a pattern, and returns how long that is.
func matchByte(pattern string, c byte) (ok bool, size int) {
	switch {
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

// matchClass matches one byte with a class, the text behind its bracket, and returns where its
// closing bracket is, or its length where there is none.
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
