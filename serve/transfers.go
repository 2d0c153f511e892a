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
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/serve/scim"
	"github.com/coffeenode/userdb/userdb"
)

const jsonLines = "application/x-ndjson"

// registerTransfers registers the routes whose bodies stream. huma reads bodies whole, so it only
// documents these routes.
func (s *Service) registerTransfers(mux *http.ServeMux) {
	adminOnly := []string{admin.ScopeAdmin}
	s.handleStream(mux, route{id: "importEntries", method: "POST", path: typePrefix + "/import", scopes: adminOnly, slots: importSlots, summary: "Import entries from JSON lines"}, importEntries,
		&huma.Param{Name: "type", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}},
		&huma.Param{Name: "on_duplicate", In: "query", Schema: &huma.Schema{Type: "string", Enum: []any{"fail", "skip", "update"}}},
		&huma.Param{Name: "dry_run", In: "query", Description: "check all lines, but write nothing", Schema: &huma.Schema{Type: "boolean"}})
	s.handleStream(mux, route{id: "exportEntries", method: "GET", path: typePrefix + "/export", scopes: adminOnly, slots: exportSlots, summary: "Export all entries as JSON lines, without password hashes"}, exportEntries,
		&huma.Param{Name: "type", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}})
	s.handleStream(mux, route{id: "exportEntry", method: "GET", path: typePrefix + "/entries/{uid}/export", scopes: adminOnly, slots: exportSlots, summary: "Export everything stored about one person as JSON lines: the entry, {\"sessions\":[]} and {\"history\":[]}"}, exportEntry,
		&huma.Param{Name: "type", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}},
		&huma.Param{Name: "uid", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}})
}

// handleStream registers a route whose handler reads and writes the bodies itself, for as long as
// that takes.
func (s *Service) handleStream(mux *http.ServeMux, r route, do func(c *call, w http.ResponseWriter) error, params ...*huma.Param) {
	r.streams = true
	op := s.newOperation(r)
	op.Parameters = params
	lines := map[string]*huma.MediaType{jsonLines: {Schema: &huma.Schema{Type: huma.TypeString}}}
	if r.method == "POST" {
		op.RequestBody = &huma.RequestBody{Required: true, Content: lines}
	}
	op.Responses["200"] = &huma.Response{Description: "JSON lines.", Content: lines}
	s.api.OpenAPI().AddOperation(&op)
	mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, req *http.Request) {
		body := &stream{ReadCloser: req.Body, ResponseWriter: w, control: http.NewResponseController(w), ctx: drainContextsOf(req.Context()).store}
		c, leave, err := s.beginCall(w, req, r)
		if err == nil {
			defer leave()
			defer c.watchKey()()
			body.recheck = c.recheckKey
			defer body.start(c.valid)()
			c.request.Body = body
			err = do(c, body)
			s.forgetView(c.key.Namespace, err)
			body.recheck = nil
		}
		if err != nil {
			infoOf(req.Context()).err = err
			writeProblem(body, req, problemOf(err))
		}
	})
}

// stallTimeout is how long a stream may go without progress.
const stallTimeout = time.Minute

// A stream is the body of a request and the response to it. Both may take any length of time as
// long as they make progress.
type stream struct {
	io.ReadCloser
	http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context // when it ends, nothing more is read
	valid   context.Context // ends, with the reason as its cause, when the key is no longer valid
	recheck func() error    // checks that the key is still valid; nil if there is no need
}

// recheckKey returns an error if the key of a request has been revoked or has expired since the
// request began. It returns nil if the store does not answer soon.
func (c *call) recheckKey() error {
	ctx, cancel := context.WithTimeout(c.request.Context(), keyCheckInterval)
	defer cancel()
	return c.service.keys.recheck(ctx, c.request.Header.Get("Authorization"))
}

// watchKey sets c.valid and checks the key regularly until end is called. A stream may work for
// minutes on what it has read, without reading or writing anything.
func (c *call) watchKey() (end func()) {
	valid, cancel := context.WithCancelCause(context.WithoutCancel(c.request.Context()))
	c.valid = valid
	go func() {
		check := time.NewTicker(keyCheckInterval)
		defer check.Stop()
		for {
			select {
			case <-valid.Done():
				return
			case <-check.C:
			}
			if err := c.service.keys.recheck(valid, c.request.Header.Get("Authorization")); err != nil {
				cancel(err)
			}
		}
	}()
	return func() { cancel(nil) }
}

