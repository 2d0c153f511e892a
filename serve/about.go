package serve

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/serve/internal/figures"
	"github.com/coffeenode/userdb/userdb"
)

// Paths that need no key and never use the store.
const (
	healthPath   = "/healthz"
	documentPath = "/openapi.json"
	docsPath     = "/docs"
)

// registerAbout registers the routes that describe the service itself.
func (s *Service) registerAbout(mux *http.ServeMux) {
	mux.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, r *http.Request) {
		infoOf(r.Context()).operation = "health"
		writeText(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		infoOf(r.Context()).operation = "ready"
		if err := s.ready.check(r.Context()); err != nil {
			infoOf(r.Context()).err = err
			writeProblem(w, r, problemOf(err))
			return
		}
		writeText(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET "+docsPath, s.serveDocs)
	handle(s, route{id: "schema", method: "GET", path: "/v1/schema", scopes: []string{admin.ScopeRead}, summary: "Get the schema in force"},
		func(ctx context.Context, c *call, _ *empty) (*schemaOutput, error) {
			err := c.refresh(ctx)
			return &schemaOutput{c.visibleSchema()}, err
		})
	handle(s, route{id: "status", method: "GET", path: "/v1/status", scopes: []string{admin.ScopeAdmin}, summary: "Get the numbers of records in the store and the state of its servers"}, getStatus)
}

// statusMaxAge is how long a status is reused, because gathering one scans every record.
const statusMaxAge = 5 * time.Second

func getStatus(ctx context.Context, c *call, _ *empty) (*statusOutput, error) {
	figure, err := figures.GatherFor(ctx, &c.service.figures, c.key.Name, "status "+c.key.Namespace, statusMaxAge,
		func(ctx context.Context) (inspect.Status, error) { return inspect.StatusOf(ctx, c.db, nil) })
	if figure.StartedAt.IsZero() || err != nil && !errors.Is(err, figures.ErrBusy) {
		return nil, figureError(err)
	}
	status := figure.Value
	if len(c.key.Types) > 0 { // leave out the servers, which also hold other types
		status = inspect.Status{Warnings: []inspect.Warning{}, Types: []inspect.TypeStatus{}}
		for _, t := range figure.Value.Types {
			if c.key.CanSee(t.Type) {
				status.Types = append(status.Types, t)
			}
		}
	}
	return &statusOutput{status}, nil
}

type (
	schemaOutput struct{ Body schema.Schema }
	statusOutput struct{ Body inspect.Status }
)

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the client may have gone
}

// A readiness checks whether the store accepts writes. It does so at most once a second, because
// /readyz needs no key.
type readiness struct {
	db  *userdb.DB
	sem chan struct{} // holds an element while a request checks

	checkedAt time.Time
	err       error
}

// check returns the result of the last check, or of a new check if the last one is over a second
// old.
func (r *readiness) check(ctx context.Context) error {
	select {
	case r.sem <- struct{}{}:
		defer func() { <-r.sem }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", userdb.ErrUnavailable, ctx.Err())
	}
	if time.Since(r.checkedAt) < time.Second {
		return r.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	r.err = admin.CheckWritable(ctx, r.db)
	r.checkedAt = time.Now()
	return r.err
}

// serveDocs writes an HTML page that lists all operations.
func (s *Service) serveDocs(w http.ResponseWriter, r *http.Request) {
	infoOf(r.Context()).operation = "docs"
	type operation struct{ ID, Method, Path, Summary, Description string }
	var all []operation
	for path, item := range s.api.OpenAPI().Paths {
		for method, op := range operationsByMethod(item) {
			all = append(all, operation{op.OperationID, method, path, op.Summary, op.Description})
		}
	}
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.Path+a.Method, b.Path+b.Method) })
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	_ = docsPage.Execute(w, all) // the client may have gone
}

var docsPage = template.Must(template.New("docs").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>userdb over HTTP</title>
<style>
:root { color-scheme: light dark }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code { overflow-wrap: anywhere }
dt { margin-top: 1rem } dd { margin-left: 0 }
</style>
<main>
<h1>userdb over HTTP</h1>
<p>Requests carry an API key: <code>Authorization: Bearer udb_…</code>, made by <code>userdb apikey create</code>. The
complete description, for programs, is <a href="/openapi.json">/openapi.json</a>. Errors are <code>application/problem+json</code>.</p>
<dl>{{range .}}
<dt id="{{.ID}}"><code>{{.Method}} {{.Path}}</code></dt>
<dd>{{.Summary}}. {{.Description}} <small>{{.ID}}</small></dd>{{end}}
</dl>
</main>
</html>
`))
