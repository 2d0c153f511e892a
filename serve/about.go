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

	"github.com/coffeenode/userdb/internal/own"
	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/internal/figures"
	"github.com/coffeenode/userdb/userdb"
)

// about registers the routes that describe the service itself.
func (s *Service) about(mux *http.ServeMux) {
	mux.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, r *http.Request) {
		infoOf(r.Context()).operation = "health"
		plain(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		infoOf(r.Context()).operation = "ready"
		if err := s.ready.ask(r.Context()); err != nil {
			infoOf(r.Context()).err = err
			writeProblem(w, r, problemOf(err))
			return
		}
		plain(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET "+docsPath, s.docs)
	handle(s, route{id: "schema", method: "GET", path: "/v1/schema", scopes: []string{own.ScopeRead}, summary: "Get the schema in force"},
		func(ctx context.Context, c *call, _ *nothing) (*schemaOutput, error) {
			err := c.refresh(ctx)
			return &schemaOutput{c.only()}, err
		})
	handle(s, route{id: "status", method: "GET", path: "/v1/status", scopes: []string{own.ScopeAdmin}, summary: "Get the contents of the store and the state of its servers"}, status)
}

// statusAge is how long a status is reused, because gathering one scans every record.
const statusAge = 5 * time.Second

func status(ctx context.Context, c *call, _ *nothing) (*statusOutput, error) {
	known, err := figures.Gather(ctx, &c.service.figures, "status "+c.key.Namespace, statusAge,
		func(ctx context.Context) (inspect.Status, error) { return inspect.StatusOf(ctx, c.db, nil) })
	if known.Begun.IsZero() || err != nil && !errors.Is(err, figures.ErrBusy) {
		return nil, gathering(err)
	}
	all := known.Value
	if len(c.key.Types) > 0 { // leave out the servers, which also hold other types
		all = inspect.Status{Warnings: []inspect.Warning{}, Types: []inspect.TypeStatus{}}
		for _, t := range known.Value.Types {
			if c.key.Sees(t.Type) {
				all.Types = append(all.Types, t)
			}
		}
	}
	return &statusOutput{all}, nil
}

type (
	schemaOutput struct{ Body schema.Schema }
	statusOutput struct{ Body inspect.Status }
)

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the client may have gone
}

// A readiness checks whether the store accepts writes. It does so at most once a second, because
// the route needs no key.
type readiness struct {
	db     *userdb.DB
	asking chan struct{} // holds an element while a request checks

	asked time.Time
	err   error
}

// ask returns the result of the last check, or of a new one if that is over a second old.
func (r *readiness) ask(ctx context.Context) error {
	select {
	case r.asking <- struct{}{}:
		defer func() { <-r.asking }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", userdb.ErrUnavailable, ctx.Err())
	}
	if time.Since(r.asked) < time.Second {
		return r.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	r.err = own.Ready(ctx, r.db)
	r.asked = time.Now()
	return r.err
}

// docs writes an HTML page that lists all operations.
func (s *Service) docs(w http.ResponseWriter, r *http.Request) {
	infoOf(r.Context()).operation = "docs"
	type operation struct{ ID, Method, Path, Summary, Description string }
	var all []operation
	for path, item := range s.api.OpenAPI().Paths {
		for method, op := range operationsOf(item) {
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
