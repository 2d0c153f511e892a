package oidc

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/coffeenode/userdb/internal/sealed"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// A SignIn lets visitors sign in with other providers, and link their accounts there to their
// accounts here. It adds pages to Flows. It is safe for concurrent use; do not change the fields
// after Register.
type SignIn struct {
	Flows     *web.Flows
	Providers []Provider
	// Keys seal the cookies of sign-ins that have begun. Each key has 32 random bytes. The first
	// one seals, and all of them open. They may be those of userdb.Options.Keys. All processes of a
	// site need the same keys.
	Keys [][]byte
	// Field is the field of links, which the schema declares with "typed": false. If "", it is
	// links.
	Field string
	// Complete sets facets of an account that is created for an identity. It may be nil. A claim
	// may be wrong: use it as a suggestion.
	Complete func(c Claims, n *userdb.NewEntry)
	// Transport sends the requests to providers. If nil, it is like http.DefaultTransport.
	Transport http.RoundTripper

	ring    sealed.Ring
	remotes map[string]*remote
	now     func() time.Time // for tests
}

// maxCallbacks limits the answers of providers that one origin or account may deliver in an hour.
const maxCallbacks = 120

// Register adds the pages to mux. Call it after Flows.Register. It asks no provider for anything,
// so that the program starts without them.
func (s *SignIn) Register(mux *http.ServeMux) (err error) {
	f := s.Flows
	s.Field, s.remotes = cmp.Or(s.Field, "links"), map[string]*remote{}
	if s.now == nil {
		s.now = time.Now
	}
	if s.ring, err = sealed.New(s.Keys); err == nil && !s.ring.Any() {
		err = errors.New("none is given")
	}
	switch {
	case err != nil:
		return fmt.Errorf("oidc: Keys: %w", err)
	case f == nil || f.Paths.With == "" || f.Render == nil:
		return errors.New("oidc: Flows is not registered, or has no path for other providers")
	}
	if field := f.Users.Schema().Fields[s.Field]; field.IsTyped() {
		return fmt.Errorf(`oidc: the schema does not declare the field %s with "typed": false`, s.Field)
	}
	client := newClient(s.Transport)
	f.Providers, f.Links = nil, s.links
	for _, p := range s.Providers {
		remote, err := newRemote(p, f.Base+f.Paths.With, client, s.now)
		switch {
		case err != nil:
			return err
		case s.remotes[p.Name] != nil:
			return fmt.Errorf("oidc: two providers are called %s", p.Name)
		case slices.ContainsFunc(s.Providers, func(o Provider) bool { return o.Name != p.Name && o.Issuer == p.Issuer }):
			return fmt.Errorf("oidc: two providers have the issuer %s", p.Issuer)
		}
		s.remotes[p.Name] = remote
		f.Providers = append(f.Providers, web.Provider{Name: p.Name, Label: remote.Label, Path: f.Paths.With + "/" + p.Name})
		path := f.Paths.With + "/" + p.Name
		mux.Handle("POST "+path, web.Protect(f.Visitor(f.Page("signin", returnPath, s.begin(remote)))))
		mux.Handle("GET "+path, web.Protect(f.Visitor(f.Page("continue", s.authURL(remote), nil))))
		mux.Handle("GET "+path+"/callback", web.Protect(f.Visitor(s.callback(remote))))
	}
	if f.Paths.Links != "" {
		mux.Handle(f.Paths.Links, web.Protect(f.Require(f.Page("links", nil, s.unlink))))
	}
	return nil
}

func returnPath(r *http.Request) (any, error) { return web.ReturnPath(r), nil }

// begin returns the function that processes the form with which a visitor begins to sign in or to
// link. It leads to a page of this site, which leads to the provider: forms may lead only to this
// site (form-action of the Content Security Policy), and some browsers check redirects as well.
func (s *SignIn) begin(p *remote) func(http.ResponseWriter, *http.Request) (string, error) {
	return func(w http.ResponseWriter, r *http.Request) (string, error) {
		f, session := s.Flows, ""
		if r.PostFormValue("link") != "" {
			if session = web.Session(r.Context()).ID; session == "" {
				return f.Paths.SignIn, nil
			}
			if !verified(r) {
				return s.verifyPath(web.ReturnPath(r)), nil
			}
		}
		a := newAttempt(session, web.ReturnPath(r), s.now())
		if _, err := p.authURL(r.Context(), a); err != nil {
			return "", err
		}
		if session == "" {
			f.KeepChoice(w, r, attemptLife)
		}
		a.keep(w, r, f.Auth, s.ring, p.Name)
		return f.Paths.With + "/" + p.Name + "?attempt=" + a.State, nil
	}
}

