package recordkey

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
)

// lengthSize is the number of bytes in which LengthPrefix writes a length. Eight bytes can hold the
// length of any slice.
const lengthSize = 8

// LengthPrefix returns the length of ns as eight big-endian bytes, followed by ns and key.
//
// It has properties 1, 2, 3 and 5 of the package documentation. It lacks property 4: a shorter
// namespace sorts before a longer one, whatever their bytes. To nest namespaces, pass the result as
// the key to another call. Then, at each level, either all keys or no keys must come from
// LengthPrefix.
func LengthPrefix(ns, key []byte) []byte {
	b := make([]byte, 0, lengthSize+len(ns)+len(key))
	b = binary.BigEndian.AppendUint64(b, uint64(len(ns)))
	return append(append(b, ns...), key...)
}

// SplitLengthPrefix reverses LengthPrefix. The returned ns and key share memory with b. The error
// is a *SyntaxError if b is not a result of LengthPrefix.
func SplitLengthPrefix(b []byte) (ns, key []byte, err error) {
	const fn = "SplitLengthPrefix"
	if len(b) < lengthSize {
		return nil, nil, &SyntaxError{Func: fn, Input: string(b), At: len(b), Reason: "length is truncated"}
	}
	n, rest := binary.BigEndian.Uint64(b), b[lengthSize:]
	if n > uint64(len(rest)) {
		return nil, nil, &SyntaxError{Func: fn, Input: string(b), At: len(b), Reason: "namespace is truncated"}
	}
	return rest[:n:n], rest[n:], nil
}

// HexPath returns the encoding of key in nested namespaces, of which ns[0] is the outermost. It
// writes the namespaces and then the key in lower-case hexadecimal, separated by zero bytes. The
// result is about twice as long as the input.
//
// It has all five properties of the package documentation.
func HexPath(ns [][]byte, key []byte) []byte {
	n := hex.EncodedLen(len(key)) + len(ns)
	for _, name := range ns {
		n += hex.EncodedLen(len(name))
	}
	b := make([]byte, 0, n)
	for _, name := range ns {
		b = append(hex.AppendEncode(b, name), 0)
	}
	return hex.AppendEncode(b, key)
}

// SplitHexPath reverses HexPath; ns is empty for a key outside any namespace. The error is a
// *SyntaxError if b is not a result of HexPath.
func SplitHexPath(b []byte) (ns [][]byte, key []byte, err error) {
	for at := 0; ; {
		n := bytes.IndexByte(b[at:], 0)
		if n < 0 {
			key, err = unhex(b, at, len(b))
			return ns, key, err
		}
		name, err := unhex(b, at, at+n)
		if err != nil {
			return nil, nil, err
		}
		ns = append(ns, name)
		at += n + 1
	}
}

func unhex(b []byte, from, to int) ([]byte, error) {
	for i, c := range b[from:to] {
		if bytes.IndexByte([]byte(hexDigits), c) < 0 {
			return nil, &SyntaxError{Func: "SplitHexPath", Input: string(b), At: from + i, Reason: "not a lower-case hex digit"}
		}
	}
	if (to-from)%2 != 0 {
		return nil, &SyntaxError{Func: "SplitHexPath", Input: string(b), At: to, Reason: "odd number of hex digits"}
	}
	return hex.AppendDecode(nil, b[from:to])
}
