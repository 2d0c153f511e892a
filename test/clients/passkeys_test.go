package clients_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest/authenticator"
	"github.com/coffeenode/userdb/passkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A judgedAnswer is an answer of a passkey and what it is compared with, as passkeys.js reads them.
type judgedAnswer struct {
	Response  json.RawMessage `json:"response"`
	Challenge string          `json:"challenge"`
	Origin    string          `json:"origin"`
	RPID      string          `json:"rpID"`
}

// TestPasskeyJudge checks that package passkey and npm's @simplewebauthn/server accept the same
// answers of passkeys.
func TestPasskeyJudge(t *testing.T) {
	requireNode(t, ".")
	ctx := t.Context()
	const rpID, origin, secret = "example.com", "https://login.example.com", "correct horse battery"
	sch := schema.User()
	user := sch.Types["user"]
	user.Factors = true
	user.Fields["passkeys"] = schema.Field{Role: schema.RoleSecondary, Many: 8, Typed: new(false)}
	sch.Types["user"] = user
	db, err := userdb.Open(ctx, "memory:", userdb.Options{
		Schema: sch, Keys: [][]byte{bytes.Repeat([]byte("k"), 32)},
	})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	users, err := db.Type("user")
	must(t, err)
	keys, err := passkey.New(db, "user", passkey.Config{RPID: rpID, Origins: []string{origin}})
	must(t, err)
	_, err = users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("email", "a@example.com"), Password: secret})
	must(t, err)
	e, err := users.Login(ctx, "a@example.com", secret, userdb.Attempt{})
	must(t, err)
	_, session, err := users.StartSession(ctx, e, userdb.SessionOptions{})
	must(t, err)

	var names []string
	var answers []judgedAnswer
	var accepted []bool
	// record adds an answer to a challenge, and whether package passkey accepted it.
	record := func(name string, c passkey.Challenge, answer string, err error) {
		t.Helper()
		if err != nil && !errors.Is(err, userdb.ErrLogin) {
			t.Errorf("%s: got error %v, want none or ErrLogin", name, err)
		}
		var options struct {
			PublicKey struct{ Challenge string } `json:"publicKey"`
		}
		must(t, json.Unmarshal(c.Options, &options))
		names, accepted = append(names, name), append(accepted, err == nil)
		answers = append(answers, judgedAnswer{json.RawMessage(answer), options.PublicKey.Challenge, origin, rpID})
	}
	device := authenticator.New(rpID, origin)
	device.Cred.Counter = 5
	wrong := []struct {
		name   string
		device *authenticator.Device
	}{
		{"a wrong origin", device.With(func(d *authenticator.Device) { d.RP.Origin = "https://evil.example.com" })},
		{"another port", device.With(func(d *authenticator.Device) { d.RP.Origin = origin + ":8443" })},
		{"a wrong relying party", device.With(func(d *authenticator.Device) { d.RP.ID = "example.org" })},
		{"no user verification", device.With(func(d *authenticator.Device) { d.Auth.Options.UserNotVerified = true })},
		{"no user", device.With(func(d *authenticator.Device) { d.Auth.Options.UserNotPresent = true })},
	}

	register := func(name string, d *authenticator.Device, otherChallenge bool) {
		t.Helper()
		c, err := keys.BeginRegistration(ctx, session, passkey.Registration{})
		must(t, err)
		asked := c
		if otherChallenge {
			asked, err = keys.BeginRegistration(ctx, session, passkey.Registration{})
			must(t, err)
		}
		answer, err := d.Create(string(asked.Options))
		must(t, err)
		_, err = keys.Register(ctx, session, c.State, []byte(answer), "", userdb.SessionOptions{})
		record("registration: "+name, c, answer, err)
	}
	for _, w := range wrong {
		register(w.name, w.device, false)
	}
	register("a wrong challenge", device, true)
	register("the right answer", device, false)

	signIn := func(name string, d *authenticator.Device, otherChallenge bool) {
		t.Helper()
		c, err := keys.Begin()
		must(t, err)
		asked := c
		if otherChallenge {
			asked, err = keys.Begin()
			must(t, err)
		}
		other := *d
		other.Auth.Options.UserHandle = device.Auth.Options.UserHandle
		answer, err := other.Get(string(asked.Options))
		must(t, err)
		proof, err := keys.Proof(c.State, []byte(answer))
		if err == nil {
			_, err = users.LoginPasskey(ctx, proof, userdb.Attempt{})
		}
		record("sign-in: "+name, c, answer, err)
	}
	counter := func(n uint32) *authenticator.Device {
		return device.With(func(d *authenticator.Device) { d.Cred.Counter = n })
	}
	signIn("a counter that was not raised", counter(5), false)
	signIn("the right answer", counter(6), false)
	for _, w := range wrong {
		w.device.Cred.Counter = 100
		signIn(w.name, w.device, false)
	}
	signIn("a wrong challenge", counter(100), true)
	signIn("another key", device.With(func(d *authenticator.Device) {
		d.Cred.Key, d.Cred.Counter = authenticator.NewCredential().Key, 100
	}), false)
	signIn("the same counter", counter(6), false)
	signIn("a smaller counter", counter(3), false)
	signIn("a counter that begins again", counter(0), false)
	signIn("a larger counter", counter(40), false)

	input, err := json.Marshal(answers)
	must(t, err)
	cmd := exec.Command("node", "passkeys.js")
	cmd.Stdin = bytes.NewReader(input)
	output, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("%v: %s", err, exit.Stderr)
	}
	must(t, err)
	var reasons []*string
	must(t, json.Unmarshal(output, &reasons))
	if len(reasons) != len(names) {
		t.Fatalf("%d answers were judged, want %d", len(reasons), len(names))
	}
	right := 0
	for i, reason := range reasons {
		why := "nothing"
		if reason != nil {
			why = *reason
		}
		t.Logf("%s: accepted %v; the other implementation says %s", names[i], accepted[i], why)
		if accepted[i] != (reason == nil) {
			t.Errorf("%s: accepted %v; the other implementation says %s", names[i], accepted[i], why)
		}
		if accepted[i] {
			right++
		}
	}
	if right != 3 {
		t.Errorf("%d answers were accepted, want 3", right)
	}
}
