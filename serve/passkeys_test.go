package serve_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest/authenticator"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/passkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
)

// passkeySchema returns a schema under which entries may have passkeys.
func passkeySchema() schema.Schema {
	sc := factorSchema()
	sc.Types["user"].Fields["passkeys"] = schema.Field{Role: schema.RoleSecondary, Many: 8, Typed: new(false)}
	return sc
}

const passkeyOrigin = "https://login.example.com"

func passkeyConfig() *passkey.Config {
	return &passkey.Config{RPID: "example.com", Origins: []string{passkeyOrigin}}
}

// answer returns the member passkey of a body: the answer of a device to a challenge.
func (c *client) answer(challenge reply, answer func(string) (string, error)) string {
	c.t.Helper()
	text, err := answer(challenge.text)
	must(c.t, err)
	return fmt.Sprintf(`"passkey":{"state":%q,"answer":%s}`, challenge.str("state"), text)
}

// enrolPasskey gives the owner of a session a passkey. It returns the response.
func (c *client) enrolPasskey(d *authenticator.Device, path, session string) reply {
	c.t.Helper()
	r := c.do("201", "POST", path+"/factors", fmt.Sprintf(`{"kind":"passkey","name":"my key","account":"ada@example.com","session":%q}`, session))
	return c.do("200", "POST", path+"/factors/"+r.str("id")+"/confirm", fmt.Sprintf(`{%s,"session":%q,"agent":"b"}`, c.answer(r, d.Create), session))
}

// dump returns the keys of all records of the store, with the contents of hashes and strings, and
// the sizes of sorted sets and streams.
func (c *client) dump() string {
	c.t.Helper()
	keys, err := c.Raw.Keys(c.Ctx, "*").Result()
	must(c.t, err)
	slices.Sort(keys)
	var b strings.Builder
	for _, key := range keys {
		fmt.Fprintln(&b, key, c.Raw.HGetAll(c.Ctx, key).Val(), c.Raw.Get(c.Ctx, key).Val(), c.Raw.ZCard(c.Ctx, key).Val(), c.Raw.XLen(c.Ctx, key).Val())
	}
	return b.String()
}

