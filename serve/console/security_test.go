package console

import (
	"encoding/base32"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/totp"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

var (
	shownSecret = regexp.MustCompile(`<code class="secret">([A-Z2-7 ]+)</code>`)
	shownCode   = regexp.MustCompile(`<li><code>([0-9a-z-]+)</code></li>`)
)

// An app is an authenticator app.
type app struct {
	id, secret string
}

// code returns the code of the app a number of steps from now.
func (a app) code(t *testing.T, steps int64) string {
	t.Helper()
	secret, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(a.secret)
	must(t, err)
	return totp.Code(secret, totp.Step(time.Now())+steps)
}

// scan returns the app that a page asks to add.
func (d *testConsole) scan(body string) app {
	d.t.Helper()
	found := shownSecret.FindStringSubmatch(body)
	if found == nil || !strings.Contains(body, "<svg class=\"qr\"") {
		d.t.Fatalf("the page shows no secret and QR code:\n%s", body)
	}
	return app{inputValue(body, "id"), strings.ReplaceAll(found[1], " ", "")}
}

func shownCodes(body string) (codes []string) {
	for _, found := range shownCode.FindAllStringSubmatch(body, -1) {
		codes = append(codes, found[1])
	}
	return codes
}

// addFactor adds an app to the operator who is signed in, and returns it with the recovery codes.
func (d *testConsole) addFactor() (a app, codes []string) {
	d.t.Helper()
	a = d.scan(d.do(http.StatusOK, "/console/security/add", "label", "my phone"))
	page := d.do(http.StatusOK, "/console/security/confirm", "id", a.id, "code", a.code(d.t, 0))
	if codes = shownCodes(page); len(codes) != 10 {
		d.t.Fatalf("the page shows the codes %q, want ten:\n%s", codes, page)
	}
	return a, codes
}

// firstStep gives the password and returns the browser, which has a ticket.
func (d *testConsole) firstStep(name string) *testConsole {
	d.t.Helper()
	o := d.newBrowser()
	o.wantText(o.do(http.StatusOK, "/console/signin", "name", name, "password", goodPassword), "Second step")
	return o
}

const codePath = "/console/signin/code"

// TestSecondStep checks that an operator with an app signs in with two steps, and that the first
// app ends all other sessions. No code is accepted twice, and wrong codes are recorded under the
// name of the operator who gave the password.
func TestSecondStep(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		_, err := newOperator(t, d, "Paul")
		must(t, err)
		other := d.newBrowser()
		other.signIn(operatorName, goodPassword)
		d.wantText(d.do(http.StatusOK, "/console/security"), "with your password alone")
		a := d.scan(d.do(http.StatusOK, "/console/security/add", "label", "my phone"))
		wrong := d.do(http.StatusUnauthorized, "/console/security/confirm", "id", a.id, "code", "x")
		d.wantText(wrong, "This is not the right code")
		if strings.Contains(strings.ReplaceAll(wrong, " ", ""), a.secret) {
			t.Error("the secret is shown twice")
		}
		codes := shownCodes(d.do(http.StatusOK, "/console/security/confirm", "id", a.id, "code", a.code(t, 0)))
		next := a.code(t, 1)
		if to := other.do(http.StatusSeeOther, "/console/find"); !strings.HasPrefix(to, "/console/signin") {
			t.Errorf("another session leads to %q, want the sign-in page", to)
		}
		d.wantText(d.do(http.StatusOK, "/console/security"), "my phone", "10 of ten are left")

		o := d.firstStep("OLGA")
		o.wantText(o.do(http.StatusUnprocessableEntity, codePath, "code", " "), "This field is required.")
		o.wantText(o.do(http.StatusUnauthorized, codePath, "name", "paul", "code", "000000x"), "This is not the right code")
		if to := o.do(http.StatusSeeOther, codePath, "code", next, "return", "/console/keys"); to != "/console/keys" {
			t.Errorf("two steps lead to %q, want /console/keys", to)
		}
		o.do(http.StatusOK, "/console/find")
		o.wantText(o.do(http.StatusUnauthorized, codePath, "code", next), "Enter your password again.")
		again := d.firstStep(operatorName)
		again.do(http.StatusUnauthorized, codePath, "code", next)
		again.do(http.StatusSeeOther, codePath, "code", strings.ToUpper(codes[0]))
		again = d.firstStep(operatorName)
		again.do(http.StatusUnauthorized, codePath, "code", codes[0])
		if acts := d.operatorActions(); !slices.Contains(acts, "operator_factor_add operator:Olga Olga 127.0.0.1") ||
			!slices.Contains(acts, "operator_login_failed visitor Olga 127.0.0.1") ||
			slices.Contains(acts, "operator_login_failed visitor Paul 127.0.0.1") {
			t.Errorf("the feed has %q, want the new factor and a failed login of Olga only", acts)
		}
		d.wantText(d.do(http.StatusOK, "/console/history"), "added an authenticator app")

		fresh := shownCodes(d.do(http.StatusOK, "/console/security/codes", "", ""))
		again.do(http.StatusUnauthorized, codePath, "code", codes[1])
		again.do(http.StatusSeeOther, codePath, "code", fresh[1])
		d.wantText(d.do(http.StatusOK, "/console/security/remove", "id", a.id), "with your password alone", "my phone")
		d.do(http.StatusSeeOther, "/console/security/remove", "id", a.id, confirmName, "true")
		d.wantText(d.do(http.StatusOK, "/console/security?done=no-app"), "The app has been removed.")
		again.do(http.StatusSeeOther, "/console/find")
		d.newBrowser().signIn(operatorName, goodPassword)
	})
}