// verified reports whether the visitor proved within ten minutes who they are. LinkIdentity checks
// that again.
func verified(r *http.Request) bool { return web.VerifiedWithin(r.Context(), 10*time.Minute) }

// verifyPath returns the path of the page on which visitors prove who they are. That page leads
// back to linksPath.
func (s *SignIn) verifyPath(from string) string {
	return s.Flows.Paths.Verify + "?" + url.Values{"return": {s.linksPath(from)}}.Encode()
}

// authURL returns the function that loads the data of the page that leads to the provider: the
// provider's URL.
func (s *SignIn) authURL(p *remote) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		a, err := findAttempt(r, s.Flows.Auth, s.ring, p.Name, r.FormValue("attempt"), s.now())
		if err != nil {
			return "", err
		}
		return p.authURL(r.Context(), a)
	}
}

// Problems for visitors. A page shows the text that a web.Catalogue has for the rule, or else the
// reason.
var (
	errDenied = &userdb.FieldError{Err: userdb.ErrInvalid, Rule: "provider", Reason: "the other provider did not sign you in"}
	errOther  = &userdb.FieldError{Err: userdb.ErrInvalid, Rule: "linked", Reason: "this is linked to another account"}
	errLast   = &userdb.FieldError{Err: userdb.ErrInvalid, Rule: "last", Reason: "you would no longer be able to sign in"}
)

// callback returns the handler of the provider's answer.
func (s *SignIn) callback(p *remote) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, page, err := s.answer(w, r, p)
		if err == nil {
			http.Redirect(w, r, to, http.StatusSeeOther)
			return
		}
		load := func(*http.Request) (any, error) { return "/", err }
		s.Flows.Page(page, load, nil).ServeHTTP(w, r)
	})
}

// answer carries out what a provider's answer permits. It returns the path to redirect to, or an
// error and the page that shows it.
func (s *SignIn) answer(w http.ResponseWriter, r *http.Request, p *remote) (to, page string, err error) {
	f, query := s.Flows, r.URL.Query()
	for _, name := range []string{"state", "code", "iss", "error"} {
		if len(query[name]) > 1 {
			return "", "gone", userdb.ErrNotFound
		}
	}
	a, err := findAttempt(r, f.Auth, s.ring, p.Name, query.Get("state"), s.now())
	if err != nil {
		return "", "gone", err
	}
	a.drop(w, r, f.Auth)
	if page = "signin"; a.Session != "" {
		page = "links"
		// An attempt to link belongs to one session. Somebody who has signed in here since did not
		// ask for it.
		if web.Session(r.Context()).ID != a.Session {
			return "", "gone", userdb.ErrNotFound
		}
	}
	if err := (web.Limit{Auth: f.Auth, Name: "oidc callbacks", Max: maxCallbacks}).Allow(r); err != nil {
		return "", page, err
	}
	claims, err := s.verify(r, p, a)
	switch refused := refusedError(""); {
	case errors.As(err, &refused):
		p.warn(r.Context(), "an answer of a provider was refused", err)
		return "", page, errDenied
	case errors.Is(err, errAway):
		p.warn(r.Context(), "a provider did not answer", err)
		return "", page, err
	case err != nil:
		return "", page, err
	}
	link := userdb.Link{Field: s.Field, Identity: claims.identity(), Label: p.Name}
	if a.Session != "" {
		if err := s.spend(r, a); err != nil {
			return "", "gone", err
		}
		to, err := s.link(r, p, a, link)
		return to, page, err
	}
	e, err := s.account(r, p, claims, link)
	if errors.Is(err, web.ErrUnlinked) {
		return "", "unlinked", err
	}
	if err == nil || errors.Is(err, userdb.ErrFactor) {
		if err := s.spend(r, a); err != nil {
			return "", "gone", err
		}
	}
	if to = a.Return; to == "/" {
		to = f.Paths.Account
	}
	to, err = f.FirstStep(w, r, e, err, to)
	if errors.Is(err, userdb.ErrLogin) || errors.Is(err, userdb.ErrConflict) || errors.Is(err, userdb.ErrNotFound) {
		err = errDenied // disabled, not allowed here, or changed meanwhile
	}
	return to, page, err
}

