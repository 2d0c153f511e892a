package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
)

// residents is the number of accounts that stay. A round deletes all other accounts that it
// creates.
const residents = 8

// TestStaysFlat checks that the heap, the goroutines and the open files of a service do not grow
// under mixed load for USERDB_SERVE_MINUTES minutes. Nor may its records in Redis, except for the
// feed, which has a limit of its own. It compares measurements taken between rounds of requests,
// when nothing is running.
func TestStaysFlat(t *testing.T) {
	minutes, err := strconv.ParseFloat(os.Getenv("USERDB_SERVE_MINUTES"), 64)
	if err != nil {
		t.Skip("set USERDB_SERVE_MINUTES, as make soak does")
	}
	f := newSoak(t)
	begun := time.Now()
	whole := time.Duration(minutes * float64(time.Minute))
	var warm, last []footprint
	for lastLog := begun; time.Since(begun) < whole && !t.Failed(); {
		took := f.runRound()
		now := f.measure()
		switch passed := time.Since(begun); {
		case passed > whole/3 && passed < whole*5/9:
			warm = append(warm, now)
		case passed > whole*7/9:
			last = append(last, now)
		}
		if time.Since(lastLog) > whole/20 {
			lastLog = time.Now()
			t.Logf("%v, round %d, %d requests: %v", time.Since(begun).Round(time.Second), f.rounds, f.requests.Load(), now)
		}
		time.Sleep(min(8*took, 5*time.Second)) // leave time for other programs
	}
	f.end()
	if len(warm) < 3 || len(last) < 3 {
		t.Fatalf("%d rounds are too few to compare", f.rounds)
	}
	t.Logf("%d requests; in the middle %v", f.requests.Load(), medians(warm))
	t.Logf("at the end %v", medians(last))
	medians(last).compare(t, medians(warm))
}

// A soak is a service with its clients under load.
type soak struct {
	*client
	directoryKey string // the key of a directory
	web          *http.Client
	requests     atomic.Int64
	rounds       int
	made         int // accounts created
	uids         []string
	followers    []*follower
	end          func()
}

// A follower reads the feed for as long as the service runs, and counts the accounts that are
// created.
type follower struct {
	created, gaps atomic.Int64
	last          atomic.Value
}

