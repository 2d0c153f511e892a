package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/serve"
)

// hostileTexts lists texts that a client may send in place of any other.
var hostileTexts = []string{
	"", " ", "x", "user/uid:alice", "~", "~~userdb", "*", "[c-a]", "..", ".", "../../x", "a/b", "a\x00b", "\x00", "é", "\u202e", "{", "}", "{x}", "%2F", "%00",
	"' OR 1=1", "\n", "\r\nX: y", strings.Repeat("x", 300), strings.Repeat("é/", 2000), "-1", "1e999", "null", "true", "[]", `{"a":1}`, "\xff\xfe", "9999999999999999999",
}

// TestHostilePaths checks that a path segment is always a single text, however it is written, and
// never leads to another path.
func TestHostilePaths(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		for _, uid := range []string{"a/b", "..", ".", "a b", "a%2Fb", "é", "{x}", "a?b=c", "a#b", "user/uid:alice", "~own", "*", "a;b", "a:b", "a\\b", "-x"} {
			body, err := json.Marshal(map[string]any{"uid": uid})
			must(t, err)
			r := c.do("201", "POST", "/v1/types/user/entries", string(body))
			path := r.header.Get("Location")
			c.equal("UID", c.do("200", "GET", path, "").str("uid"), uid)
			tag := "/tags/" + strings.ReplaceAll(url.PathEscape(uid), ".", "%2E")
			c.do("204", "PUT", path+tag, "")
			c.equal("tag", c.do("200", "GET", path+"/tags", "").body["tags"].([]any)[0].(string), uid)
			c.do("204", "DELETE", path+tag, "")
			c.do("204", "DELETE", path, "")
		}
		for _, path := range []string{
			"/v1/types/user/entries/", "/v1//types/user/entries/x", "/v1/types/user/../user/entries/x", "/v1/types/user/entries/x/../../../status",
			"/v1/types/user/entries/%2e%2e/%2e%2e/status", "/v1/types//entries/x", "/v1/types/user/entries/x%00y", "/v1/types/%2e%2e/entries/x",
			"/v1/types/user%2Fentries/x", "//v1/status", "/V1/status", "/v1/types/user/entries/" + strings.Repeat("x", 9000),
		} {
			if r := c.send("GET", path, ""); r.status != 404 || strings.Contains(r.text, "alice") {
				t.Errorf("%s: got %d %s, want 404", path, r.status, r.text)
			}
		}
		for _, uid := range hostileTexts {
			if uid == "" || strings.Contains(uid, "\n") {
				continue
			}
			r := c.send("GET", "/v1/types/user/entries/"+url.PathEscape(uid), "")
			if r.status != 404 && r.status != 301 && r.status != 307 {
				t.Errorf("UID %q: got %d %s, want 404 or a redirect", uid, r.status, r.text)
			}
		}
	})
}

// A valueGenerator generates values for a JSON schema of /openapi.json, both valid and invalid.
type valueGenerator struct {
	rnd     *rand.Rand
	schemas map[string]any
	known   []string // texts that have a meaning in the store
	secrets []string // used where a secret is expected
}

func (s valueGenerator) text() string {
	if s.rnd.IntN(2) == 0 {
		return s.known[s.rnd.IntN(len(s.known))]
	}
	return hostileTexts[s.rnd.IntN(len(hostileTexts))]
}

// secret returns a secret or any other text.
func (s valueGenerator) secret() string {
	if s.rnd.IntN(2) == 0 {
		return s.secrets[s.rnd.IntN(len(s.secrets))]
	}
	return s.text()
}

// value returns a value for a schema. One in eight, and any that is nested deeply, may have another
// type.
func (s valueGenerator) value(schema map[string]any, depth int) any {
	if ref, ok := schema["$ref"].(string); ok {
		schema, _ = s.schemas[ref[strings.LastIndex(ref, "/")+1:]].(map[string]any)
	}
	if s.rnd.IntN(8) == 0 || depth > 6 {
		return []any{nil, true, -1, 1e300, s.text(), []any{s.text()}, map[string]any{s.text(): s.text()}}[s.rnd.IntN(7)]
	}
	kind := schema["type"]
	if several, ok := kind.([]any); ok {
		kind = several[0]
	}
	switch kind {
	case "object":
		out := map[string]any{}
		properties, _ := schema["properties"].(map[string]any)
		for name, p := range properties {
			switch {
			case name == "secret" || name == "password" || name == "current":
				out[name] = s.secret()
			case s.rnd.IntN(3) > 0:
				out[name] = s.value(p.(map[string]any), depth+1)
			}
		}
		if more, ok := schema["additionalProperties"].(map[string]any); ok {
			for range s.rnd.IntN(3) {
				out[[]string{"name", "email", "age", "job", "added", s.text()}[s.rnd.IntN(6)]] = s.value(more, depth+1)
			}
		}
		return out
	case "array":
		items, _ := schema["items"].(map[string]any)
		out := []any{}
		for range s.rnd.IntN(3) {
			out = append(out, s.value(items, depth+1))
		}
		return out
	case "boolean":
		return s.rnd.IntN(2) == 0
	case "integer", "number":
		return s.rnd.IntN(300) - 50
	}
	return s.text()
}

