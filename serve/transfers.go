package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/own"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/userdb"
)

const jsonLines = "application/x-ndjson"

// transfers are the routes whose bodies stream. The schema library reads bodies whole, so it only documents them.
func (s *Service) transfers(mux *http.ServeMux) {
	admin := []string{own.ScopeAdmin}
	s.streams(mux, route{id: "importEntries", method: "POST", path: typePrefix + "/import", scopes: admin, summary: "Bring in entries, as JSON lines"}, importEntries,
		&huma.Param{Name: "type", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}},
		&huma.Param{Name: "on_duplicate", In: "query", Schema: &huma.Schema{Type: "string", Enum: []any{"fail", "skip", "update"}}},
		&huma.Param{Name: "dry_run", In: "query", Description: "read and judge all lines, and write nothing", Schema: &huma.Schema{Type: "boolean"}})
	s.streams(mux, route{id: "exportEntries", method: "GET", path: typePrefix + "/export", scopes: admin, summary: "All entries, as JSON lines, without hashes of passwords"}, exportEntries,
		&huma.Param{Name: "type", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}})
	s.streams(mux, route{id: "exportEntry", method: "GET", path: typePrefix + "/entries/{uid}/export", scopes: admin, summary: "All that is held of one person"}, exportEntries,
		&huma.Param{Name: "type", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}},
		&huma.Param{Name: "uid", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}})
}

// streams registers a route whose handler reads and writes by itself, for as long as it takes.
func (s *Service) streams(mux *http.ServeMux, r route, do func(c *call, w http.ResponseWriter) error, params ...*huma.Param) {
	op := s.operation(r)
	op.Parameters = params
	lines := map[string]*huma.MediaType{jsonLines: {Schema: &huma.Schema{Type: huma.TypeString}}}
	if r.method == "POST" {
		op.RequestBody = &huma.RequestBody{Required: true, Content: lines}
	}
	op.Responses["200"] = &huma.Response{Description: "JSON lines.", Content: lines}
	s.api.OpenAPI().AddOperation(&op)
	mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, req *http.Request) {
		flowing := &stream{ReadCloser: req.Body, ResponseWriter: w, control: http.NewResponseController(w), late: lateOf(req.Context())}
		c, err := s.enter(req, r)
		if err == nil {
			defer flowing.begin()()
			c.request, req.Body = req, flowing
			err = do(c, flowing)
		}
		if err != nil {
			infoOf(req.Context()).err = err
			writeProblem(flowing, req, problemOf(err))
		}
	})
}

// stallTime is how long a stream may stand still.
const stallTime = time.Minute

// A stream is the body of a request and the answer to it, which take any time, as long as they go on.
type stream struct {
	io.ReadCloser
	http.ResponseWriter
	control *http.ResponseController
	late    context.Context // which ends when nothing more is read
}

// begin lets the answer come at any time, and has a read that waits end when it is late.
func (s *stream) begin() (end func() bool) {
	_ = s.control.SetWriteDeadline(time.Time{}) // Write sets another one, and says where that fails
	return context.AfterFunc(s.late, func() { _ = s.control.SetReadDeadline(time.Now()) })
}

func (s *stream) Read(b []byte) (int, error) {
	if err := s.control.SetReadDeadline(time.Now().Add(stallTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	if err := s.late.Err(); err != nil {
		return 0, err
	}
	return s.ReadCloser.Read(b)
}

func (s *stream) Write(b []byte) (int, error) {
	if err := s.control.SetWriteDeadline(time.Now().Add(stallTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return s.ResponseWriter.Write(b)
}

// onlyType is a view by which a type of a path is all there is: what a line says of another one is refused.
func (c *call) onlyType(ctx context.Context) (*userdb.DB, string, error) {
	name := c.request.PathValue("type")
	if _, err := c.typ(ctx, name); err != nil {
		return nil, "", err
	}
	db, err := c.db.With(c.only(name))
	return db, name, err
}

// A refusedLine is one line of an answer to an import.
type refusedLine struct {
	Line   int64  `json:"line"`
	Reason string `json:"reason"`
}

func importEntries(c *call, w http.ResponseWriter) error {
	ctx := context.WithoutCancel(c.request.Context()) // what was read is brought in, also where the body breaks off
	db, name, err := c.onlyType(ctx)
	if err != nil {
		return err
	}
	q := c.request.URL.Query()
	if dry := q.Get("dry_run"); !slices.Contains([]string{"", "true", "false"}, dry) {
		return usage("dry_run: want true or false")
	}
	o := transfer.ImportOptions{Type: name, OnDuplicate: q.Get("on_duplicate"), DryRun: q.Get("dry_run") == "true"}
	// The answer begins when the body has ended: until then the refused lines lie in a file, which has no name.
	spool, err := os.CreateTemp("", "userdb-import-*")
	if err != nil {
		return err
	}
	defer spool.Close()
	if err := os.Remove(spool.Name()); err != nil {
		defer os.Remove(spool.Name())
	}
	lines := bufio.NewWriter(spool)
	encode := json.NewEncoder(lines)
	o.Refused = func(line int64, reason string) { _ = encode.Encode(refusedLine{line, reason}) } // Flush says it
	report, err := transfer.Import(ctx, db, c.request.Body, o)
	if err != nil {
		return onImport(ctx, err, report)
	}
	if err := lines.Flush(); err != nil {
		return err
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	w.Header().Set("Content-Type", jsonLines)
	if _, err := io.Copy(w, spool); err != nil {
		return nil //nolint:nilerr // the client is gone
	}
	_ = json.NewEncoder(w).Encode(map[string]transfer.Report{"report": report})
	return nil
}

// onImport is what an import is answered with that did not come to the end of its body.
func onImport(ctx context.Context, err error, report transfer.Report) *Problem {
	p := problemOf(err)
	cut, unread := errors.AsType[*transfer.ReadError](err)
	switch {
	case unread && lateOf(ctx).Err() != nil:
		p = problem(http.StatusServiceUnavailable, "unavailable", "the service ends")
		p.RetryAfter = 1
	case unread && errors.Is(cut, transfer.ErrInput):
		p = usage("%s", strings.ReplaceAll(cut.Err.Error(), "\n", "; "))
	case unread:
		p = usage("the body broke off")
	case report.Read == 0:
		return p
	}
	answer := *p
	if unread {
		answer.Detail += fmt.Sprintf("; line %d cannot be read, nor what comes after it", cut.Line)
	}
	answer.Detail += fmt.Sprintf("; of the lines before, %d were created, %d updated, %d skipped and %d refused", report.Created, report.Updated, report.Skipped, report.Refused)
	return &answer
}

func exportEntries(c *call, w http.ResponseWriter) error {
	ctx := c.request.Context()
	db, name, err := c.onlyType(ctx)
	if err != nil {
		return err
	}
	o := transfer.ExportOptions{Type: name}
	if uid := c.request.PathValue("uid"); uid != "" {
		o.Only = hints.UID(uid)
	}
	w.Header().Set("Content-Type", jsonLines)
	begun := &beginning{w: w}
	_, err = transfer.Export(ctx, db, begun, o)
	switch {
	case err == nil:
		return nil
	case begun.is: // a broken-off answer must not pass for a whole one
		infoOf(ctx).err = err
		panic(http.ErrAbortHandler)
	}
	return onEntry(err)
}

// A beginning knows whether an answer has begun.
type beginning struct {
	w  io.Writer
	is bool
}

func (b *beginning) Write(p []byte) (int, error) {
	b.is = true
	return b.w.Write(p)
}
