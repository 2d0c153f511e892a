package serve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coffeenode/userdb/internal/own"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/serve/scim"
	"github.com/coffeenode/userdb/userdb"
)

const jsonLines = "application/x-ndjson"

// transfers are the routes whose bodies stream. The schema library reads bodies whole, so it only documents them.
func (s *Service) transfers(mux *http.ServeMux) {
	admin := []string{own.ScopeAdmin}
	s.streams(mux, route{id: "importEntries", method: "POST", path: typePrefix + "/import", scopes: admin, imports: true, summary: "Bring in entries, as JSON lines"}, importEntries,
		&huma.Param{Name: "type", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}},
		&huma.Param{Name: "on_duplicate", In: "query", Schema: &huma.Schema{Type: "string", Enum: []any{"fail", "skip", "update"}}},
		&huma.Param{Name: "dry_run", In: "query", Description: "read and judge all lines, and write nothing", Schema: &huma.Schema{Type: "boolean"}})
	s.streams(mux, route{id: "exportEntries", method: "GET", path: typePrefix + "/export", scopes: admin, summary: "All entries, as JSON lines, without hashes of passwords"}, exportEntries,
		&huma.Param{Name: "type", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}})
	s.streams(mux, route{id: "exportEntry", method: "GET", path: typePrefix + "/entries/{uid}/export", scopes: admin, summary: "All that is held of one person, as JSON lines: the entry, {\"sessions\":[]} and {\"history\":[]}"}, exportEntry,
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
		flowing := &stream{ReadCloser: req.Body, ResponseWriter: w, control: http.NewResponseController(w), late: endsOf(req.Context()).late}
		c, leave, err := s.enter(req, r)
		if err == nil {
			defer leave()
			defer flowing.begin()()
			flowing.good = func() error { return c.stillGood(r) }
			c.request.Body = flowing
			err = do(c, flowing)
			flowing.good = nil
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
	good    func() error    // asked before every part, as long as the key may; nil: nobody need be asked
}

// stillGood is an error where the key of a request has been revoked, or is over, since it began. A store that does not answer ends nothing.
func (c *call) stillGood(r route) error {
	ctx, cancel := context.WithTimeout(c.request.Context(), lookTime)
	defer cancel()
	_, err := c.service.keyFor(c.request.WithContext(ctx), r)
	if err != nil && problemOf(err).Status < http.StatusInternalServerError {
		return err
	}
	return nil
}

func (s *stream) may() error {
	if s.good == nil {
		return nil
	}
	return s.good()
}

// begin lets the answer come at any time, and has a read that waits end when it is late.
func (s *stream) begin() (end func() bool) {
	_ = s.control.SetWriteDeadline(time.Time{}) // Write sets another one, and says where that fails
	return context.AfterFunc(s.late, func() { _ = s.control.SetReadDeadline(time.Now()) })
}

// Unwrap is asked by [http.ResponseController].
func (s *stream) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *stream) Read(b []byte) (int, error) {
	if err := s.control.SetReadDeadline(time.Now().Add(stallTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	if err := cmp.Or(s.late.Err(), s.may()); err != nil {
		return 0, err
	}
	n, err := s.ReadCloser.Read(b)
	if refused := s.may(); refused != nil { // since, while it waited
		return 0, refused
	}
	return n, err
}

func (s *stream) Write(b []byte) (int, error) {
	if err := s.may(); err != nil {
		return 0, err
	}
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

// queryOf is the query of a request, which has parameters of these names.
func queryOf(r *http.Request, names ...string) (values url.Values, all []Wrong) {
	values = r.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(names, name) {
			all = append(all, misuse(name, "there is no such parameter"))
		}
	}
	return values, all
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
	q, wrong := queryOf(c.request, "on_duplicate", "dry_run")
	if !slices.Contains([]string{"", "true", "false"}, q.Get("dry_run")) {
		wrong = append(wrong, misuse("dry_run", "want true or false"))
	}
	if err := misused(wrong); err != nil {
		return err
	}
	o := transfer.ImportOptions{Type: name, OnDuplicate: q.Get("on_duplicate"), DryRun: q.Get("dry_run") == "true"}
	var refused spool // the answer begins when the body has ended
	defer refused.close()
	encode := json.NewEncoder(&refused)
	o.Refused = func(line int64, reason string) { _ = encode.Encode(refusedLine{line, reason}) } // refused keeps it
	report, err := transfer.Import(ctx, db, c.request.Body, o)
	if err != nil {
		return onImport(ctx, err, report)
	}
	if refused.err != nil {
		return onImport(ctx, refused.err, report)
	}
	w.Header().Set("Content-Type", jsonLines)
	if err := refused.copyTo(w); err != nil {
		return nil //nolint:nilerr // the client is gone
	}
	_ = json.NewEncoder(w).Encode(map[string]transfer.Report{"report": report})
	return nil
}

// A spool keeps what is written until it is copied: in memory, and what has no room there in a file, which has no name.
type spool struct {
	memory bytes.Buffer
	file   *os.File
	err    error // the first; what is written after it is lost
}

// spoolMemory is how much stays in memory.
const spoolMemory = 1 << 20

func (s *spool) Write(p []byte) (int, error) {
	switch {
	case s.err != nil:
		return 0, s.err
	case s.file == nil && s.memory.Len()+len(p) <= spoolMemory:
		return s.memory.Write(p)
	case s.file == nil:
		if s.file, s.err = os.CreateTemp("", "userdb-import-*"); s.err != nil {
			return 0, s.err
		}
		_ = os.Remove(s.file.Name()) // close does where that fails
	}
	n, err := s.file.Write(p)
	s.err = err
	return n, err
}

func (s *spool) copyTo(w io.Writer) error {
	if _, err := s.memory.WriteTo(w); err != nil || s.file == nil {
		return err
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := io.Copy(w, s.file)
	return err
}

func (s *spool) close() {
	if s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name())
	}
}

// onImport is what an import is answered with that did not come to the end of its body.
func onImport(ctx context.Context, err error, report transfer.Report) error {
	p := problemOf(err)
	if report.Read > 0 {
		p = problemOf(fmt.Errorf("%w: %w", scim.ErrPartly, err))
	}
	cut, unread := errors.AsType[*transfer.ReadError](err)
	_, refused := errors.AsType[*Problem](err)
	switch {
	case refused: // its key is good no longer
	case unread && endsOf(ctx).late.Err() != nil:
		p = problem(userdb.CodeUnavailable, "the service ends").retry(1)
	case unread && errors.Is(cut, transfer.ErrInput):
		p = usage("%s", strings.ReplaceAll(cut.Err.Error(), "\n", "; "))
	case unread:
		p = usage("the body broke off")
	case report.Read == 0:
		return err
	}
	answer := *p
	if unread {
		answer.Detail += fmt.Sprintf("; line %d cannot be read, nor what comes after it", cut.Line)
	}
	answer.Detail += fmt.Sprintf("; of the lines before, %d were created, %d updated, %d skipped and %d refused", report.Created, report.Updated, report.Skipped, report.Refused)
	return fmt.Errorf("%w: %w", &answer, err) // the log wants the cause
}

func exportEntries(c *call, w http.ResponseWriter) error {
	return export(c, w, transfer.ExportOptions{}, nil)
}

// exportEntry answers an entry as import takes it, and what else is held of its owner in lines of its own.
func exportEntry(c *call, w http.ResponseWriter) error {
	ctx, at := c.request.Context(), &EntryPath{TypePath{c.request.PathValue("type")}, c.request.PathValue("uid")}
	sessions, err := listSessions(ctx, c, at)
	if err != nil {
		return err
	}
	events, err := history(ctx, c, at)
	if err != nil {
		return err
	}
	return export(c, w, transfer.ExportOptions{Only: at.hint()}, func(out *json.Encoder) error {
		return cmp.Or(out.Encode(map[string]any{"sessions": sessions.Body.Sessions}), out.Encode(map[string]any{"history": events.Body.Events}))
	})
}

// export answers the entries, and then what comes after them.
func export(c *call, w http.ResponseWriter, o transfer.ExportOptions, after func(*json.Encoder) error) error {
	ctx := c.request.Context()
	_, wrong := queryOf(c.request)
	if err := misused(wrong); err != nil {
		return err
	}
	db, name, err := c.onlyType(ctx)
	if err != nil {
		return err
	}
	o.Type = name
	w.Header().Set("Content-Type", jsonLines)
	begun := &beginning{w: w}
	_, err = transfer.Export(ctx, db, begun, o)
	if err == nil && after != nil {
		err = after(json.NewEncoder(begun))
	}
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
