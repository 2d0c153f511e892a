package redistest

import (
	"bufio"
	"io"
	"strings"
	"testing"
)

func TestReadValue(t *testing.T) {
	for _, value := range []string{
		"+OK\r\n", "-ERR no\r\n", ":1\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "(123\r\n",
		"$0\r\n\r\n", "$3\r\na\r\n\r\n", "$-1\r\n", "=5\r\ntxt:x\r\n", "!3\r\nERR\r\n",
		"*0\r\n", "*-1\r\n", "*2\r\n$1\r\na\r\n*1\r\n:1\r\n", "~1\r\n+a\r\n",
		"%2\r\n+a\r\n:1\r\n+b\r\n:2\r\n", ">2\r\n+message\r\n+x\r\n",
		"|1\r\n+ttl\r\n:3\r\n$1\r\nx\r\n", // an attribute and its reply
		"PING\r\n",
	} {
		in := bufio.NewReader(strings.NewReader(value + "+next\r\n"))
		got, err := readValue(in)
		if err != nil || string(got) != value {
			t.Errorf("got %q, %v; want %q", got, err, value)
		}
		if rest, _ := io.ReadAll(in); string(rest) != "+next\r\n" {
			t.Errorf("%q: %q is left, want only the next value", value, rest)
		}
	}
}

func TestReadValueErrors(t *testing.T) {
	for value, want := range map[string]string{
		"":                "EOF",
		"$5\r\nab":        "unexpected EOF",
		"*2\r\n+a\r\n":    "EOF",
		"$x\r\n":          `bad size in "$x\r\n"`,
		"$\n":             `bad size in "$\n"`,
		"$9999999999\r\n": `bad size in "$9999999999\r\n"`,
	} {
		if _, err := readValue(bufio.NewReader(strings.NewReader(value))); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", value, err, want)
		}
	}
}

func FuzzReadValue(f *testing.F) {
	f.Add("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")
	f.Add("|1\r\n+a\r\n_\r\n%1\r\n+b\r\n#f\r\n")
	f.Add("$-1\r\n*-1\r\n")
	f.Fuzz(func(t *testing.T, stream string) {
		in := bufio.NewReader(strings.NewReader(stream))
		var read strings.Builder
		for {
			value, err := readValue(in)
			if err != nil {
				return
			}
			read.Write(value)
			if !strings.HasPrefix(stream, read.String()) {
				t.Fatalf("read %q, want the beginning of %q", read.String(), stream)
			}
		}
	})
}