// TestOneStepReachesNothing checks that no page is shown to an operator with a second factor who
// has only given the password: neither with the ticket, nor with a session of one step that a
// restored backup has brought back.
func TestOneStepReachesNothing(t *testing.T) {
	server := redistest.Start(t)
	raw := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = raw.Close() })
	d := open(t, server.URL())
	d.createAccount("u1", "name", "Alice")
	operator, err := newOperator(t, d, "Paul")
	must(t, err)
	left := d.newBrowser()
	left.signIn("paul", goodPassword)
	left.do(http.StatusOK, "/console/find")
	key := operator.Key().In(view.Reserved).String()
	must(t, raw.HSet(t.Context(), key, "~factor", "totp/x").Err())
	d.addFactor()
	path := strings.NewReplacer("{type}", "user", "{uid}", "u1", "{id}", "nosuch", "{name}", exportFile, "{$}", "")
	for who, b := range map[string]*testConsole{"a session of one step": left, "a ticket": d.firstStep(operatorName), "nothing": d.newBrowser()} {
		for _, route := range d.console.table() {
			method, pattern, ok := strings.Cut(route.pattern, " ")
			if !ok {
				method, pattern = http.MethodPost, route.pattern+"nothing"
			}
			r, err := http.NewRequestWithContext(t.Context(), method, d.base+path.Replace(pattern), strings.NewReader(""))
			must(t, err)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			answer, err := b.client.Do(r)
			must(t, err)
			_, _ = io.Copy(io.Discard, answer.Body)
			must(t, answer.Body.Close())
			if to := answer.Header.Get("Location"); answer.StatusCode != http.StatusSeeOther || !strings.HasPrefix(to, "/console/signin") {
				t.Errorf("%s, %s: got %s to %q, want a redirect to the sign-in page", who, route.pattern, answer.Status, to)
			}
		}
	}
	must(t, raw.HDel(t.Context(), key, "~factor").Err())
}

