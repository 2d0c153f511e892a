package recordkey

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
)

// lengthSize is the size of the length in LengthPrefix: enough for every slice, so that no namespace is too long.
const lengthSize = 8

// LengthPrefix is the length of ns as eight bytes (the highest first), ns and key, put together.
//
// Of the properties in the package documentation, 1, 2, 3 and 5 hold; 4 does not: a shorter namespace sorts before a
// longer one, whatever their bytes. Namespaces nest by giving the result as key to another call: then at each level
// either all keys or none must be made by LengthPrefix.
func LengthPrefix(ns, key []byte) []byte {
	b := make([]byte, 0, lengthSize+len(ns)+len(key))
	b = binary.BigEndian.AppendUint64(b, uint64(len(ns)))
	return append(append(b, ns...), key...)
}

// SplitLengthPrefix undoes LengthPrefix; ns and key are parts of b. Anything else is a *SyntaxError.
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

// HexPath is key in the namespace ns[0], in that the namespace ns[1] and so on: all of them, the key last, in
// lower-case hexadecimal with a zero byte between two. It takes twice the room.
//
// All five properties in the package documentation hold.
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

// SplitHexPath undoes HexPath; ns is empty for a key in no namespace. Anything else is a *SyntaxError.
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