// TestFuzzedRoutes sends requests to every operation, some that its description allows and some
// that it does not allow. It checks that no request causes a failure of the service, and that
// neither responses nor the log contain a secret.
func TestFuzzedRoutes(t *testing.T) {
	const secretPassword = "battery staple 9"
	eachService(t, func(t *testing.T, c *client) {
		c.create(alice)
		session := c.do("200", "POST", "/v1/types/user/login", `{"identifier":"alice","password":"battery staple 9","session":{}}`).str("session.secret")
		token := c.do("200", "POST", "/v1/types/user/tokens", `{"purpose":"p","uid":"alice"}`).str("secret")
		var doc struct {
			Paths      map[string]map[string]json.RawMessage `json:"paths"`
			Components struct{ Schemas map[string]any }      `json:"components"`
		}
		must(t, json.Unmarshal([]byte(c.do("200", "GET", "/openapi.json", "").text), &doc))
		rnd := rand.New(rand.NewPCG(1, 2))
		s := valueGenerator{rnd, doc.Components.Schemas, []string{"alice", "Alice", "alice@example.com", "user", "email", "name", "p", "1h", "30d", "fail", "age"}, []string{secretPassword, session, token, c.key}}
		for _, o := range c.operations() {
			raw := doc.Paths[o.Path][strings.ToLower(o.Method)]
			var op struct {
				Parameters  []struct{ Name, In string }
				RequestBody struct {
					Content map[string]struct{ Schema map[string]any }
				}
			}
			must(t, json.Unmarshal(raw, &op))
			for range 40 {
				path, query, headers := o.Path, url.Values{}, []string{}
				for _, p := range op.Parameters {
					switch p.In {
					case "path":
						text := s.text()
						if p.Name == "type" && rnd.IntN(8) > 0 {
							text = "user"
						}
						path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(text))
					case "query":
						if rnd.IntN(3) == 0 {
							query.Add(p.Name, s.text())
						}
					case "header":
						if rnd.IntN(3) == 0 {
							headers = append(headers, p.Name, strings.Map(func(r rune) rune {
								if r < ' ' || r > '~' {
									return -1
								}
								return r
							}, s.text()))
						}
					}
				}
				if len(query) > 0 {
					path += "?" + query.Encode()
				}
				body := ""
				for _, content := range op.RequestBody.Content {
					text, err := json.Marshal(s.value(content.Schema, 0))
					must(t, err)
					if body = string(text); rnd.IntN(16) == 0 {
						body = body[:len(body)/2]
					}
				}
				r := c.send(o.Method, path, body, headers...)
				if r.status >= 500 {
					t.Errorf("%s %s %v %s: got %d %s, want no server error", o.Method, path, headers, body, r.status, r.text)
				}
				if r.status >= 400 && r.str("code") == "" {
					t.Errorf("%s %s: not a problem: %d %s", o.Method, path, r.status, r.text)
				}
				if strings.Contains(r.text, secretPassword) || strings.Contains(r.text, c.key) || strings.Contains(r.text, "$2a$") || r.status >= 400 && strings.Contains(r.text, session) {
					t.Errorf("%s %s %s: the response contains a secret: %s", o.Method, path, body, r.text)
				}
			}
		}
		for _, secret := range []string{session, token, secretPassword, c.key, "alice"} {
			if strings.Contains(c.logs.String(), secret) {
				t.Errorf("the log has %q", secret)
			}
		}
	})
}

