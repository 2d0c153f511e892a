package serve

import (
	"context"
	"net/http"

	"github.com/coffeenode/userdb/serve/console"
	"github.com/coffeenode/userdb/userdb"
)

// consolePath is the path of the console, the pages for operators.
const consolePath = "/console"

func (s *Service) openConsole() (err error) {
	path := s.options.Namespace.Path()
	s.console, err = console.New(s.db, console.Options{
		View:      func(ctx context.Context) (*userdb.DB, error) { return s.viewOf(ctx, path, true) },
		Namespace: path, Proxies: s.options.Proxies, ResetLink: s.options.ResetLink, Passkeys: s.options.OperatorPasskeys,
		Admit:     s.budgets.admit,
		OnFailure: func(r *http.Request, err error) { infoOf(r.Context()).err = err },
		OnRequest: func(r *http.Request, operator, route string) {
			info := infoOf(r.Context())
			info.operator, info.route = operator, route
		},
	})
	return err
}

// serveConsole serves the console. The log receives the operator and the route, but nothing that
// the operator searched for.
func (s *Service) serveConsole(w http.ResponseWriter, r *http.Request) {
	infoOf(r.Context()).operation = "console"
	s.console.ServeHTTP(w, r)
}
