package recordkey_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/recordkey"
)

// A rawKey is a key of raw bytes in a path of namespaces.
type rawKey struct {
	path [][]byte
	key  []byte
}

// bytesGen generates texts of only a few different bytes, so that common prefixes and equal parts
// are frequent.
func bytesGen() *rapid.Generator[[]byte] {
	return rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, '0', 'f', 'o', 0xff}), 0, 4)
}

func pathGen(least, most int) *rapid.Generator[[][]byte] {
	return rapid.SliceOfN(bytesGen(), least, most)
}

func drawKey(t *rapid.T, label string, least, most int) rawKey {
	return rawKey{pathGen(least, most).Draw(t, label+" path"), bytesGen().Draw(t, label+" key")}
}

// An encoding adapts LengthPrefix or HexPath to paths of any depth.
type encoding struct {
	name   string
	encode func(rawKey) []byte
	decode func(b []byte, depth int) (rawKey, error)
	flat   bool // the encoding does not contain the depth, so all keys must have the same depth
}

var encodings = []encoding{
	{"LengthPrefix", encodeLengthPrefix, decodeLengthPrefix, true},
	{"HexPath", encodeHexPath, decodeHexPath, false},
}

func encodeLengthPrefix(k rawKey) []byte {
	b := k.key
	for _, name := range slices.Backward(k.path) {
		b = recordkey.LengthPrefix(name, b)
	}
	return b
}

func decodeLengthPrefix(b []byte, depth int) (k rawKey, err error) {
	k.key = b
	for range depth {
		var name []byte
		if name, k.key, err = recordkey.SplitLengthPrefix(k.key); err != nil {
			return k, err
		}
		k.path = append(k.path, name)
	}
	return k, nil
}

func encodeHexPath(k rawKey) []byte { return recordkey.HexPath(k.path, k.key) }

func decodeHexPath(b []byte, _ int) (rawKey, error) {
	path, key, err := recordkey.SplitHexPath(b)
	return rawKey{path, key}, err
}

func samePath(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }

func sameKey(a, b rawKey) bool { return samePath(a.path, b.path) && bytes.Equal(a.key, b.key) }

// forEach runs f for each encoding. The keys that f draws have paths of 1 to 1+depth levels.
func forEach(t *testing.T, depth int, f func(t *rapid.T, e encoding, draw func(label string) rawKey)) {
	for _, e := range encodings {
		t.Run(e.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				least, most := 1, 1+depth
				if e.flat {
					least = rapid.IntRange(least, most).Draw(t, "depth")
					most = least
				}
				f(t, e, func(label string) rawKey { return drawKey(t, label, least, most) })
			})
		})
	}
}

func TestProperty1AnyLengthAnyBytes(t *testing.T) {
	for _, e := range encodings {
		t.Run(e.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				anyBytes := rapid.SliceOfN(rapid.Byte(), 0, 1000)
				k := rawKey{[][]byte{anyBytes.Draw(t, "namespace")}, anyBytes.Draw(t, "key")}
				if got, err := e.decode(e.encode(k), 1); err != nil || !sameKey(got, k) {
					t.Fatalf("got %x, %v, want %x", got, err, k)
				}
			})
			// The length of this namespace does not fit in 16 bits.
			long := rawKey{[][]byte{bytes.Repeat([]byte{0xff}, 70_000)}, []byte{0}}
			if got, err := e.decode(e.encode(long), 1); err != nil || !sameKey(got, long) {
				t.Errorf("a namespace of 70,000 bytes is not read back: %v", err)
			}
		})
	}
}

func TestProperty2NoCollision(t *testing.T) {
	forEach(t, 0, func(t *rapid.T, e encoding, draw func(string) rawKey) {
		a, b := draw("a"), draw("b")
		if !sameKey(a, b) && bytes.Equal(e.encode(a), e.encode(b)) {
			t.Fatalf("%q and %q are both encoded as %q", a, b, e.encode(a))
		}
	})
}

// TestProperty3OrderWithinNamespace checks the order, and that the keys of a namespace are
// contiguous and share a prefix. Otherwise a range could not select them.
func TestProperty3OrderWithinNamespace(t *testing.T) {
	forEach(t, 0, func(t *rapid.T, e encoding, draw func(string) rawKey) {
		a, b, other := draw("a"), draw("b"), draw("other")
		b.path = a.path
		encA, encB, encOther := e.encode(a), e.encode(b), e.encode(other)
		if bytes.Compare(encA, encB) != bytes.Compare(a.key, b.key) {
			t.Fatalf("%q and %q sort differently from their encodings %q and %q", a, b, encA, encB)
		}
		if bytes.Compare(encA, encOther) < 0 && bytes.Compare(encOther, encB) < 0 && !samePath(a.path, other.path) {
			t.Fatalf("%q, of another namespace, sorts between %q and %q", other, a, b)
		}
		prefix := e.encode(rawKey{path: a.path})
		if bytes.HasPrefix(encOther, prefix) != samePath(a.path, other.path) {
			t.Fatalf("%q has prefix %q: %v, but it is in namespace %q: %v", encOther, prefix, bytes.HasPrefix(encOther, prefix), a.path, samePath(a.path, other.path))
		}
	})
}

