package testdb

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"

	"github.com/coffeenode/userdb/schema"
)

// OriginalSchema returns the schema of the records that Load reads. CoffeeNode UserDB, the original
// program, wrote them.
func OriginalSchema(t *testing.T) schema.Schema {
	t.Helper()
	file, err := os.Open("../../test/testdata/original/original_options.json")
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

// Load writes records to the site. The file at path holds them; it was exported from CoffeeNode
// UserDB, the original program, whose stores this module can open.
func (s *Site) Load(t *testing.T, path string) {
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
			Must(0, json.Unmarshal(record.Value, &srv))
			s.Do(t, "SET", record.Key, srv)
			continue
		}
		var fields map[string]string
		Must(0, json.Unmarshal(record.Value, &fields))
		words := []string{"HSET", record.Key}
		for field, wire := range fields {
			words = append(words, field, wire)
		}
		s.Do(t, words...)
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
}