// TestVerifyWithCode checks that an operator with an app is asked for the password and a code again
// before dangerous actions, and that neither alone is enough. The answer must start a new session,
// so that a stolen cookie of the old one is useless.
func TestVerifyWithCode(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		_, codes := d.addFactor()
		stolen := d.newBrowser()
		at, err := url.Parse(d.base)
		must(t, err)
		stolen.client.Jar.SetCookies(at, d.client.Jar.Cookies(at))
		d.advance(verifiedFor + time.Minute)
		form := []string{"name", "shop", "scope", "read"}
		d.wantText(d.do(http.StatusOK, "/console/keys", form...), "Your own password", "Code from your app, or a recovery code")
		with := func(password, code string) []string {
			return append(slices.Clone(form), verifyName, password, codeName, code)
		}
		d.wantText(d.do(http.StatusUnprocessableEntity, "/console/keys", with(goodPassword, "")...), "This field is required.")
		d.wantText(d.do(http.StatusUnauthorized, "/console/keys", with(goodPassword, "000000x")...), "This is not the right code")
		d.wantText(d.do(http.StatusUnauthorized, "/console/keys", with("wrong", codes[0])...), "Wrong password.")
		d.do(http.StatusOK, "/console/keys", form...) // asks again: the password was not enough
		d.wantText(d.do(http.StatusOK, "/console/keys", with(goodPassword, codes[0])...), "The key shop has been created.")
		d.do(http.StatusOK, "/console/find")
		stolen.do(http.StatusSeeOther, "/console/find")
		fresh := shownCodes(d.do(http.StatusOK, "/console/security/codes", verifyName, goodPassword, codeName, codes[1]))
		if len(fresh) != 10 {
			t.Errorf("an action in the session that the code started shows the codes %q, want ten", fresh)
		}
	})
}

// TestGuessedCodes checks that if somebody who knows the password guesses codes in parallel, only
// 20 of them are checked, and that the operator can still sign in with a recovery code.
func TestGuessedCodes(t *testing.T) {
	d := open(t, "memory:")
	a, codes := d.addFactor()
	right := []string{a.code(t, -1), a.code(t, 0), a.code(t, 1), a.code(t, 2)} // now and soon
	var wrong []string
	for n := 0; len(wrong) < 32; n++ {
		if code := fmt.Sprintf("%06d", n); !slices.Contains(right, code) {
			wrong = append(wrong, code)
		}
	}
	browsers := make([]*testConsole, 8)
	for i := range browsers {
		browsers[i] = d.firstStep(operatorName)
	}
	var mu sync.Mutex
	var guesses sync.WaitGroup
	statuses := map[int]int{}
	for i, code := range wrong {
		guesses.Go(func() {
			answer, err := browsers[i%8].client.PostForm(d.base+codePath, url.Values{"code": {code}})
			if err != nil {
				t.Error(err)
				return
			}
			_ = answer.Body.Close()
			mu.Lock()
			defer mu.Unlock()
			statuses[answer.StatusCode]++
		})
	}
	guesses.Wait()
	if statuses[http.StatusUnauthorized] != 20 || statuses[http.StatusTooManyRequests] != 12 {
		t.Errorf("32 guesses got the statuses %v, want 20 times 401 and 12 times 429", statuses)
	}
	o := d.firstStep(operatorName)
	o.wantText(o.do(http.StatusTooManyRequests, codePath, "code", "000000"), "Use a recovery code")
	o.do(http.StatusSeeOther, codePath, "code", codes[0])
}