// checkKey returns an error if the key of the request is no longer valid.
func (s *stream) checkKey() error {
	if s.recheck == nil {
		return nil
	}
	if err := context.Cause(s.valid); err != nil { // recheck returns nil while the store is slow
		return err
	}
	return s.recheck()
}

// start lets the response take any length of time. It interrupts a pending read when the service
// shuts down or the key is no longer valid.
func (s *stream) start(valid context.Context) (end func()) {
	s.valid = valid
	// Write sets a deadline of its own, and returns the error if that fails.
	_ = s.control.SetWriteDeadline(time.Time{})
	interrupt := func() { _ = s.control.SetReadDeadline(time.Now()) }
	closed, revoked := context.AfterFunc(s.ctx, interrupt), context.AfterFunc(valid, interrupt)
	return func() { closed(); revoked() }
}

// Unwrap returns the underlying writer. [http.ResponseController] calls it.
func (s *stream) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *stream) Read(b []byte) (int, error) {
	if err := s.control.SetReadDeadline(time.Now().Add(stallTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	if err := cmp.Or(s.ctx.Err(), s.checkKey()); err != nil {
		// Before it responds, net/http would wait for more of the body.
		_ = s.control.SetReadDeadline(time.Now())
		return 0, err
	}
	n, err := s.ReadCloser.Read(b)
	if refused := s.checkKey(); refused != nil { // the key became invalid while Read waited
		return 0, refused
	}
	return n, err
}

func (s *stream) Write(b []byte) (int, error) {
	if err := s.checkKey(); err != nil {
		return 0, err
	}
	if err := s.control.SetWriteDeadline(time.Now().Add(stallTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return s.ResponseWriter.Write(b)
}

// viewOfType returns a view that has only the type of the path, so that lines of other types are
// refused.
func (c *call) viewOfType(ctx context.Context) (*userdb.DB, string, error) {
	name := c.request.PathValue("type")
	if _, err := c.findType(ctx, name); err != nil {
		return nil, "", err
	}
	db, err := c.db.With(schema.Schema{Types: map[string]schema.Type{name: c.db.Schema().Types[name]}})
	return db, name, err
}

// parseQuery returns the query of a request, and a problem for each parameter that is not in names.
func parseQuery(r *http.Request, names ...string) (values url.Values, all []FieldProblem) {
	values = r.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(names, name) {
			all = append(all, paramProblem(name, "there is no such parameter"))
		}
	}
	return values, all
}

// A refusedLine says why an import refused a line. It is itself a line of the response.
type refusedLine struct {
	Line   int64  `json:"line"`
	Reason string `json:"reason"`
}

// An importReport is the last line of the response to an import.
type importReport struct {
	Report transfer.Report `json:"report"`
	// Omitted counts the refused lines that the response leaves out.
	Omitted int64 `json:"omitted,omitempty"`
}

// maxRefused is how many bytes of refused lines an import keeps in memory for its response, which
// begins only when the body has ended. That is about 10,000 lines.
const maxRefused = 1 << 20

// refusedLines holds the first refused lines of an import, and counts the rest.
type refusedLines struct {
	text    bytes.Buffer
	omitted int64
}

func (r *refusedLines) add(line int64, reason string) {
	text, _ := json.Marshal(refusedLine{line, reason}) // a number and a string cannot fail
	if r.omitted > 0 || r.text.Len()+len(text) >= maxRefused {
		r.omitted++
		return
	}
	r.text.Write(append(text, '\n'))
}

var errShuttingDown = problem(userdb.CodeUnavailable, "the service is shutting down").withRetryAfter(1)

// importEntries reads entries from the body. It responds with the first refused lines and then with
// a report.
func importEntries(c *call, w http.ResponseWriter) error {
	// What was read is imported even if the client disconnects, unless the key becomes invalid or a
	// service that shuts down has waited for drainTimeout.
	ctx, cancel := context.WithCancelCause(c.valid)
	defer cancel(nil)
	defer context.AfterFunc(drainContextsOf(ctx).stream, func() { cancel(errShuttingDown) })()
	db, name, err := c.viewOfType(ctx)
	if err != nil {
		return err
	}
	q, wrong := parseQuery(c.request, "on_duplicate", "dry_run")
	if !slices.Contains([]string{"", "true", "false"}, q.Get("dry_run")) {
		wrong = append(wrong, paramProblem("dry_run", "want true or false"))
	}
	if err := queryProblem(wrong); err != nil {
		return err
	}
	o := transfer.ImportOptions{Type: name, OnDuplicate: q.Get("on_duplicate"), DryRun: q.Get("dry_run") == "true", HidePasswords: true}
	var refused refusedLines
	o.Refused = refused.add
	report, err := transfer.Import(ctx, db, c.request.Body, o)
	if err != nil {
		return importError(ctx, err, report, o.DryRun)
	}
	w.Header().Set("Content-Type", jsonLines)
	if _, err := refused.text.WriteTo(w); err != nil {
		return nil //nolint:nilerr // the client is gone
	}
	_ = json.NewEncoder(w).Encode(importReport{report, refused.omitted})
	return nil
}

// importError returns the error for an import that did not reach the end of its body.
func importError(ctx context.Context, err error, report transfer.Report, dryRun bool) error {
	p := problemOf(err)
	if report.Read > 0 {
		p = problemOf(fmt.Errorf("%w: %w", scim.ErrPartial, err))
	}
	cut, unread := errors.AsType[*transfer.ReadError](err)
	_, refused := errors.AsType[*Problem](err)
	switch {
	case refused: // the key is no longer valid, or the service is shutting down
	case unread && drainContextsOf(ctx).store.Err() != nil:
		p = errShuttingDown
	case unread && errors.Is(cut, transfer.ErrInput):
		p = usageProblem("%s", strings.ReplaceAll(cut.Err.Error(), "\n", "; "))
	case unread:
		p = usageProblem("the body is incomplete")
	case report.Read == 0:
		return err
	}
	answer := *p
	if unread {
		answer.Detail += fmt.Sprintf("; line %d and what follows it cannot be read", cut.Line)
	}
	were := "were"
	if dryRun {
		were = "would be"
	}
	answer.Detail += fmt.Sprintf("; of the lines before, %d %s created, %d updated, %d skipped and %d refused", report.Created, were, report.Updated, report.Skipped, report.Refused)
	return fmt.Errorf("%w: %w", &answer, err) // the log needs the cause
}

func exportEntries(c *call, w http.ResponseWriter) error {
	return export(c, w, transfer.ExportOptions{}, nil)
}

// exportEntry responds with an entry in the format that an import reads. Further lines hold the
// sessions and the history of the entry.
func exportEntry(c *call, w http.ResponseWriter) error {
	ctx, at := c.request.Context(), &EntryPath{TypePath{c.request.PathValue("type")}, c.request.PathValue("uid")}
	t, err := c.findType(ctx, at.Type)
	if err != nil {
		return err
	}
	sessions, err := listSessions(ctx, c, t, at)
	if err != nil {
		return err
	}
	events, err := getHistory(ctx, c, t, at)
	if err != nil {
		return err
	}
	return export(c, w, transfer.ExportOptions{Only: at.hint()}, func(out *json.Encoder) error {
		return cmp.Or(out.Encode(map[string]any{"sessions": sessions.Body.Sessions}), out.Encode(map[string]any{"history": events.Body.Events}))
	})
}

// export responds with the entries that o selects. If after is not nil, it then writes more lines.
func export(c *call, w http.ResponseWriter, o transfer.ExportOptions, after func(*json.Encoder) error) error {
	ctx := c.request.Context()
	_, wrong := parseQuery(c.request)
	if err := queryProblem(wrong); err != nil {
		return err
	}
	db, name, err := c.viewOfType(ctx)
	if err != nil {
		return err
	}
	o.Type = name
	w.Header().Set("Content-Type", jsonLines)
	out := &trackingWriter{w: w}
	_, err = transfer.Export(ctx, db, out, o)
	if err == nil && after != nil {
		err = after(json.NewEncoder(out))
	}
	switch {
	case err == nil:
		return nil
	case out.written: // a truncated response must not look complete
		infoOf(ctx).err = err
		panic(http.ErrAbortHandler)
	}
	return asNotFound(err)
}

// A trackingWriter is a writer that records whether anything was written.
type trackingWriter struct {
	w       io.Writer
	written bool
}

func (b *trackingWriter) Write(p []byte) (int, error) {
	b.written = true
	return b.w.Write(p)
}