// TestQueryText checks that every parameter of a query refuses bytes that are not UTF-8 and control
// characters, whether or not the rest of the request is right. The text of a field may have several
// lines.
func TestQueryText(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		var doc struct {
			Paths map[string]map[string]struct {
				Parameters []struct{ Name, In string }
			}
		}
		must(t, json.Unmarshal([]byte(c.do("200", "GET", "/openapi.json", "").text), &doc))
		params := 0
		for path, item := range doc.Paths {
			path = strings.NewReplacer("{type}", "user", "{uid}", "nobody", "{tag}", "x", "{id}", "x", "{field}", "email").Replace(path)
			for method, op := range item {
				for _, p := range op.Parameters {
					if p.In != "query" {
						continue
					}
					params++
					for _, text := range []string{"%ff", "a%00b", "name:%1f", "name:a%c2%85", "n.%7f"} {
						query := path + "?" + p.Name + "=" + text
						if r := c.do("400 usage", strings.ToUpper(method), query, ""); !strings.Contains(r.text, "control character") {
							t.Errorf("%s %s: the problem does not mention the control character: %s", method, query, r.text)
						}
					}
				}
			}
		}
		if params < 20 {
			t.Errorf("the document has %d parameters, want at least 20", params)
		}
		c.do("400 usage", "GET", "/v1/types/user/entries?tag=a%0ab", "")
		c.do("400 usage", "GET", "/v1/types/user/entries?a%ffb=c", "")
		c.do("200", "GET", "/v1/types/user/entries?where=email:a%0ab%09", "")
	})
}

// TestDirectoryQueryText checks the same as TestQueryText for the parameters of directories.
func TestDirectoryQueryText(t *testing.T) {
	eachDirectory(t, func(t *testing.T, c *client) {
		for _, name := range []string{"filter", "attributes", "excludedAttributes", "startIndex", "sortBy", "other"} {
			want := "400"
			if name == "filter" {
				want = "400 invalidFilter"
			}
			for _, text := range []string{"%ff", "userName+eq+%22a%01%22", "a%00"} {
				c.scim(want, "GET", "/Users?"+name+"="+text, "")
			}
		}
	})
}

// sendRaw sends bytes unchanged and returns the response.
func (c *client) sendRaw(text string) string {
	c.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.url, "http://"))
	must(c.t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, text)
	must(c.t, err)
	must(c.t, conn.(*net.TCPConn).CloseWrite())
	answer, _ := io.ReadAll(conn) // a broken connection also counts as a response
	return string(answer)
}

// TestSmuggling checks that a request whose end is ambiguous is handled as one request, or refused.
func TestSmuggling(t *testing.T) {
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c := newClient(t, s, serve.Options{})
	head := "POST /v1/types/user/entries HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + c.key + "\r\n"
	for _, text := range []string{
		head + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n",
		head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
		head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
		head + "Content-Length: +2\r\n\r\n{}",
		head + "Content-Length : 2\r\n\r\n{}",
		"GET /v1/status HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 1<<21) + "\r\n\r\n",
		"GET /v1/status HTTP/9.9\r\n\r\n", "\r\n\r\n", "GET\r\n", strings.Repeat("A", 1<<17),
	} {
		answer := c.sendRaw(text)
		if strings.Count(answer, "HTTP/1.1 2") > 0 && strings.Count(answer, "HTTP/1.") > 1 {
			t.Errorf("%.200q: got two responses: %q", text, answer)
		}
		if !strings.HasPrefix(answer, "HTTP/1.1 4") && !strings.HasPrefix(answer, "HTTP/1.1 5") && answer != "" && !strings.HasPrefix(answer, "HTTP/1.1 201") {
			t.Errorf("%.200q: got %.300q, want an error or 201", text, answer)
		}
	}
	c.do("200", "GET", "/v1/schema", "")
}

// TestRepeatedHeaders checks that a request is refused if it repeats a header that takes one value,
// but not if it repeats one that is a list.
func TestRepeatedHeaders(t *testing.T) {
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c := newClient(t, s, serve.Options{})
	for name, tt := range map[string]struct {
		values []string
		want   int // at any other path than the one where a proxy checks a session
		check  int // at that path
	}{
		"Authorization":   {[]string{"Bearer " + c.key, "Bearer " + c.key}, http.StatusBadRequest, http.StatusBadRequest},
		"Content-Type":    {[]string{"text/plain", "application/json"}, http.StatusBadRequest, http.StatusUnauthorized},
		"Idempotency-Key": {[]string{"a", "b"}, http.StatusBadRequest, http.StatusUnauthorized},
		"Last-Event-Id":   {[]string{"a", "a"}, http.StatusBadRequest, http.StatusUnauthorized},
		"Accept":          {[]string{"text/plain", "application/json"}, http.StatusOK, http.StatusUnauthorized},
	} {
		for path, want := range map[string]int{"/v1/schema": tt.want, "/v1/session/check": tt.check} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+path, nil)
			must(t, err)
			req.Header.Set("Authorization", "Bearer "+c.key)
			req.Header[name] = tt.values
			resp, err := http.DefaultClient.Do(req)
			must(t, err)
			text, err := io.ReadAll(resp.Body)
			must(t, errors.Join(err, resp.Body.Close()))
			if resp.StatusCode != want || want == http.StatusBadRequest && !strings.Contains(string(text), `"code":"usage"`) {
				t.Errorf("%s at %s: got %d %s, want %d", name, path, resp.StatusCode, text, want)
			}
		}
	}
}

