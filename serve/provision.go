package serve

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/serve/scim"
	"github.com/coffeenode/userdb/userdb"
)

// PrepareSCIM prepares the store for directories if [Options] enable SCIM: it adds to the stored
// schema what SCIM needs.
func (s *Service) PrepareSCIM(ctx context.Context) error {
	if s.scim == nil {
		return nil
	}
	if _, has := s.db.Schema().Types[scim.UserType]; !has {
		return nil // other types are prepared at the first request with a key for them
	}
	return s.scim.Prepare(ctx, s.db, s.options.Namespace.Path(), scim.UserType)
}

// serveSCIM serves requests from directories.
func (s *Service) serveSCIM(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") == "" && scim.IsDiscovery(r) {
		if err := s.describeSCIM(w, r); err != nil {
			infoOf(r.Context()).err = err
			writeProblem(w, r, problemOf(err))
		}
		return
	}
	c, leave, err := s.beginCall(w, r, route{id: "scim", scopes: []string{admin.ScopeSCIM}})
	if err == nil {
		defer leave()
		err = s.dispatchSCIM(c, w, c.request)
	}
	if err != nil {
		infoOf(r.Context()).err = err
		writeProblem(w, r, problemOf(err))
	}
}

// describeSCIM sends the descriptions of the SCIM service to clients without a key.
func (s *Service) describeSCIM(w http.ResponseWriter, r *http.Request) error {
	infoOf(r.Context()).operation = "scim"
	leave, err := s.budgets.discovery.take(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	// A client that reads slowly must not keep the slot. If the connection cannot set deadlines,
	// those of the server apply.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(slotTimeout))
	return s.scim.Describe(w, r, s.db.Schema().Types[scim.UserType])
}

// dispatchSCIM serves a SCIM request in the namespace of its key. The users are of type user,
// unless the key is for another type.
func (s *Service) dispatchSCIM(c *call, w http.ResponseWriter, r *http.Request) error {
	typ := scim.UserType
	if len(c.key.Types) == 1 {
		typ = c.key.Types[0]
	}
	if !c.key.CanSee(typ) {
		return problem(userdb.CodeScope, "the key is for several types, but not for "+scim.UserType)
	}
	ns, err := recordkey.ParseNamespace(c.key.Namespace)
	if err != nil {
		return err
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
	err = s.scim.Serve(w, r, c.db, ns.Path(), typ, c.response)
	s.forgetView(c.key.Namespace, err)
	return err
}

// isSCIM reports whether a path belongs to SCIM, which has a format of its own for errors.
func isSCIM(path string) bool { return path == scim.Prefix || strings.HasPrefix(path, scim.Prefix+"/") }

// writeSCIM writes a problem in the error format of SCIM.
func (p *Problem) writeSCIM(w http.ResponseWriter) {
	e := scim.Error{Status: p.Status, Type: p.scimType, Detail: p.Detail}
	e.Write(w)
}