// TestPasskeys drives passkeys over HTTP: one is enrolled, signs in without a name, takes the
// second step of a login, replaces a session, and is removed.
func TestPasskeys(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		s = s.Under(t, passkeySchema())
		now, mu := time.Now(), sync.Mutex{}
		clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
		pass := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
		s.Edit(t, func(c *view.Config) { c.Clock = clock })
		all := newClient(t, s, serve.Options{Passkeys: passkeyConfig()})
		c := all.withKey(all.makeKey(admin.Key{Name: "web", Scopes: []string{admin.ScopeLogin, admin.ScopeRead}}))
		const logIn, alone, second, raise = "/v1/types/user/login", "/v1/types/user/login/passkey", "/v1/types/user/login/factor", "/v1/session/factor"
		first := fmt.Sprintf(`{"identifier":"ada","password":%q,"session":{}}`, factorPassword)
		path := all.create(fmt.Sprintf(`{"uid":"ada","facets":{"name":"Ada"},"password":%q}`, factorPassword))
		other := all.create(fmt.Sprintf(`{"uid":"bob","facets":{"name":"Bob"},"password":%q}`, factorPassword))
		session := c.do("200", "POST", logIn, first).str("session.secret")
		d := authenticator.New("example.com", passkeyOrigin)

		begin := fmt.Sprintf(`{"kind":"passkey","name":"my key","account":"ada@example.com","session":%q}`, session)
		c.do("401 login", "POST", other+"/factors", begin)
		r := c.do("201", "POST", path+"/factors", begin)
		c.equal("options", fmt.Sprint(r.str("id"), " ", r.str("publicKey.rp.id"), " ", r.str("publicKey.user.name"), " ", r.str("publicKey.authenticatorSelection.userVerification")),
			"passkey example.com ada@example.com required")
		confirm := path + "/factors/passkey/confirm"
		done := fmt.Sprintf(`{%s,"session":%q,"agent":"b"}`, c.answer(r, d.Create), session)
		c.do("400 usage", "POST", confirm, fmt.Sprintf(`{"session":%q}`, session))
		c.do("400 usage", "POST", confirm, strings.Replace(done, "{", `{"code":"1",`, 1))
		c.do("404 not_found", "POST", path+"/factors/x/confirm", done)
		evil := d.With(func(d *authenticator.Device) { d.RP.Origin = "https://evil.example.com" })
		c.do("401 login", "POST", confirm, fmt.Sprintf(`{%s,"session":%q}`, c.answer(r, evil.Create), session))
		r = c.do("200", "POST", confirm, done)
		c.equal("after the first", fmt.Sprint(len(r.value("recovery_codes").([]any)), r.value("session.level"), r.str("session.agent")), "10 2b")
		c.equal("old session", c.do("200", "POST", "/v1/session", fmt.Sprintf(`{"secret":%q}`, session)).text, "{\"active\":false}\n")
		session = r.str("session.secret")
		listed := c.do("200", "GET", path+"/factors", "").value("factors").([]any)
		one := listed[0].(map[string]any)
		c.equal("factors", fmt.Sprint(len(listed), one["kind"], one["name"]), "2passkeymy key")
		bobs := c.do("200", "POST", logIn, strings.Replace(first, `"ada"`, `"bob"`, 1)).str("session.secret")
		r = c.do("201", "POST", other+"/factors", fmt.Sprintf(`{"kind":"passkey","session":%q}`, bobs))
		owned := d.With(func(*authenticator.Device) {})
		c.do("409 duplicate", "POST", other+"/factors/passkey/confirm", fmt.Sprintf(`{%s,"session":%q}`, c.answer(r, owned.Create), bobs))

		// A login without a name. Its challenge leaves no record.
		before := c.dump()
		challenge := func() reply { t.Helper(); return c.do("200", "POST", alone+"/challenge", "") }
		r = challenge()
		challenge()
		c.equal("records after challenges", c.dump(), before)
		answer := c.answer(r, d.Get)
		c.equal("detail", c.do("401 login", "POST", alone, fmt.Sprintf(`{%s}`, c.answer(challenge(), evil.Get))).str("detail"), "the code or the answer of the passkey is wrong or late, or was used before")
		c.do("401 login", "POST", alone, fmt.Sprintf(`{%s}`, strings.Replace(answer, r.str("state"), challenge().str("state"), 1)))
		c.do("401 login", "POST", alone, fmt.Sprintf(`{%s}`, c.answer(challenge(), d.With(func(d *authenticator.Device) { d.Auth.Options.UserNotVerified = true }).Get)))
		c.do("413 usage", "POST", alone, fmt.Sprintf(`{"passkey":{"state":%q,"answer":{"x":%q}}}`, r.str("state"), strings.Repeat("x", passkey.MaxAnswer)))
		r = c.do("200", "POST", alone, fmt.Sprintf(`{%s,"session":{}}`, answer))
		c.equal("a passkey alone", fmt.Sprint(r.str("entry.uid"), r.value("session.level")), "ada2")
		c.do("401 login", "POST", alone, fmt.Sprintf(`{%s,"session":{}}`, answer))
		c.equal("without a session", c.do("200", "POST", alone, fmt.Sprintf(`{%s}`, c.answer(challenge(), d.Get))).str("entry.uid"), "ada")

		refused := c.do("401 factor", "POST", logIn, first)
		c.equal("methods", fmt.Sprint(refused.value("methods")), "[passkey recovery]")
		ticket := refused.str("ticket")
		r = c.do("200", "POST", second+"/challenge", fmt.Sprintf(`{"ticket":%q}`, ticket))
		answer = c.answer(r, d.Get)
		c.do("401 login", "POST", alone, fmt.Sprintf(`{%s}`, answer))
		c.do("400 usage", "POST", second, fmt.Sprintf(`{"ticket":%q,"totp":"1",%s}`, ticket, answer))
		c.do("401 login", "POST", second, fmt.Sprintf(`{"ticket":%q,%s}`, c.do("401 factor", "POST", logIn, first).str("ticket"), answer))
		r = c.do("200", "POST", second, fmt.Sprintf(`{"ticket":%q,%s,"session":{}}`, ticket, answer))
		c.equal("after two steps", fmt.Sprint(r.str("entry.uid"), r.value("session.level")), "ada2")
		c.do("401 login", "POST", second, fmt.Sprintf(`{"ticket":%q,%s,"session":{}}`, ticket, answer))

		pass(11 * time.Minute)
		c.do("403 not_verified", "DELETE", path+"/factors/"+one["id"].(string), fmt.Sprintf(`{"session":%q}`, session))
		c.do("401 login", "POST", raise+"/challenge", `{"secret":"x"}`)
		r = c.do("200", "POST", raise+"/challenge", fmt.Sprintf(`{"secret":%q}`, session))
		answer = c.answer(r, d.Get)
		c.do("401 login", "POST", raise, fmt.Sprintf(`{"secret":%q,%s}`, bobs, answer))
		r = c.do("200", "POST", raise, fmt.Sprintf(`{"secret":%q,%s}`, session, answer))
		c.do("401 login", "POST", raise, fmt.Sprintf(`{"secret":%q,%s}`, session, answer))
		session = r.str("session.secret")
		c.do("200", "DELETE", path+"/factors/"+one["id"].(string), fmt.Sprintf(`{"session":%q}`, session))
		c.do("401 login", "POST", alone, fmt.Sprintf(`{%s}`, c.answer(challenge(), d.Get)))
		bobs = c.do("200", "POST", logIn, strings.Replace(first, `"ada"`, `"bob"`, 1)).str("session.secret")
		c.enrolPasskey(d, other, bobs)
		c.do("200", "POST", logIn, first)
		for _, secret := range []string{ticket, session, bobs} {
			if strings.Contains(c.logs.String(), secret) {
				t.Error("the log has a secret")
			}
		}
	})
}

