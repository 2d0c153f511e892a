package serve_test

import (
	"encoding/base32"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/totp"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
)

// factorSchema returns a schema under which entries may enrol second factors.
func factorSchema() schema.Schema {
	sc := testSchema()
	user := sc.Types["user"]
	user.Factors = true
	sc.Types["user"] = user
	return sc
}

const factorPassword = "correct horse battery"

// TestFactors drives the second step of a login over HTTP: an app is enrolled, used for a login,
// and removed.
func TestFactors(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		s = s.Under(t, factorSchema())
		now, mu := time.Now(), sync.Mutex{}
		clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
		pass := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
		s.Edit(t, func(c *view.Config) { c.Clock = clock })
		all := newClient(t, s, serve.Options{})
		c := all.withKey(all.makeKey(admin.Key{Name: "web", Scopes: []string{admin.ScopeLogin, admin.ScopeRead}}))
		const logIn, second = "/v1/types/user/login", "/v1/types/user/login/factor"
		first := fmt.Sprintf(`{"identifier":"ada","password":%q,"session":{}}`, factorPassword)
		path := all.create(fmt.Sprintf(`{"uid":"ada","facets":{"name":"Ada"},"password":%q}`, factorPassword))
		other := all.create(fmt.Sprintf(`{"uid":"bob","facets":{"name":"Bob"},"password":%q}`, factorPassword))
		factors := path + "/factors"
		c.equal("factors at first", fmt.Sprint(c.do("200", "GET", factors, "").value("factors")), "[]")
		r := c.do("200", "POST", logIn, first)
		c.equal("level", fmt.Sprint(r.value("session.level")), "1")
		session := r.str("session.secret")

		in := func(format string) string { return fmt.Sprintf(format, session) }
		c.do("401 login", "POST", other+"/factors", in(`{"kind":"totp","session":%q}`))
		c.do("401 login", "POST", factors, `{"kind":"totp","session":"x"}`)
		r = c.do("201", "POST", factors, in(`{"kind":"totp","name":"my phone","issuer":"Example","session":%q}`))
		id := r.str("id")
		secret, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(r.str("secret"))
		must(t, err)
		if !strings.HasPrefix(r.str("uri"), "otpauth://totp/Example:ada?secret="+r.str("secret")) {
			t.Errorf("the URI is %q, want one for Example:ada with the secret", r.str("uri"))
		}
		code := func() string { return totp.Code(secret, totp.Step(clock())) }
		next := func() string { pass(30 * time.Second); return code() }
		confirm := factors + "/" + id + "/confirm"
		wantDetail := func(r reply, want string) { t.Helper(); c.equal("detail", r.str("detail"), want) }
		const wrongProof = "the code or the answer of the passkey is wrong or late, or was used before"
		wantDetail(c.do("401 login", "POST", confirm, in(`{"code":"12345","session":%q}`)), wrongProof)
		r = c.do("200", "POST", confirm, fmt.Sprintf(`{"code":%q,"session":%q,"agent":"b"}`, code(), session))
		codes := r.value("recovery_codes").([]any)
		c.equal("new session", fmt.Sprint(len(codes), r.value("session.level"), r.str("session.agent")), "10 2b")
		c.equal("old session", c.do("200", "POST", "/v1/session", in(`{"secret":%q}`)).text, "{\"active\":false}\n")
		session = r.str("session.secret")
		listed := c.do("200", "GET", factors, "").value("factors").([]any)
		app, set := listed[0].(map[string]any), listed[1].(map[string]any)
		c.equal("factors", fmt.Sprint(app["kind"], app["name"], app["unused"], set["kind"], set["unused"]), "totpmy phone<nil>recovery10")

		refused := c.do("401 factor", "POST", logIn, first)
		c.equal("methods", fmt.Sprint(refused.value("methods")), "[recovery totp]")
		if strings.Contains(c.logs.String(), refused.str("ticket")) {
			t.Error("the log has a ticket")
		}
		use := func(ticket, proof string) string { return fmt.Sprintf(`{"ticket":%q,%s,"session":{}}`, ticket, proof) }
		c.do("400 usage", "POST", second, use(refused.str("ticket"), `"totp":"1","recovery_code":"1"`))
		wantDetail(c.do("401 login", "POST", second, use(refused.str("ticket"), `"totp":"1"`)), wrongProof)
		wantDetail(c.do("401 login", "POST", second, use("x", `"totp":"1"`)), "the ticket has expired, was used, or had too many attempts: log in again")
		r = c.do("200", "POST", second, use(refused.str("ticket"), fmt.Sprintf(`"totp":%q`, next())))
		c.equal("after two steps", fmt.Sprint(r.str("entry.uid"), r.value("session.level")), "ada2")
		c.do("401 login", "POST", second, use(refused.str("ticket"), fmt.Sprintf(`"totp":%q`, next())))
		ticket := c.do("401 factor", "POST", logIn, first).str("ticket")
		c.do("200", "POST", second, use(ticket, fmt.Sprintf(`"recovery_code":%q`, codes[0])))
		c.do("401 login", "POST", second, use(c.do("401 factor", "POST", logIn, first).str("ticket"), fmt.Sprintf(`"recovery_code":%q`, codes[0])))

		for _, session := range []string{"", `,"session":{}`} {
			token := c.do("200", "POST", "/v1/types/user/tokens", `{"purpose":"join","uid":"ada","value":"team 7"}`).str("secret")
			r = c.do("401 factor", "POST", "/v1/tokens/redeem", fmt.Sprintf(`{"purpose":"join","secret":%q%s}`, token, session))
			c.equal("value of a token that was redeemed", r.str("value"), "team 7")
			c.do("404 not_found", "POST", "/v1/tokens/redeem", fmt.Sprintf(`{"purpose":"join","secret":%q}`, token))
		}

		c.do("409 conflict", "POST", path+"/sessions", `{}`)
		c.do("409 conflict", "POST", path+"/sessions", `{"level":1}`)
		c.equal("level of a session that the caller vouches for", fmt.Sprint(c.do("201", "POST", path+"/sessions", `{"level":2}`).value("session.level")), "2")
		c.do("400 usage", "POST", path+"/sessions", `{"level":3}`)

		pass(11 * time.Minute)
		c.do("403 not_verified", "DELETE", factors+"/"+id, in(`{"session":%q}`))
		c.do("403 not_verified", "POST", "/v1/session/factor", fmt.Sprintf(`{"secret":%q,"recovery_code":%q}`, session, codes[1]))
		c.do("200", "POST", "/v1/session/verify", fmt.Sprintf(`{"secret":%q,"password":%q}`, session, factorPassword))
		wantDetail(c.do("401 login", "POST", "/v1/session/factor", fmt.Sprintf(`{"secret":%q,"recovery_code":"x"}`, session)), wrongProof)
		r = c.do("200", "POST", "/v1/session/factor", fmt.Sprintf(`{"secret":%q,"recovery_code":%q}`, session, codes[1]))
		session = r.str("session.secret")
		r = c.do("200", "POST", path+"/recovery-codes", in(`{"session":%q}`))
		c.equal("new codes", fmt.Sprint(len(r.value("recovery_codes").([]any))), "10")
		c.do("403 not_verified", "POST", path+"/recovery-codes", "")
		c.do("403 not_verified", "DELETE", factors+"/"+id, `{}`)
		change := func(owner string) string {
			return fmt.Sprintf(`{"password":%q,"current":%q,"owner_session":%q,"session":{}}`, factorPassword+"!", factorPassword, owner)
		}
		c.do("401 factor", "PUT", path+"/password", change(""))
		c.do("401 login", "PUT", path+"/password", change("x"))
		c.do("401 login", "PUT", other+"/password", change(session))
		r = c.do("200", "PUT", path+"/password", change(session))
		c.equal("after a new password", fmt.Sprint(r.str("entry.uid"), r.value("session.level")), "ada2")
		c.equal("old session", c.do("200", "POST", "/v1/session", in(`{"secret":%q}`)).text, "{\"active\":false}\n")
		session, first = r.str("session.secret"), strings.Replace(first, factorPassword, factorPassword+"!", 1)
		r = c.do("200", "DELETE", factors+"/"+id, in(`{"session":%q}`))
		c.equal("after the removal", fmt.Sprint(r.value("session.level")), "1")
		c.do("200", "POST", logIn, first)
	})
}