// TestMalformedRequests checks that docs/errors.md names the statuses with which net/http answers
// requests that never reach the service.
func TestMalformedRequests(t *testing.T) {
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c := newClient(t, s, serve.Options{})
	page, err := os.ReadFile("../docs/errors.md")
	must(t, err)
	_, paragraph, found := strings.Cut(string(page), "A request that is not valid HTTP")
	paragraph, _, _ = strings.Cut(paragraph, "\n\n")
	if !found {
		t.Fatal("docs/errors.md does not describe requests that are not valid HTTP")
	}
	for request, want := range map[string]string{
		"GET\r\n\r\n":                   "400",
		"GET /healthz HTTP/1.1\r\n\r\n": "400",
		"GET /healthz HTTP/1.1\r\nHost: a\r\nExpect: more\r\n\r\n":                               "417",
		"GET /healthz HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", 1<<20+4096) + "\r\n\r\n": "431",
		"GET /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n":                    "501",
		"GET /healthz HTTP/3.0\r\nHost: a\r\n\r\n":                                               "505",
		"OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n":                             "200",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(c.url, "http://"))
		must(t, err)
		_, _ = io.WriteString(conn, request) // the server may close before it has read everything
		line, err := bufio.NewReader(conn).ReadString('\n')
		must(t, errors.Join(err, conn.Close()))
		if status := strings.Fields(line)[1]; status != want || !strings.Contains(paragraph, want) {
			t.Errorf("%.60q: got %s, want %s, and docs/errors.md must name it", request, status, want)
		}
	}
}

// TestSplitLists checks that the lines of a header whose value is a list count as one list.
func TestSplitLists(t *testing.T) {
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c := newClient(t, s, serve.Options{})
	path := "/v1/types/user/entries/alice"
	etag := c.do("201", "POST", "/v1/types/user/entries", `{"uid":"alice","facets":{"name":"Alice"}}`).header.Get("ETag")
	for _, tt := range []struct {
		method, header string
		want           int
	}{
		{http.MethodGet, "If-None-Match", http.StatusNotModified},
		{http.MethodDelete, "If-Match", http.StatusNoContent},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, c.url+path, nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+c.key)
		req.Header[tt.header] = []string{`"x"`, etag}
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		if must(t, resp.Body.Close()); resp.StatusCode != tt.want {
			t.Errorf("%s with two lines of %s: got %d, want %d", tt.method, tt.header, resp.StatusCode, tt.want)
		}
	}
}

// TestEmptyConditions checks that an empty If-Match or Idempotency-Key is refused, because the
// change would otherwise have no condition. The session check, which ignores both headers, accepts
// them.
func TestEmptyConditions(t *testing.T) {
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c := newClient(t, s, serve.Options{})
	path := c.create(`{"uid":"alice","facets":{"name":"Alice"}}`)
	c.do("400 usage", "PATCH", path, `{"facets":{"name":"Bob"}}`, "If-Match", "")
	c.do("400 usage", "DELETE", path, "", "If-Match", " ")
	c.do("400 usage", "POST", "/v1/types/user/entries", `{"uid":"bob"}`, "Idempotency-Key", "")
	c.do("404 not_found", "GET", "/v1/types/user/entries/bob", "")
	if name := c.do("200", "GET", path, "").body["facets"].(map[string]any)["name"]; name != "Alice" {
		t.Errorf("the name is %q, want Alice", name)
	}
	c.do("401 login", "GET", "/v1/session/check", "", "If-Match", "", "Idempotency-Key", "")
}