// spend marks an attempt that has succeeded as spent, for longer than its cookie is accepted.
func (s *SignIn) spend(r *http.Request, a attempt) error {
	return s.Flows.Users.Spend(r.Context(), a.spentHash(), attemptLife+time.Minute)
}

// verify returns the claims that an answer proves.
func (s *SignIn) verify(r *http.Request, p *remote, a attempt) (Claims, error) {
	m, err := p.metadata(r.Context())
	if err != nil {
		return Claims{}, err
	}
	query := r.URL.Query()
	issuer, code := query.Get("iss"), query.Get("code")
	switch {
	case issuer != "" && issuer != p.Issuer, issuer == "" && m.namesSelf:
		// The code may belong to another provider, so it is sent to none.
		return Claims{}, refusedError("the answer names another issuer, or none")
	case query.Get("error") != "":
		return Claims{}, refusedError(fmt.Sprintf("the provider answered %.64q", query.Get("error")))
	case code == "" || len(code) > maxCode:
		return Claims{}, refusedError("the answer has no code, or one that is too long")
	}
	return p.exchange(r.Context(), a, code)
}

const maxCode = 4 << 10

// account returns the account that has the link, or a new one. The errors are those of LoginLinked,
// and web.ErrUnlinked.
func (s *SignIn) account(r *http.Request, p *remote, c Claims, link userdb.Link) (userdb.Entry, error) {
	f := s.Flows
	e, err := f.Users.LoginLinked(r.Context(), link, f.Attempt(r))
	if !errors.Is(err, userdb.ErrNotFound) {
		return e, err
	}
	u := web.Unlinked{Link: link, Address: c.Email, Owned: p.owns(c)}
	if s.Complete != nil {
		u.Complete = func(n *userdb.NewEntry) { s.Complete(c, n) }
	}
	if e, err = f.SignUpUnlinked(r, u); errors.Is(err, web.ErrUnlinked) {
		// Another attempt of the same visitor may have created the account meanwhile.
		e, err = f.Users.LoginLinked(r.Context(), link, f.Attempt(r))
		if errors.Is(err, userdb.ErrNotFound) {
			err = web.ErrUnlinked
		}
	}
	return e, err
}

// link links an identity to the account of the visitor.
func (s *SignIn) link(r *http.Request, p *remote, a attempt, link userdb.Link) (string, error) {
	f := s.Flows
	err := f.ChangeLinks(r, web.MailLinked, p.Label, func() error {
		_, err := f.Link(r, link)
		return err
	})
	switch {
	case errors.Is(err, userdb.ErrDuplicate):
		return "", errOther
	case errors.Is(err, userdb.ErrNotVerified):
		return s.verifyPath(a.Return), nil
	}
	return s.linksPath(a.Return) + "?done=linked", err
}

// links returns the linked accounts of an entry.
func (s *SignIn) links(e userdb.Entry) (all []web.LinkedIdentity) {
	for _, v := range e.TextValues(s.Field) {
		l := web.LinkedIdentity{Identity: v.Text, Label: cmp.Or(v.Label, "Another provider")}
		if p := s.remotes[v.Label]; p != nil {
			l.Label = p.Label
		}
		all = append(all, l)
	}
	return all
}

// linksPath returns the page that follows a change of links: the page for security if the visitor
// came from there, and the page of linked accounts otherwise.
func (s *SignIn) linksPath(from string) string {
	if from != "" && from == s.Flows.Paths.Security {
		return from
	}
	return s.Flows.Paths.Links
}

// unlink removes a link from the account of the visitor, unless it is the last way to sign in.
func (s *SignIn) unlink(w http.ResponseWriter, r *http.Request) (string, error) {
	f, identity := s.Flows, r.PostFormValue("identity")
	o, label := userdb.UnlinkOptions{}, ""
	for name := range s.remotes {
		o.Labels = append(o.Labels, name)
	}
	for _, l := range s.links(web.Entry(r.Context())) {
		if l.Identity == identity {
			label = l.Label
		}
	}
	err := f.ChangeLinks(r, web.MailUnlinked, label, func() error {
		_, err := f.Unlink(w, r, userdb.Link{Field: s.Field, Identity: identity}, o)
		return err
	})
	refused, is := errors.AsType[*userdb.FieldError](err)
	switch {
	case is && refused.Rule == errLast.Rule:
		err = errLast
	case errors.Is(err, userdb.ErrNotVerified):
		return s.verifyPath(web.ReturnPath(r)), nil
	}
	return s.linksPath(web.ReturnPath(r)) + "?done=unlinked", err
}