func TestProperty4OrderOfNamespaces(t *testing.T) {
	e := encodings[1] // LengthPrefix lacks this property: see the next test
	t.Run(e.name, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			a, b := drawKey(t, "a", 1, 1), drawKey(t, "b", 1, 1)
			want := bytes.Compare(a.path[0], b.path[0])
			if want != 0 && bytes.Compare(e.encode(a), e.encode(b)) != want {
				t.Fatalf("%q and %q sort differently from their encodings %q and %q", a, b, e.encode(a), e.encode(b))
			}
		})
	})
}

// TestProperty4LengthPrefixLacksIt checks the order that the comment on LengthPrefix describes,
// which is not that of property 4.
func TestProperty4LengthPrefixLacksIt(t *testing.T) {
	a, b := recordkey.LengthPrefix([]byte("aa"), nil), recordkey.LengthPrefix([]byte("b"), nil)
	if bytes.Compare(a, b) < 0 {
		t.Error("aa sorts before b: correct the comment on LengthPrefix")
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawKey(t, "a", 1, 1), drawKey(t, "b", 1, 1)
		shorter := len(a.path[0]) < len(b.path[0])
		if shorter && bytes.Compare(encodeLengthPrefix(a), encodeLengthPrefix(b)) >= 0 {
			t.Fatalf("the shorter %q does not sort before %q", a, b)
		}
	})
}

func TestProperty5Nesting(t *testing.T) {
	forEach(t, 4, func(t *rapid.T, e encoding, draw func(string) rawKey) {
		a, b := draw("a"), draw("b")
		if got, err := e.decode(e.encode(a), len(a.path)); err != nil || !sameKey(got, a) {
			t.Fatalf("got %q, %v, want %q", got, err, a)
		}
		if !sameKey(a, b) && bytes.Equal(e.encode(a), e.encode(b)) {
			t.Fatalf("%q and %q are both encoded as %q", a, b, e.encode(a))
		}
		// prefix is common to all keys in the namespace, including nested ones.
		prefix := e.encode(rawKey{path: a.path})
		inside := len(b.path) >= len(a.path) && samePath(a.path, b.path[:len(a.path)])
		if bytes.HasPrefix(e.encode(b), prefix) != inside {
			t.Fatalf("%q has the prefix of namespace %q: got %v, want %v", b, a.path, !inside, inside)
		}
	})
}

// TestProperty5HexPathKeepsOrder checks that HexPath keeps the order at every depth: keys sort like
// their paths, name by name.
func TestProperty5HexPathKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawKey(t, "a", 0, 4), drawKey(t, "b", 0, 4)
		want := slices.CompareFunc(append(slices.Clone(a.path), a.key), append(slices.Clone(b.path), b.key), bytes.Compare)
		if bytes.Compare(encodeHexPath(a), encodeHexPath(b)) != want {
			t.Fatalf("%q and %q sort differently from their encodings %q and %q", a, b, encodeHexPath(a), encodeHexPath(b))
		}
	})
}

func TestBinaryForms(t *testing.T) {
	if got := recordkey.LengthPrefix([]byte("fo"), []byte("obar")); string(got) != "\x00\x00\x00\x00\x00\x00\x00\x02foobar" {
		t.Errorf("LengthPrefix returns %q, want the length 2 in eight bytes and foobar", got)
	}
	if got := recordkey.HexPath([][]byte{[]byte("fo"), {0xff}}, []byte("obar")); string(got) != "666f\x00ff\x006f626172" {
		t.Errorf("HexPath returns %q, want fo, ff and obar in hexadecimal, separated by zero bytes", got)
	}
	if got := recordkey.HexPath(nil, nil); string(got) != "" {
		t.Errorf("HexPath(nil, nil) = %q, want \"\"", got)
	}
}

func TestSplitErrors(t *testing.T) {
	huge := binary.BigEndian.AppendUint64(nil, 1<<63)
	for _, row := range []struct{ in, want string }{
		{"", `"" at byte 0: length is truncated`},
		{"1234567", `"1234567" at byte 7: length is truncated`},
		{"\x00\x00\x00\x00\x00\x00\x00\x03ab", `"\x00\x00\x00\x00\x00\x00\x00\x03ab" at byte 10: namespace is truncated`},
		{string(huge), `"\x80\x00\x00\x00\x00\x00\x00\x00" at byte 8: namespace is truncated`},
	} {
		_, _, err := recordkey.SplitLengthPrefix([]byte(row.in))
		checkErr(t, err, "recordkey.SplitLengthPrefix: "+row.want)
	}
	for _, row := range []struct{ in, want string }{
		{"66f", `"66f" at byte 3: odd number of hex digits`},
		{"6\x0066", `"6\x0066" at byte 1: odd number of hex digits`},
		{"66\x006F", `"66\x006F" at byte 4: not a lower-case hex digit`},
	} {
		_, _, err := recordkey.SplitHexPath([]byte(row.in))
		checkErr(t, err, "recordkey.SplitHexPath: "+row.want)
	}
}

func FuzzSplits(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x02foobar"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xffx")) // a length that is negative as an int
	f.Add([]byte("666f\x00\x006f626172"))
	f.Add([]byte("66\x006F"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if ns, key, err := recordkey.SplitLengthPrefix(b); err == nil && !bytes.Equal(recordkey.LengthPrefix(ns, key), b) {
			t.Errorf("%q is split into %q and %q, which are joined differently", b, ns, key)
		}
		if ns, key, err := recordkey.SplitHexPath(b); err == nil && !bytes.Equal(recordkey.HexPath(ns, key), b) {
			t.Errorf("%q is split into %q and %q, which are joined differently", b, ns, key)
		}
	})
}
