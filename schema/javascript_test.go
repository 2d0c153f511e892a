package schema_test

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/schema"
)

// An answer is one line of testdata/javascript.jsonl. Out is what JavaScript returns for In, or nil
// if it throws or returns an invalid date.
type answer struct {
	Op  string
	In  string
	Out *string
}

// deviations lists the texts that we refuse and JavaScript does not, with the reason. Out is our
// answer, nil for the error.
var deviations = map[answer]string{
	{"json", "1e400", nil}:  "JavaScript would silently write an infinity as null",
	{"json", "-1e400", nil}: "JavaScript would silently write an infinity as null",
}

// surrogate matches an unpaired surrogate in the output of JSON.stringify.
var surrogate = regexp.MustCompile(`\\ud[89a-f][0-9a-f]{2}`)

// TestJavaScript compares our results with the answers of a JavaScript engine.
func TestJavaScript(t *testing.T) {
	ours := map[string]func(string) *string{
		"print":      printBits,
		"parseFloat": parseFloat,
		"json":       stringifyParsed,
		"printDate":  printMilli,
		"readDate":   readMilli,
	}
	repeated, halves := 0, 0
	for _, a := range answers(t) {
		if a.Op == "json" && repeats(a.In) {
			repeated++ // JavaScript takes the last member
			continue
		}
		if a.Op == "json" && a.Out != nil { // we replace unpaired surrogates
			replaced := surrogate.ReplaceAllString(*a.Out, "\ufffd")
			halves += strings.Count(replaced, "\ufffd")
			a.Out = &replaced
		}
		got := ours[a.Op](a.In)
		if v, err := schema.JSON(json.RawMessage(a.In)); a.Op == "json" && err == nil && schema.LosesDigits(v) {
			continue // we keep digits that JavaScript loses
		}
		same := show(got) == show(a.Out)
		if _, differs := deviations[answer{a.Op, a.In, got}]; same == differs {
			t.Errorf("%s(%q): got %s, but JavaScript returns %s", a.Op, a.In, show(got), show(a.Out))
		}
	}
	if halves != 17 {
		t.Errorf("got %d halves of surrogate pairs, want 17", halves)
	}
	if repeated != 4 {
		t.Errorf("%d answers have two members with the same name, want 4", repeated)
	}
}

// repeats reports whether a JSON text is refused because a member appears twice.
func repeats(text string) bool {
	_, err := schema.JSON(json.RawMessage(text))
	var refused *schema.ValueError
	return errors.As(err, &refused) && refused.Reason == "a member appears twice"
}

func answers(t *testing.T) (all []answer) {
	file, err := os.Open("testdata/javascript.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var a answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	if len(all) < 300 {
		t.Fatalf("got %d answers, want at least 300", len(all))
	}
	return all
}

func show(s *string) string {
	if s == nil {
		return "an error"
	}
	return strconv.Quote(*s)
}

func printBits(in string) *string {
	b, _ := hex.DecodeString(in)
	s := schema.Number(math.Float64frombits(binary.BigEndian.Uint64(b))).Wire()
	return &s
}

func parseFloat(in string) *string {
	v, err := schema.Decode(schema.CodecNumber, in)
	if err != nil {
		return nil
	}
	f, _ := v.Number()
	s := schema.Number(f).Wire()
	if f == 0 && math.Signbit(f) {
		s = "-0"
	}
	return &s
}

func stringifyParsed(in string) *string {
	v, err := schema.JSON(json.RawMessage(in))
	if err != nil {
		return nil
	}
	s := v.Wire()
	return &s
}

func printMilli(in string) *string {
	ms, _ := strconv.ParseInt(in, 10, 64)
	s := schema.Date(time.UnixMilli(ms)).Wire()
	return &s
}

func readMilli(in string) *string {
	v, err := schema.Decode(schema.CodecDate, in)
	if err != nil {
		return nil
	}
	at, _ := v.Time()
	s := strconv.FormatInt(at.UnixMilli(), 10)
	return &s
}