func newSoak(t *testing.T) *soak {
	sc, directories := directorySchema()
	server := redistest.Start(t)
	s := testdb.Open(t, server.Client(), recordkey.Namespace{}, sc)
	f := &soak{client: newClient(t, s, serve.Options{}), web: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	f.directoryKey = f.makeKey(admin.Key{Name: "directory", Scopes: []string{admin.ScopeSCIM}})
	address, stop := startService(t, f.client, serve.Options{SCIM: &directories})
	f.url = "http://" + address
	for i := range residents {
		r := f.expect(201, "POST", "/v1/types/user/entries", fmt.Sprintf(`{"facets":{"name":"resident%d","email":"resident%d@x.org"},"password":"battery staple 9"}`, i, i), "Idempotency-Key", fmt.Sprint(i))
		f.uids = append(f.uids, r.str("uid"))
	}
	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 3 {
		one := &follower{}
		f.followers = append(f.followers, one)
		ready := make(chan bool)
		all.Go(func() { f.follow(ctx, one, ready) })
		<-ready
	}
	f.end = func() {
		for i, one := range f.followers {
			if one.created.Load() != int64(f.made) || one.gaps.Load() != 0 {
				t.Errorf("follower %d saw %d accounts and %d gaps; want %d accounts and no gaps", i, one.created.Load(), one.gaps.Load(), f.made)
			}
		}
		leave()
		all.Wait()
		f.web.CloseIdleConnections()
		must(t, stop())
		if problems := s.Check(t, check.Options{}); len(problems) > 0 {
			t.Errorf("check found problems: %v", problems)
		}
	}
	return f
}

// request sends a request. A 5xx status or a broken connection fails the test.
func (f *soak) request(method, path, body string, headers ...string) reply {
	req, err := http.NewRequestWithContext(f.Ctx, method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Error(err)
		return reply{}
	}
	key := f.key
	if strings.HasPrefix(path, "/scim/") {
		key = f.directoryKey
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	f.requests.Add(1)
	res, err := f.web.Do(req)
	if err != nil {
		f.t.Errorf("%s %s: %v", method, path, err)
		return reply{}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 500 {
		f.t.Errorf("%s %s: %d %s %v", method, path, res.StatusCode, text, err)
	}
	r := reply{status: res.StatusCode, header: res.Header, text: string(text)}
	_ = json.Unmarshal(text, &r.body) // other bodies have no members
	return r
}

func (f *soak) expect(status int, method, path, body string, headers ...string) reply {
	r := f.request(method, path, body, headers...)
	if r.status != status {
		f.t.Errorf("%s %s %.200s: %d %s; want %d", method, path, body, r.status, r.text, status)
	}
	return r
}

// follow reads the feed as a follower until ctx ends.
func (f *soak) follow(ctx context.Context, one *follower, ready chan<- bool) {
	req, err := http.NewRequestWithContext(ctx, "GET", f.url+"/v1/events", nil)
	if err == nil {
		req.Header.Set("Authorization", "Bearer "+f.key)
		req.Header.Set("Accept", eventStream)
		var res *http.Response
		if res, err = f.web.Do(req); err == nil {
			defer res.Body.Close()
			close(ready)
			one.read(res.Body)
		}
	}
	if err != nil {
		f.t.Error(err)
		close(ready)
	}
}

const eventStream = "text/event-stream"

func (one *follower) read(body io.Reader) {
	for in := bufio.NewScanner(body); in.Scan(); {
		name, value, _ := strings.Cut(in.Text(), ": ")
		switch {
		case name == "id":
			one.last.Store(value)
		case name == "event" && value == "create":
			one.created.Add(1)
		case name == "event" && value == "gap":
			one.gaps.Add(1)
		}
	}
}

// runRound sends requests of every kind, several at a time, and returns how long that took.
func (f *soak) runRound() time.Duration {
	begun, n := time.Now(), f.rounds
	f.rounds++
	queue := make(chan func())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for do := range queue {
				do()
			}
		})
	}
	for i, uid := range f.uids {
		queue <- func() { f.useAccount(i, uid, n) }
	}
	for i := range 5 {
		queue <- func() { f.createAndDelete(fmt.Sprintf("visitor%d-%d", n, i)) }
	}
	f.made += 5
	queue <- f.useAsStrangers
	queue <- func() { f.useDirectory(n) }
	f.made++
	if n%10 == 0 {
		queue <- f.importAccounts
		f.made += imported
	}
	queue <- f.sendBrokenRequests
	queue <- f.listenBriefly
	close(queue)
	all.Wait()
	return time.Since(begun)
}

