package transfer_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/userdb"
)

// FuzzImport imports any input. If the import succeeds, its report must account for every line, an
// export must have as many entries as were created, and rejected JSON lines must be readable again.
func FuzzImport(f *testing.F) {
	for _, in := range []string{
		`{"type":"user","facets":{"uid":"1","name":"Ann","age":41},"tertiary":{"tags":{"kind":"set","value":["a"]}}}`,
		`{"facets":{},"wire":{"motto":"/w=="},"tertiary":{"ranks":{"kind":"zset","value":[["a",1.5],["b","inf"]]},"bio":{"kind":"string","value64":["/w=="]}}}`,
		"name,age\nAnn,41\n\"x\n", "{}\n\n{", "\ufeffname\r\n\"a\"b\"\r\n", `{"facets":{"name":"a"},"~rejected":{"line":1}}`, "~text,name\nx,y\n",
	} {
		f.Add(in, false)
		f.Add(in, true)
	}
	f.Fuzz(func(t *testing.T, in string, csv bool) {
		db, err := userdb.Open(t.Context(), "memory:", userdb.Options{Schema: fullSchema()})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if strings.Contains(in, "clear") {
			return // hashing is slow
		}
		var rejects bytes.Buffer
		r, err := transfer.Import(t.Context(), db, strings.NewReader(in), transfer.ImportOptions{CSV: csv, Rejects: &rejects})
		if err != nil {
			return // for example, there is no header
		}
		if r.Read != r.Created+r.Refused || (r.Refused > 0) != (rejects.Len() > 0) {
			t.Fatalf("the report %+v does not account for every line; rejects %q", r, rejects.String())
		}
		x, err := transfer.Export(t.Context(), db, &bytes.Buffer{}, transfer.ExportOptions{Unreadable: func(err error) { t.Error(err) }})
		if err != nil || x.Read != r.Created {
			t.Fatalf("exported %+v after importing %+v: %v", x, r, err)
		}
		if !csv && rejects.Len() > 0 {
			again, err := transfer.Import(t.Context(), db, &rejects, transfer.ImportOptions{DryRun: true})
			if err != nil || again.Read != r.Refused {
				t.Fatalf("importing the rejects again: got %+v, %v; want %d lines read", again, err, r.Refused)
			}
		}
	})
}