// TestFactorsByOperator checks what a key with the scope admin can do without the session of the
// owner.
func TestFactorsByOperator(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, factorSchema()), serve.Options{})
		path := c.create(fmt.Sprintf(`{"uid":"ada","facets":{"name":"Ada"},"password":%q}`, factorPassword))
		c.do("404 not_found", "POST", path+"/recovery-codes", "")
		session := c.do("201", "POST", path+"/sessions", `{}`).str("session.secret")
		r := c.do("201", "POST", path+"/factors", fmt.Sprintf(`{"kind":"totp","session":%q}`, session))
		id := r.str("id")
		secret, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(r.str("secret"))
		must(t, err)
		session = c.do("200", "POST", path+"/factors/"+id+"/confirm", fmt.Sprintf(`{"code":%q,"session":%q}`, totp.Code(secret, totp.Step(time.Now())), session)).str("session.secret")
		r = c.do("200", "POST", path+"/recovery-codes", "")
		c.equal("codes", fmt.Sprint(len(r.value("recovery_codes").([]any))), "10")
		c.do("404 not_found", "DELETE", path+"/factors/x", "")
		c.do("200", "DELETE", path+"/factors/"+id, "")
		c.equal("session", c.do("200", "POST", "/v1/session", fmt.Sprintf(`{"secret":%q}`, session)).text, "{\"active\":false}\n")
		c.do("404 not_found", "DELETE", path+"/factors/"+id, "")
		c.do("200", "POST", "/v1/types/user/login", fmt.Sprintf(`{"identifier":"ada","password":%q}`, factorPassword))
	})
}