// useAccount uses an account that stays.
func (f *soak) useAccount(i int, uid string, n int) {
	path, name := "/v1/types/user/entries/"+uid, fmt.Sprintf("resident%d", i)
	again := f.expect(201, "POST", "/v1/types/user/entries", fmt.Sprintf(`{"facets":{"name":"resident%d","email":"resident%d@x.org"},"password":"battery staple 9"}`, i, i), "Idempotency-Key", fmt.Sprint(i))
	if again.str("uid") != uid {
		f.t.Errorf("a repeated request returned another entry: %s", again.text)
	}
	f.expect(200, "GET", path, "")
	f.expect(200, "POST", "/v1/types/user/lookup", `{"value":"`+strings.ToUpper(name)+`"}`)
	f.expect(200, "PATCH", path, fmt.Sprintf(`{"facets":{"age":%d,"job":"job%d"}}`, n%1000, n%7))
	f.expect(200, "PUT", path+"/tags", fmt.Sprintf(`{"tags":["all","tag%d"]}`, n%5))
	origin := fmt.Sprintf(`"origin":"192.0.2.%d"`, i)
	if r := f.request("POST", "/v1/types/user/login", `{"identifier":"`+name+`","password":"wrong",`+origin+`}`); r.status != 401 && r.status != 429 {
		f.t.Errorf("a wrong password got %d %s, want 401 or 429", r.status, r.text)
	}
	f.expect(204, "DELETE", path+"/waits", "")
	in := `{"identifier":"` + name + `","password":"battery staple 9","agent":"test",` + origin + `,"session":`
	first := f.expect(200, "POST", "/v1/types/user/login", in+`{}}`).str("session.secret")
	// Nobody ends this session.
	f.expect(200, "POST", "/v1/types/user/login", in+`{"life":"1m","idle":"1m"}}`)
	f.expect(200, "POST", "/v1/session", `{"secret":"`+first+`"}`)
	f.expect(200, "POST", "/v1/session/verify", `{"secret":"`+first+`","password":"battery staple 9"}`)
	f.expect(204, "GET", "/v1/session/check", "", "Cookie", "session="+first)
	f.expect(200, "GET", path+"/sessions", "")
	f.expect(204, "POST", "/v1/session/end", `{"secret":"`+first+`"}`)
	token := f.expect(200, "POST", "/v1/types/user/tokens", `{"purpose":"in","uid":"`+uid+`"}`).str("secret")
	f.expect(200, "POST", "/v1/tokens/peek", `{"purpose":"in","secret":"`+token+`"}`)
	f.expect(200, "POST", "/v1/tokens/redeem", `{"purpose":"in","secret":"`+token+`"}`)
	f.expect(200, "POST", "/v1/types/user/tokens", `{"purpose":"lost","uid":"`+uid+`","life":"1m"}`)
	f.expect(200, "PUT", path+"/password", `{"password":"battery staple 9"}`)
	f.expect(200, "GET", path+"/history", "")
}

func (f *soak) createAndDelete(name string) {
	path := f.expect(201, "POST", "/v1/types/user/entries", `{"facets":{"name":"`+name+`","email":"`+name+`@x.org","age":1},"tags":["all"],"password":"battery staple 9"}`).header.Get("Location")
	f.expect(409, "POST", "/v1/types/user/entries", `{"facets":{"name":"`+name+`"}}`)
	f.expect(200, "POST", "/v1/types/user/login", `{"identifier":"`+name+`","password":"battery staple 9","session":{}}`)
	f.expect(200, "POST", "/v1/types/user/tokens", `{"purpose":"lost","uid":"`+path[strings.LastIndex(path, "/")+1:]+`"}`)
	f.expect(204, "POST", path+"/disable", "")
	f.expect(204, "POST", path+"/enable", "")
	f.expect(204, "DELETE", path, "")
	f.expect(404, "GET", path, "")
}

// useAsStrangers sends requests without an account, a valid key or a valid body, and requests that
// are not about one account.
func (f *soak) useAsStrangers() {
	for i := range 3 {
		if r := f.request("POST", "/v1/types/user/login", fmt.Sprintf(`{"identifier":"nobody%d","password":"wrong","origin":"198.51.100.%d"}`, i, i)); r.status != 401 && r.status != 429 {
			f.t.Errorf("a login to an unknown account got %d %s, want 401 or 429", r.status, r.text)
		}
		f.request("POST", "/v1/types/user/invitations", fmt.Sprintf(`{"field":"email","address":"guest%d@x.org","life":"1m"}`, i))
	}
	f.request("GET", "/v1/schema", "", "Authorization", "Bearer udb_wrong")
	f.expect(422, "POST", "/v1/types/user/entries", `{"facets":{"email":"x"}}`)
	f.expect(400, "POST", "/v1/types/user/entries", `{"facets":`)
	f.expect(200, "GET", "/v1/types/user/entries?order=age&tag=all&limit=20", "")
	f.expect(200, "GET", "/v1/types/user/count", "")
	f.expect(200, "GET", "/v1/status", "")
	f.expect(200, "GET", "/readyz", "")
	f.expect(200, "GET", "/v1/types/user/export", "")
}

