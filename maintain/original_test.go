package maintain_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/schema"
)

var update = flag.Bool("update", false, "renew golden files")

// TestCheckOriginal checks what the original wrote, by the schema that it was written by. Each line of
// the golden file is damage that the original did: it takes values from other users, writes empty
// ones, and leaves white space and braces in keys.
func TestCheckOriginal(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.under(t, originalSchema(t))
		s.load(t, "../testdata/original/original_fixture.jsonl")
		var lines []string
		for p, err := range maintain.Check(s.ctx, s.db, maintain.CheckOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			line := fmt.Sprintf("I%d %v", p.Invariant, p)
			if p.Code == "field_missing" && strings.Contains(p.Text, "nonexistent") {
				line = "I0 problem field_missing user/uid:…: no \"nonexistent\"" // of every entry
			}
			lines = append(lines, line)
		}
		slices.Sort(lines)
		got := strings.Join(slices.Compact(lines), "\n") + "\n"
		golden(t, "testdata/original.golden", got)
	})
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (renew it with -update); got\n%s", path, got)
	}
}

func originalSchema(t *testing.T) schema.Schema {
	t.Helper()
	file, err := os.Open("../testdata/original/original_options.json")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	sch, err := schema.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return sch
}

// load writes the records of a file of the original's.
func (s *site) load(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var record struct {
			Key, Type string
			Value     json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &record); err != nil {
			t.Fatal(err)
		}
		if record.Type == "string" {
			var srv string
			must(0, json.Unmarshal(record.Value, &srv))
			s.do(t, "SET", record.Key, srv)
			continue
		}
		var fields map[string]string
		must(0, json.Unmarshal(record.Value, &fields))
		words := []string{"HSET", record.Key}
		for field, wire := range fields {
			words = append(words, field, wire)
		}
		s.do(t, words...)
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
}