// TestSelfRegistered checks over HTTP that somebody who signs up with the address of another person
// loses the account when that person verifies the address. Somebody who verifies an address in a
// session of the account keeps the account.
func TestSelfRegistered(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, factorSchema()), serve.Options{})
		register := func(name string) (path, session string) {
			path = c.create(fmt.Sprintf(`{"uid":%q,"facets":{"name":%q,"email":"%s@example.com"},"password":%q,"self_registered":true}`, name, name, name, factorPassword))
			c.equal("unproven", fmt.Sprint(c.do("200", "GET", path, "").value("unproven")), "true")
			return path, c.do("201", "POST", path+"/sessions", `{}`).str("session.secret")
		}
		redeem := func(name, session string) {
			secret := c.do("200", "POST", "/v1/types/user/tokens", fmt.Sprintf(`{"purpose":"verify","uid":%q,"field":"email"}`, name)).str("secret")
			c.do("400 usage", "POST", "/v1/tokens/redeem", fmt.Sprintf(`{"purpose":"verify","secret":%q,"owner_session":"x","session":{}}`, secret))
			c.do("200", "POST", "/v1/tokens/redeem", fmt.Sprintf(`{"purpose":"verify","secret":%q,"owner_session":%q}`, secret, session))
		}
		logIn := func(want, name string) {
			c.do(want, "POST", "/v1/types/user/login", fmt.Sprintf(`{"identifier":%q,"password":%q}`, name, factorPassword))
		}
		path, session := register("ada")
		c.do("403 unproven", "POST", path+"/factors", fmt.Sprintf(`{"kind":"totp","session":%q}`, session))
		redeem("ada", "")
		c.equal("the session", c.do("200", "POST", "/v1/session", fmt.Sprintf(`{"secret":%q}`, session)).text, "{\"active\":false}\n")
		logIn("401 login", "ada")
		c.equal("unproven", fmt.Sprint(c.do("200", "GET", path, "").value("unproven")), "<nil>")
		path, session = register("bob")
		redeem("bob", session)
		logIn("200", "bob")
		c.do("201", "POST", path+"/factors", fmt.Sprintf(`{"kind":"totp","session":%q}`, session))
	})
}

// factorRoutes says how each operation with the scope login that returns an entry or begins a
// session responds for an entry with a second factor, after one step or none.
//
//   - refused: code factor, without an entry or a session
//   - vouched: a session only if the caller says that it has made sure of the second step
//   - second step: an entry or session after the second step
//   - both steps: an entry or session, for a passkey whose authenticator has verified its user
//   - level 2: only the holder of a session of level 2 gets anything
//   - creates: a new entry, which has no second factor
var factorRoutes = map[string]string{
	"login": "refused", "setPassword": "level 2", "redeemToken": "refused", "resetPassword": "refused",
	"startSession": "vouched", "loginFactor": "second step", "raiseSession": "second step",
	"confirmFactor": "level 2", "removeFactor": "level 2", "loginPasskey": "both steps",
	"session": "level 2", "verifySession": "level 2", "checkSession": "level 2",
	"acceptInvitation": "creates",
}

// TestFactorRoutes checks that factorRoutes lists every operation with the scope login, except for
// some that neither return an entry nor begin a session, so that a new one cannot be forgotten.
func TestFactorRoutes(t *testing.T) {
	c := newClient(t, testdb.Open(t, testdb.EmbeddedClient(t), recordkey.Namespace{}, factorSchema()), serve.Options{})
	var signIn []string
	for _, o := range c.operations() {
		if slices.Contains(o.Security[0]["key"], admin.ScopeLogin) {
			signIn = append(signIn, o.ID)
		}
	}
	harmless := []string{
		"endSession", "endSessionByID", "endSessions", "enrolFactor", "replaceRecoveryCodes",
		"invite", "issueToken", "challengePasskey", "challengeFactor", "challengeSession", "peekInvitation", "peekToken",
	}
	for _, id := range signIn {
		if _, listed := factorRoutes[id]; !listed && !slices.Contains(harmless, id) {
			t.Errorf("factorRoutes does not list %s", id)
		}
	}
	for id := range factorRoutes {
		if !slices.Contains(signIn, id) {
			t.Errorf("there is no operation %s with the scope login", id)
		}
	}
}