// useDirectory creates and deletes a user of a directory in a group.
func (f *soak) useDirectory(n int) {
	user := f.expect(201, "POST", "/scim/v2/Users", fmt.Sprintf(`{%s"userName":"employee%d@x.org","externalId":"X%d"}`, userURN, n, n)).str("id")
	group := f.expect(201, "POST", "/scim/v2/Groups", fmt.Sprintf(`{%s"displayName":"Group %d","members":[{"value":%q}]}`, groupURN, n, user)).str("id")
	f.expect(200, "GET", fmt.Sprintf("/scim/v2/Users?filter=externalId%%20eq%%20%%22X%d%%22", n), "")
	f.expect(200, "PATCH", "/scim/v2/Users/"+user, `{`+patchURN+`"Operations":[{"op":"replace","path":"active","value":false}]}`)
	f.expect(204, "PATCH", "/scim/v2/Groups/"+group, `{`+patchURN+`"Operations":[{"op":"remove","path":"members"}]}`)
	f.expect(204, "DELETE", "/scim/v2/Groups/"+group, "")
	f.expect(204, "DELETE", "/scim/v2/Users/"+user, "")
}

const imported = 50

// importAccounts imports accounts along with many lines that are refused, and deletes the accounts.
func (f *soak) importAccounts() {
	var lines strings.Builder
	for i := range imported {
		fmt.Fprintf(&lines, `{"facets":{"uid":"imported%d","name":"imported%d"}}`+"\n"+`{"facets":{"name":"imported%d"}}`+"\n"+`{"facets":{"email":"%d"}}`+"\n", i, i, i, i)
	}
	r := f.expect(200, "POST", "/v1/types/user/import?on_duplicate=skip", lines.String())
	if !strings.Contains(r.text, fmt.Sprintf(`"created":%d,`, imported)) {
		f.t.Errorf("import: got %s, want %d created accounts", r.text, imported)
		return
	}
	for i := range imported {
		f.expect(204, "DELETE", fmt.Sprintf("/v1/types/user/entries/imported%d", i), "")
	}
}

// sendBrokenRequests sends requests of clients that disconnect in the middle of a body or never
// read their response.
func (f *soak) sendBrokenRequests() {
	for _, request := range []string{
		"POST /v1/types/user/lookup HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + f.key + "\r\nContent-Length: 100\r\n\r\n{",
		"POST /v1/types/user/import HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + f.key + "\r\nContent-Length: 100\r\n\r\n{",
		"GET /v1/types/user/export HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + f.key + "\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
		if err != nil {
			f.t.Error(err)
			return
		}
		if _, err := io.WriteString(conn, request); err != nil {
			f.t.Error(err)
		}
		conn.Close()
	}
}

// listenBriefly opens the feed at the position of a follower, and disconnects.
func (f *soak) listenBriefly() {
	ctx, leave := context.WithCancel(f.Ctx)
	defer leave()
	req, err := http.NewRequestWithContext(ctx, "GET", f.url+"/v1/events", nil)
	if err != nil {
		f.t.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+f.key)
	req.Header.Set("Accept", eventStream)
	if last, ok := f.followers[0].last.Load().(string); ok {
		req.Header.Set("Last-Event-ID", last)
	}
	res, err := f.web.Do(req)
	if err != nil {
		f.t.Error(err)
		return
	}
	defer res.Body.Close()
	if res.StatusCode != 200 {
		f.t.Errorf("listening got %s, want 200", res.Status)
	}
}