// TestTooManyAtOnce checks that requests beyond the limit are refused with a Retry-After, that the
// requests already running succeed, and that requests whose bodies are still arriving do not count.
func TestTooManyAtOnce(t *testing.T) {
	defer serve.SetMaxConcurrent(1)()
	defer serve.SetSchemaMaxAge(time.Hour)()
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c, _ := newClient(t, s, serve.Options{}).withClock()
	c.do("200", "GET", "/v1/types/user/entries", "")
	var pending []func() reply
	for range 3 {
		pending = append(pending, c.startRequest("POST", "/v1/types/user/lookup", `{"value":"nobody"}`))
	}
	c.do("200", "GET", "/v1/schema", "")
	end := c.occupySlot("/v1/types/user/entries")
	if r := c.do("503 unavailable", "GET", "/v1/schema", ""); r.header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After: %v %s", r.header, r.text)
	}
	if r := pending[0](); r.status != 503 {
		t.Errorf("a body that arrives meanwhile got %d %s, want 503", r.status, r.text)
	}
	c.do("200", "GET", "/healthz", "")
	end()
	c.do("200", "GET", "/v1/schema", "")
	for _, finish := range pending[1:] {
		if r := finish(); r.status != 404 {
			t.Errorf("a request whose body arrives later got %d %s, want 404", r.status, r.text)
		}
	}
}

// TestDrain checks that requests that were accepted before the service shuts down are answered.
func TestDrain(t *testing.T) {
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c := newClient(t, s, serve.Options{})
	service, err := serve.New(s.DB, serve.Options{})
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx, l) }()
	conn, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/types/user/lookup HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nExpect: 100-continue\r\nContent-Length: 18\r\n\r\n", c.key)
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n') // the request was accepted, and the service waits for its body
	if must(t, err); !strings.Contains(line, "100") {
		t.Fatalf("got the line %q, want the status 100", line)
	}
	stop()
	for begin := time.Now(); time.Since(begin) < 20*time.Second; time.Sleep(5 * time.Millisecond) {
		other, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			break // the service accepts no more connections
		}
		other.Close()
	}
	_, err = io.WriteString(conn, `{"value":"nobody"}`)
	must(t, err)
	_, _ = in.ReadString('\n') // the empty line after the 100
	res, err := http.ReadResponse(in, nil)
	must(t, err)
	if res.Body.Close(); res.StatusCode != 404 {
		t.Errorf("a request accepted before the shutdown got %d, want 404", res.StatusCode)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v, want nil", err)
	}
}

// TestSlowClients checks that the service closes the connection of a client that stops before its
// header, in it, or in its body.
func TestSlowClients(t *testing.T) {
	defer serve.SetReadTimeouts(200 * time.Millisecond)()
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c := newClient(t, s, serve.Options{})
	service, err := serve.New(s.DB, serve.Options{})
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx, l) }()
	for _, text := range []string{
		"GET /v1/status HTTP/1.1\r\nHost: x\r\nX: ",
		"POST /v1/types/user/lookup HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + c.key + "\r\nContent-Length: 100\r\n\r\n{",
		"",
	} {
		conn, err := net.Dial("tcp", l.Addr().String())
		must(t, err)
		_, err = io.WriteString(conn, text)
		must(t, err)
		answer, _ := io.ReadAll(conn) // hangs unless the service closes the connection
		if strings.Contains(string(answer), "HTTP/1.1 2") {
			t.Errorf("%.30q: got the response %s, want none or an error", text, answer)
		}
		conn.Close()
	}
	stop()
	must(t, <-ended)
}

// TestLongHosts checks that no route takes a request whose host is longer than a name can be,
// because responses repeat the host.
func TestLongHosts(t *testing.T) {
	sc, o := directorySchema()
	c := newClient(t, testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), sc), serve.Options{SCIM: &o, Console: true})
	for _, path := range []string{"/v1/schema", "/scim/v2/Users", "/scim/v2/Schemas", "/console/signin", "/openapi.json", "/nosuch"} {
		for length, refused := range map[int]bool{255: false, 256: true, 10_000: true} {
			req, err := http.NewRequestWithContext(c.Ctx, "GET", c.url+path, nil)
			must(t, err)
			req.Host = strings.Repeat("h", length)
			req.Header.Set("Authorization", "Bearer "+c.key)
			res, err := http.DefaultTransport.RoundTrip(req)
			must(t, err)
			text, err := io.ReadAll(res.Body)
			must(t, err)
			res.Body.Close()
			if (res.StatusCode == 400) != refused || refused && !json.Valid(text) {
				t.Errorf("%s with a host of %d bytes: got %d %.100s, want a refusal: %t", path, length, res.StatusCode, text, refused)
			}
		}
	}
}
