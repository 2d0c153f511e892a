package console

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// A keysPage holds the API keys, and the secret of a new one, which is shown once.
type keysPage struct {
	Keys   []admin.Key
	Scopes []scope
	Types  []string
	Name   string // of the key that was just created
	Secret string
	Now    time.Time
}

type scope struct{ Name, Text string }

// scopes lists what a key may do, in words.
var scopes = []scope{
	{admin.ScopeRead, "read accounts"},
	{admin.ScopeWrite, "change accounts, including passwords, disabling and tags"},
	{admin.ScopeLogin, "sign people in: logins, sessions, links and invitations"},
	{admin.ScopeSCIM, "manage accounts for a directory (SCIM)"},
	{admin.ScopeAdmin, "everything, including import and export"},
}

func (c *Console) keys(w http.ResponseWriter, r *http.Request) {
	c.showKeys(w, r, func(*keysPage, *page) {})
}

func (c *Console) showKeys(w http.ResponseWriter, r *http.Request, edit func(*keysPage, *page)) {
	keys, err := admin.OpenKeys(c.store)
	data := keysPage{Scopes: scopes, Now: time.Now()}
	if err == nil {
		data.Keys, err = keys.In(operatorNamespace(r)).All(r.Context())
	}
	if err != nil {
		c.fail(w, r, err)
		return
	}
	if db, err := c.view(r.Context()); err == nil {
		data.Types = db.Schema().Names()
	}
	p := page{Name: "keys", Title: "API keys", Done: doneMessages[r.URL.Query().Get("done")]}
	edit(&data, &p)
	p.Data = data
	c.show(w, r, statusOf(p.Problems), p)
}

// keyLives holds how long a new key is valid, by the choice in the form. With "", it is valid until
// it is revoked.
var keyLives = map[string]time.Duration{"": 0, "30d": 30 * 24 * time.Hour, "90d": 90 * 24 * time.Hour, "365d": 365 * 24 * time.Hour}

// errKeyLife means that a form has none of keyLives. A key that never ends must not take the place
// of one that should.
var errKeyLife = fmt.Errorf("%w: the form has no such lifetime", admin.ErrKey)

// createKey creates a key. The response shows its secret, which is never shown again.
func (c *Console) createKey(w http.ResponseWriter, r *http.Request) {
	k := admin.Key{Name: r.PostFormValue("name"), Scopes: r.PostForm["scope"], Types: r.PostForm["type"]}
	life, known := keyLives[r.PostFormValue("expires")]
	if life > 0 {
		k.Expires = time.Now().Add(life).Truncate(time.Second)
	}
	db, err := c.view(r.Context())
	if err == nil && !known {
		err = errKeyLife
	}
	if err == nil {
		k.Namespace = c.options.Namespace
		for _, name := range k.Types {
			if !slices.Contains(db.Schema().Names(), name) {
				err = admin.ErrKey
			}
		}
	}
	secret := ""
	if err == nil {
		var keys *admin.Keys
		if keys, err = admin.OpenKeys(c.store); err == nil {
			secret, err = keys.Create(r.Context(), k)
		}
	}
	if err == nil {
		c.recordOwnAction(r, userdb.EventKeyCreate, k.Name)
		c.showKeys(w, r, func(data *keysPage, p *page) { data.Name, data.Secret, p.Form = k.Name, secret, map[string][]string{} })
		return
	}
	problems := web.Problems(err)
	ofName := web.Problem{Code: userdb.CodeInvalid, Field: "name", Rule: "name", Text: "A name consists of up to 64 letters, digits, dots, hyphens and underscores."}
	switch {
	case errors.Is(err, admin.ErrOperatorDisabled):
		c.fail(w, r, err)
		return
	case errors.Is(err, admin.ErrTooManyKeys):
		problems = []web.Problem{{Code: userdb.CodeOf(err), Text: fmt.Sprintf("This namespace has %s API keys, the most it can have. Revoke some first.", formatNumber(admin.MaxKeys))}}
	case errors.Is(err, errKeyLife):
		problems = []web.Problem{{Code: userdb.CodeOf(err), Text: "Choose how long the key is valid."}}
	case errors.Is(err, admin.ErrKey):
		problems = []web.Problem{{Code: userdb.CodeOf(err), Field: "scope", Rule: "scope", Text: "Choose at least one."}}
		if k.Name == "" {
			problems = append(problems, ofName)
		}
	case isAny(err, userdb.ErrDuplicate):
		ofName.Code, ofName.Text = userdb.CodeDuplicate, "There is a key with this name. Its secret is not shown again: if you do not have it, revoke that key and create another one."
		problems = []web.Problem{ofName}
	case isAny(err, userdb.ErrInvalid):
		problems = []web.Problem{ofName}
	case isServiceProblem(problems):
		c.fail(w, r, err)
		return
	}
	c.showKeys(w, r, func(_ *keysPage, p *page) { p.Problems = problems })
}

func (c *Console) revokeKey(w http.ResponseWriter, r *http.Request) {
	keys, err := admin.OpenKeys(c.store)
	if err == nil {
		err = keys.In(operatorNamespace(r)).Revoke(r.Context(), r.PostFormValue("name"))
	}
	if errors.Is(err, userdb.ErrNotFound) { // after a double click, the first form has revoked it
		c.showKeys(w, r, func(_ *keysPage, p *page) {
			p.Problems = []web.Problem{{Code: userdb.CodeNotFound, Text: "There is no such key. It may have been revoked just now."}}
			p.Form = map[string][]string{} // the name is not one for a new key
		})
		return
	}
	if err != nil {
		c.fail(w, r, err)
		return
	}
	c.recordOwnAction(r, userdb.EventKeyRevoke, r.PostFormValue("name"))
	http.Redirect(w, r, "/console/keys?done=key", http.StatusSeeOther)
}