// TestRequireFactor checks that if operators need a second factor, one without it reaches no page,
// and enrols the first only with a link and the password.
func TestRequireFactor(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		paul, err := newOperator(t, d, "Paul")
		must(t, err)
		must(t, admin.RequireFactors(t.Context(), d.db, true))
		if to := d.do(http.StatusSeeOther, "/console/security"); !strings.HasPrefix(to, "/console/signin") {
			t.Errorf("a session from before leads to %q, want the sign-in page", to)
		}
		d.wantText(d.do(http.StatusForbidden, "/console/signin", "name", "olga", "password", goodPassword), "You need a second step", "userdb operator enrol NAME")
		d.do(http.StatusSeeOther, "/console/find")

		link, err := admin.IssueEnrolLink(t.Context(), d.db, hints.Any("olga"))
		must(t, err)
		pauls, err := admin.IssueEnrolLink(t.Context(), d.db, hints.Key(paul.Key()))
		must(t, err)
		b := d.newBrowser()
		b.wantText(b.do(http.StatusOK, "/console/enrol?token="+link), "Olga signs in with")
		b.wantText(b.do(http.StatusUnauthorized, "/console/enrol", "token", link, "password", "wrong"), "Wrong name or password.")
		b.do(http.StatusGone, "/console/enrol", "token", link+"x", "password", goodPassword)
		asked := b.do(http.StatusOK, "/console/enrol", "token", link, "password", goodPassword)
		a := b.scan(asked)
		b.do(http.StatusSeeOther, "/console/find")
		b.do(http.StatusSeeOther, "/console/security/add", "label", "x")
		b.do(http.StatusSeeOther, "/console/security/confirm", "id", a.id, "code", a.code(t, 0))
		b.do(http.StatusUnauthorized, "/console/enrol/confirm", "token", pauls, "id", a.id, "code", a.code(t, 0))
		b.do(http.StatusGone, "/console/enrol/confirm", "id", a.id, "code", a.code(t, 0))
		second := d.newBrowser() // the link once more, before it is spent
		late := second.scan(second.do(http.StatusOK, "/console/enrol", "token", link, "password", goodPassword))
		b.wantText(b.do(http.StatusUnauthorized, "/console/enrol/confirm", "token", link, "id", a.id, "code", "x"), "This is not the right code")
		if codes := shownCodes(b.do(http.StatusOK, "/console/enrol/confirm", "token", link, "id", a.id, "code", a.code(t, 0))); len(codes) != 10 {
			t.Errorf("the codes are %q, want 10", codes)
		}
		b.do(http.StatusOK, "/console/find")
		second.do(http.StatusGone, "/console/enrol/confirm", "token", link, "id", late.id, "code", late.code(t, 0))
		second.do(http.StatusSeeOther, "/console/find")
		d.do(http.StatusGone, "/console/enrol?token="+link)
		b.wantText(b.do(http.StatusUnprocessableEntity, "/console/security/remove", "id", a.id, confirmName, "true"), "Add another app or passkey before you remove the only one.")
		if _, err := admin.IssueEnrolLink(t.Context(), d.db, hints.Any("olga")); !isAny(err, admin.ErrHasFactor) {
			t.Errorf("a link for an operator with a factor: got %v, want ErrHasFactor", err)
		}
	})
}

// TestRequireFactorAtSetUp checks that the first operator enrols a factor before anything else.
func TestRequireFactorAtSetUp(t *testing.T) {
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{Schema: testSchema(), Keys: [][]byte{make([]byte, 32)}})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	d := newTestConsole(t, db)
	must(t, admin.RequireFactors(t.Context(), d.db, true))
	token, err := admin.BeginSetup(t.Context(), db)
	must(t, err)
	page := d.do(http.StatusOK, "/console/setup", "token", token, "name", "root", "password", goodPassword)
	a := d.scan(page)
	d.do(http.StatusSeeOther, "/console/find")
	d.do(http.StatusOK, "/console/enrol/confirm", "token", inputValue(page, "token"), "id", a.id, "code", a.code(t, 0))
	d.do(http.StatusOK, "/console/find")
}

// TestNoKey checks that the console says why no app can be added.
func TestNoKey(t *testing.T) {
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{Schema: testSchema()})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	d := newTestConsole(t, db)
	_, err = admin.AddOperator(t.Context(), db, operatorName, goodPassword)
	must(t, err)
	d.signIn(operatorName, goodPassword)
	page := d.do(http.StatusOK, "/console/security")
	d.wantText(page, "has no key to encrypt its secret with", "--key-file")
	d.wantNoText(page, "Add an authenticator app")
}

// TestStrangersLearnNothing checks that an operator of another namespace who gives the right
// password gets the answer for a wrong one, even with a second factor.
func TestStrangersLearnNothing(t *testing.T) {
	d := open(t, "memory:")
	d.addFactor()
	inner, err := d.db.In(view.Of(d.db).NS)
	must(t, err)
	other := newTestConsole(t, inner)
	other.console.options.Namespace = "elsewhere"
	operators, err := admin.Operators(d.db)
	must(t, err)
	_, err = operators.Update(t.Context(), hints.Any("olga"), func(e *userdb.Entry) error {
		e.Put(admin.OperatorNamespace, schema.Text("shop"))
		return nil
	})
	must(t, err)
	answer, err := other.client.PostForm(other.base+"/console/signin", url.Values{"name": {"olga"}, "password": {goodPassword}})
	must(t, err)
	body, err := io.ReadAll(answer.Body)
	must(t, err)
	must(t, answer.Body.Close())
	if answer.StatusCode != http.StatusUnauthorized || len(answer.Cookies()) > 0 || !strings.Contains(string(body), "Wrong name or password.") {
		t.Errorf("got %s, %v; want 401 without cookies\n%s", answer.Status, answer.Cookies(), body)
	}
}