// TestPasskeysOff checks what a service without passkeys says about them.
func TestPasskeysOff(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, passkeySchema()), serve.Options{})
		path := c.create(fmt.Sprintf(`{"uid":"ada","facets":{"name":"Ada"},"password":%q}`, factorPassword))
		session := c.do("201", "POST", path+"/sessions", `{}`).str("session.secret")
		for at, body := range map[string]string{
			path + "/factors":                        fmt.Sprintf(`{"kind":"passkey","session":%q}`, session),
			path + "/factors/passkey/confirm":        fmt.Sprintf(`{"passkey":{"state":"","answer":{}},"session":%q}`, session),
			"/v1/types/user/login/passkey/challenge": "",
			"/v1/types/user/login/passkey":           `{"passkey":{"state":"","answer":{}}}`,
			"/v1/types/user/login/factor/challenge":  `{"ticket":"x"}`,
			"/v1/types/user/login/factor":            `{"ticket":"x","passkey":{"state":"","answer":{}}}`,
			"/v1/session/factor/challenge":           fmt.Sprintf(`{"secret":%q}`, session),
			"/v1/session/factor":                     fmt.Sprintf(`{"secret":%q,"passkey":{"state":"","answer":{}}}`, session),
		} {
			r := c.do("422 invalid", "POST", at, body)
			if detail := r.str("detail"); !strings.Contains(detail, "--passkey-rp") {
				t.Errorf("%s: the detail does not say what is missing: %q", at, detail)
			}
		}
		if _, err := serve.New(s.DB, serve.Options{Passkeys: &passkey.Config{RPID: "example.com", Origins: []string{"https://example.org"}}}); err == nil {
			t.Error("a foreign origin was accepted")
		}
	})
}

// TestPasskeysWithoutField checks what the service says about a type without the field for
// passkeys.
func TestPasskeysWithoutField(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, factorSchema()), serve.Options{Passkeys: passkeyConfig()})
		path := c.create(fmt.Sprintf(`{"uid":"ada","facets":{"name":"Ada"},"password":%q}`, factorPassword))
		session := c.do("201", "POST", path+"/sessions", `{}`).str("session.secret")
		r := c.do("200", "POST", "/v1/types/user/login/passkey/challenge", "")
		d := authenticator.New("example.com", passkeyOrigin)
		for at, body := range map[string]string{
			path + "/factors":              fmt.Sprintf(`{"kind":"passkey","session":%q}`, session),
			"/v1/types/user/login/passkey": fmt.Sprintf(`{%s}`, c.answer(r, d.Get)),
		} {
			r := c.do("422 invalid", "POST", at, body)
			if detail := r.str("detail"); !strings.Contains(detail, `the schema needs the field "passkeys": {`) {
				t.Errorf("%s: the detail does not say what is missing: %q", at, detail)
			}
		}
	})
}

// TestPasskeyScript checks that the response with a challenge is what the script of package passkey
// reads.
func TestPasskeyScript(t *testing.T) {
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), passkeySchema())
	c := newClient(t, s, serve.Options{Passkeys: passkeyConfig()})
	var wire struct {
		PublicKey struct{ Challenge, RPID string }
		State     string
	}
	must(t, json.Unmarshal([]byte(c.do("200", "POST", "/v1/types/user/login/passkey/challenge", "").text), &wire))
	if wire.PublicKey.Challenge == "" || wire.PublicKey.RPID != "example.com" || wire.State == "" {
		t.Errorf("got the response %+v, want a challenge for example.com and a state", wire)
	}
}
