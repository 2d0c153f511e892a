package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
)

// eventKinds returns the kinds and UIDs of the events in a response.
func (r reply) eventKinds() (all []string) {
	events, _ := r.body["events"].([]any)
	for _, e := range events {
		m := e.(map[string]any)
		uid, _ := m["uid"].(string)
		all = append(all, strings.TrimSpace(fmt.Sprint(m["kind"], " ", uid)))
	}
	return all
}

// waitForEvents waits until the feed has as many events as wanted, and returns them.
func (c *client) waitForEvents(want int, query string) reply {
	c.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		r := c.do("200", "GET", "/v1/events?limit=1000"+query, "")
		if n := len(r.eventKinds()); n >= want || time.Now().After(deadline) {
			if n != want {
				c.t.Fatalf("got %d events, want %d: %s", n, want, r.text)
			}
			return r
		}
	}
}

// TestHistory checks that the history of an entry and the feed contain what API keys did, with the
// address of the visitor and without values.
func TestHistory(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		path := c.create(alice)
		c.do("200", "PATCH", path, `{"facets":{"email":"new@example.com","job":null}}`)
		c.do("200", "PUT", path+"/password", `{"password":"battery staple 10","current":"battery staple 9","origin":"192.0.2.7","session":{}}`)
		c.do("401 login", "POST", "/v1/types/user/login", `{"identifier":"alice","password":"x","origin":"192.0.2.8"}`)
		c.do("401 login", "POST", "/v1/types/user/login", `{"identifier":"nobody","password":"x","origin":"192.0.2.8"}`)
		token := c.do("200", "POST", "/v1/types/user/tokens", `{"purpose":"in","uid":"alice"}`).str("secret")
		c.do("200", "POST", "/v1/tokens/redeem", `{"purpose":"in","secret":"`+token+`","origin":"192.0.2.9"}`)
		c.do("204", "POST", path+"/disable", "")
		c.do("201", "POST", "/v1/types/firm/entries", `{"uid":"cat"}`)

		r := c.do("200", "GET", path+"/history", "")
		want := "disable alice,redeem alice,issue alice,session_start alice,password alice,identifier alice,update alice,create alice"
		c.equal("history", strings.Join(r.eventKinds(), ","), want)
		first := r.body["events"].([]any)[1].(map[string]any)
		c.equal("who", fmt.Sprint(first["who"], first["origin"], first["type"], first["purpose"]), "key:all192.0.2.9userin")
		for _, value := range []string{"example.com", "cook", "battery"} {
			if strings.Contains(r.text, value) {
				t.Errorf("the history has %s: %s", value, r.text)
			}
		}
		r = c.waitForEvents(11, "")
		if kinds := r.eventKinds(); !slices.Contains(kinds, "login_failed") || !slices.Contains(kinds, "login_failed alice") || !slices.Contains(kinds, "create cat") {
			t.Errorf("the feed has %v, want login_failed with and without alice, and create cat", kinds)
		}
		c.equal("events after the last one", fmt.Sprint(c.do("200", "GET", "/v1/events?after="+r.str("next"), "").eventKinds()), "[]")
		c.equal("events of one kind", fmt.Sprint(c.waitForEvents(1, "&kind=disable").eventKinds()), "[disable alice]")
		c.equal("events of two kinds", fmt.Sprint(c.waitForEvents(2, "&kind=disable&kind=password").eventKinds()), "[password alice disable alice]")
		firms := c.withKey(c.makeKey(admin.Key{Name: "firms", Scopes: []string{"admin"}, Types: []string{"firm"}}))
		c.equal("events of one type", fmt.Sprint(firms.waitForEvents(1, "").eventKinds()), "[create cat]")
		for query, want := range map[string]string{"after=x": "usage", "limit=0": "usage", "limit=x": "usage", "kind=nosuch": "usage", "kind=": "usage", "kind=create&kind=": "usage", "nosuch=1": "usage", "after=x&after=y": "usage"} {
			c.do("400 "+want, "GET", "/v1/events?"+query, "")
		}
		c.do("404 not_found", "GET", "/v1/types/user/entries/nobody/history", "")
	})
}

// An eventReader reads the event stream of a listener.
type eventReader struct {
	t      *testing.T
	cancel context.CancelFunc
	res    *http.Response
	in     *bufio.Scanner
	last   string // the last ID
}

func (c *client) listen(after string) *eventReader {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.Ctx, 5*time.Minute)
	req, err := http.NewRequestWithContext(ctx, "GET", c.url+"/v1/events", nil)
	must(c.t, err)
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("Accept", "text/event-stream")
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	must(c.t, err)
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		c.t.Fatalf("listening got %s with the header %v, want 200 and an event stream", res.Status, res.Header)
	}
	c.t.Cleanup(func() { cancel(); res.Body.Close() })
	return &eventReader{t: c.t, cancel: cancel, res: res, in: bufio.NewScanner(res.Body)}
}

// next returns the next n events as kind and UID. It skips pings.
func (h *eventReader) next(n int) (all []string) {
	h.t.Helper()
	event := ""
	for len(all) < n && h.in.Scan() {
		name, value, _ := strings.Cut(h.in.Text(), ": ")
		switch name {
		case "id":
			h.last = value
		case "event":
			event = value
		case "data":
			var e serve.Event
			must(h.t, json.Unmarshal([]byte(value), &e))
			all = append(all, strings.TrimSpace(event+" "+e.UID))
		}
	}
	if len(all) < n {
		h.t.Fatalf("the stream ended after %v: %v", all, h.in.Err())
	}
	return all
}

// TestEventStream checks that a stream sends events as they happen, and that after an interruption
// it continues without losing or repeating any.
func TestEventStream(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		other := newOtherService(t, c)
		one := c.listen("")
		create := func(c *client, from, to int) (want []string) {
			for i := from; i < to; i++ {
				c.create(fmt.Sprintf(`{"uid":"u%03d"}`, i))
				want = append(want, fmt.Sprintf("create u%03d", i))
			}
			return want
		}
		want := create(c, 0, 10)
		got := one.next(10)
		slices.Sort(got) // a cluster orders only the events of one entry
		c.equal("events as they happen", fmt.Sprint(got), fmt.Sprint(want))
		one.cancel()
		want = create(other, 10, 30)
		c.waitForEvents(30, "")
		two := c.listen(one.last)
		got = two.next(7)
		two.cancel()
		three := other.listen(two.last)
		got = append(got, three.next(13)...)
		want = append(want, create(c, 30, 35)...)
		got = append(got, three.next(5)...)
		slices.Sort(got)
		c.equal("events after interruptions", fmt.Sprint(got), fmt.Sprint(want))
		var all sync.WaitGroup
		for range 200 {
			l := c.listen("")
			all.Go(func() {
				got := l.next(20)
				if slices.Sort(got); got[0] != "create u035" || got[19] != "create u054" {
					t.Errorf("one of many listeners got %v, want create u035 to create u054", got)
				}
			})
		}
		create(other, 35, 55)
		all.Wait()
	})
}

// TestEventGap checks that a listener first receives the event gap if events that it has not
// received are missing from the feed.
func TestEventGap(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, testSchema()), serve.Options{})
		c.create(`{"uid":"a"}`)
		after := c.waitForEvents(1, "").str("next")
		c.create(`{"uid":"b"}`)
		c.waitForEvents(2, "")
		for _, key := range c.Raw.Keys(c.Ctx, "*~/feed/{*changes*").Val() {
			must(t, c.Raw.XTrimMaxLen(c.Ctx, key, 0).Err())
		}
		if r := c.do("200", "GET", "/v1/events?after="+after, ""); r.str("gap") != "true" || len(r.eventKinds()) != 0 {
			t.Errorf("got the page %s, want one that reports a gap and has no events", r.text)
		}
		l := c.listen(after)
		c.create(`{"uid":"c"}`)
		c.equal("stream after a gap", fmt.Sprint(l.next(2)), "[gap create c]")

		c.create(`{"uid":"d"}`)
		l.next(1)
		// Lose the event, as a failover could.
		for _, key := range c.Raw.Keys(c.Ctx, "*~/feed/{*changes*").Val() {
			for _, m := range c.Raw.XRange(c.Ctx, key, "-", "+").Val() {
				if strings.Contains(fmt.Sprint(m.Values), "uid:d ") {
					must(t, c.Raw.XDel(c.Ctx, key, m.ID).Err())
				}
			}
		}
		other := newOtherService(t, c) // this process has not read the event
		lost := other.listen(l.last)
		c.equal("stream after a loss", fmt.Sprint(lost.next(1)), "[gap]")
		if lost.last == "" {
			t.Error("the gap has no ID to resume from")
		}
		again := other.listen(lost.last)
		c.create(`{"uid":"e"}`)
		c.equal("stream after the gap", fmt.Sprint(lost.next(1)), "[create e]")
		c.equal("stream resumed after the gap", fmt.Sprint(again.next(1)), "[create e]")
	})
}

// TestSlowListener checks that a listener that takes events too slowly is dropped, so that they are
// not kept in memory for it.
func TestSlowListener(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if got := serve.FollowSlowly(ctx); got != "" || ctx.Err() != nil {
		t.Errorf("the listener was dropped: %v, want true; it was sent %q, want nothing", ctx.Err() == nil, got)
	}
}

// TestSlowCatchUp checks that events are not kept in memory for a listener that reads old events
// too slowly, and that a listener that does not receive a page in time is dropped.
func TestSlowCatchUp(t *testing.T) {
	for behind, want := range map[int]int{0: 0, serve.MaxLag: serve.MaxLag, serve.MaxLag + 1: 0} {
		if got := serve.KeepUp(behind); got != want {
			t.Errorf("after keepUp, a listener that was %d parts behind is %d parts behind, want %d", behind, got, want)
		}
	}
	if sent, err := serve.SendSlowly(3, 0); sent != 1 || err == nil {
		t.Errorf("a slow client was sent %d events, %v; want 1 and an error", sent, err)
	}
	if sent, err := serve.SendSlowly(3, time.Hour); sent != 3 || err != nil {
		t.Errorf("a fast client was sent %d events, %v; want 3", sent, err)
	}
}

// TestStreamEnds checks that a stream sends pings, and that it ends when its key is revoked or the
// service shuts down.
func TestStreamEnds(t *testing.T) {
	defer serve.SetPingInterval(20 * time.Millisecond)()
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c := newClient(t, s, serve.Options{})
	service, err := serve.New(s.DB, serve.Options{Namespace: s.NS})
	must(t, err)
	now, mu := time.Now(), sync.Mutex{}
	service.SetClock(func() time.Time { mu.Lock(); defer mu.Unlock(); return now })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx, l) }()
	c.url = "http://" + l.Addr().String()
	revoked := c.withKey(c.makeKey(admin.Key{Name: "revoked", Scopes: []string{"admin"}})).listen("")
	h := c.listen("")
	for range 2 {
		for h.in.Scan() && h.in.Text() != ": ping" {
		}
	}
	keys, err := admin.OpenKeys(s.DB)
	must(t, err)
	must(t, keys.Revoke(t.Context(), "revoked"))
	mu.Lock()
	now = now.Add(time.Minute)
	mu.Unlock()
	for revoked.in.Scan() {
	}
	must(t, revoked.in.Err())
	stop()
	for h.in.Scan() {
	}
	must(t, h.in.Err())
	must(t, <-ended)
}

// TestStreamRevoked checks that a stream ends when its key is revoked, without waiting for the next
// ping.
func TestStreamRevoked(t *testing.T) {
	defer serve.SetPingInterval(time.Hour)()
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c, pass := newClient(t, s, serve.Options{}).withClock()
	h := c.withKey(c.makeKey(admin.Key{Name: "revoked", Scopes: []string{"admin"}})).listen("")
	keys, err := admin.OpenKeys(s.DB)
	must(t, err)
	must(t, keys.Revoke(t.Context(), "revoked"))
	pass(5 * time.Second)
	for h.in.Scan() {
	}
	must(t, h.in.Err())
}

// TestStreamFromAnotherProcess checks that a client receives no event twice if it resumes from a
// position that this process has not reached in its reads of the feed, as another process might
// have given it.
func TestStreamFromAnotherProcess(t *testing.T) {
	defer serve.SetFeedInterval(time.Second)()
	eachService(t, func(t *testing.T, c *client) {
		first := c.listen("")
		c.create(`{"uid":"a"}`)
		had := c.waitForEvents(1, "").str("next")
		second := c.listen(had)
		c.create(`{"uid":"b"}`)
		c.equal("events after the position", fmt.Sprint(second.next(1)), "[create b]")
		c.equal("all events", fmt.Sprint(first.next(2)), "[create a create b]")
	})
}

// TestStreamOfEmptyFeed checks that a client receives no event twice if the feed was empty when it
// was last read.
func TestStreamOfEmptyFeed(t *testing.T) {
	defer serve.SetFeedInterval(time.Second)()
	eachService(t, func(t *testing.T, c *client) {
		c.listen("")
		c.create(`{"uid":"a"}`)
		c.waitForEvents(1, "")
		second := c.listen("")
		c.create(`{"uid":"b"}`)
		count := map[string]int{} // has "create a" unless the feed was read again meanwhile
		for count["create b"] == 0 {
			count[second.next(1)[0]]++
		}
		if count["create a"] > 1 {
			t.Errorf("received %v, want create a at most once", count)
		}
	})
}

// TestOrigins checks that the history has the address of the visitor if the caller gave one.
func TestOrigins(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		path := c.create(alice)
		c.do("200", "PUT", path+"/password", `{"password":"battery staple 10","origin":"192.0.2.1"}`)
		c.do("200", "POST", "/v1/types/user/tokens", `{"purpose":"in","uid":"alice","origin":"192.0.2.2"}`)
		c.do("200", "POST", "/v1/types/user/tokens", `{"purpose":"in","uid":"alice","field":"email","origin":"192.0.2.3"}`)
		r := c.do("200", "GET", path+"/history", "")
		c.equal("kinds", fmt.Sprint(r.eventKinds()), "[issue alice issue alice password alice create alice]")
		for i, want := range []string{"192.0.2.3", "192.0.2.2", "192.0.2.1"} {
			c.equal("origin", fmt.Sprint(r.body["events"].([]any)[i].(map[string]any)["origin"]), want)
		}
	})
}

// TestListenersThatCatchUp checks that only a limited number of listeners of a key read old events
// at a time. Listeners that follow the feed, or ask only for new events, do not count.
func TestListenersThatCatchUp(t *testing.T) {
	defer serve.SetMaxCatchUps(4)() // so that a key may have one
	defer serve.SetSlotTimeout(50 * time.Millisecond)()
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c := newClient(t, s, serve.Options{})
	service, err := serve.New(c.DB, serve.Options{Namespace: c.NS})
	must(t, err)
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	c.url = server.URL
	other := c.withKey(c.makeKey(admin.Key{Name: "other", Scopes: []string{admin.ScopeAdmin}}))
	first := c.listen("")
	var end func()
	c.until("no listener reads old events", func() bool { end = service.HoldCatchUp("all"); return end != nil })
	refused := func(what, query string) {
		t.Helper()
		ctx, cancel := context.WithCancel(c.Ctx)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "GET", c.url+"/v1/events"+query, nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+c.key)
		req.Header.Set("Accept", "text/event-stream")
		res, err := http.DefaultTransport.RoundTrip(req)
		must(t, err)
		defer res.Body.Close()
		if res.StatusCode != 503 {
			t.Errorf("%s: got %s, want 503", what, res.Status)
		}
	}
	refused("a listener beside one that catches up", "?after=")
	other.listen("")
	c.do("200", "GET", "/v1/events", "")
	second := c.listen("") // reads no old events
	end()
	c.create(alice)
	for _, l := range []*eventReader{first, second} {
		c.equal("events", fmt.Sprint(l.next(1)), "[create alice]")
	}
	c.until("listeners that follow the feed hold no memory", func() bool { return service.ResponsesOf("all") == 0 })

	var more []func()
	for range 4 { // all that a key may have
		more = append(more, service.HoldResponse("all"))
	}
	c.do("503 unavailable", "GET", "/v1/events", "")
	refused("a listener beside large responses", "?after=")
	for _, end := range more {
		end()
	}
	c.do("200", "GET", "/v1/events", "")
}

// A missingRight is a hook that refuses commands as a server does whose user lacks the right to
// read streams.
type missingRight struct {
	missing atomic.Bool
	left    atomic.Int64 // commands that are let through all the same
	refused atomic.Int64
}

func (m *missingRight) check(cmds ...redis.Cmder) error {
	if !m.missing.Load() || !slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return strings.EqualFold(c.Name(), "xrange") }) || m.left.Add(-1) >= 0 {
		return nil
	}
	m.refused.Add(1)
	err := errors.New("NOPERM this user has no permissions to run the 'xrange' command")
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}

func (*missingRight) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *missingRight) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := m.check(cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

func (m *missingRight) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := m.check(cmds...); err != nil {
			return err
		}
		return next(ctx, cmds)
	}
}

// TestStreamDuringOutage checks that the service logs once for each outage which command the server
// refuses to those who read the feed for open streams, and when the streams receive events again.
func TestStreamDuringOutage(t *testing.T) {
	defer serve.SetFeedInterval(time.Millisecond)()
	eachService(t, func(t *testing.T, c *client) {
		right := &missingRight{}
		c.AddHook(right)
		streams := []*eventReader{c.listen(""), c.listen("")}
		for outage := 1; outage <= 2; outage++ {
			right.refused.Store(0)
			right.missing.Store(true)
			c.create(fmt.Sprintf(`{"uid":"u%d"}`, outage))
			c.until("the feed was read several times", func() bool { return right.refused.Load() > 5 })
			right.missing.Store(false)
			for _, h := range streams {
				c.equal("events after the outage", fmt.Sprint(h.next(1)), fmt.Sprintf("[create u%d]", outage))
			}
			c.equal("lines about a refused command", fmt.Sprint(strings.Count(c.logs.String(), "'xrange'")), fmt.Sprint(outage))
			c.equal("lines about the end of an outage", fmt.Sprint(strings.Count(c.logs.String(), "receive events again")), fmt.Sprint(outage))
		}
	})
}

// TestBrokenCatchUp checks that the log names the refused command if a stream breaks off while it
// sends old events.
func TestBrokenCatchUp(t *testing.T) {
	defer serve.SetFeedInterval(time.Hour)()
	eachService(t, func(t *testing.T, c *client) {
		right := &missingRight{}
		c.AddHook(right)
		c.create(`{"uid":"a"}`)
		c.create(`{"uid":"b"}`)
		for let := range int64(20) { // until the first page is sent and the second one is refused
			right.left.Store(let)
			right.missing.Store(true)
			req, err := http.NewRequestWithContext(c.Ctx, "GET", c.url+"/v1/events?after=", nil)
			must(t, err)
			req.Header.Set("Authorization", "Bearer "+c.key)
			req.Header.Set("Accept", "text/event-stream")
			res, err := http.DefaultTransport.RoundTrip(req)
			must(t, err)
			if res.StatusCode == http.StatusOK {
				if text, err := io.ReadAll(res.Body); err == nil || !strings.Contains(string(text), "event: create") {
					t.Errorf("the stream ended with %q, %v; want events and a broken connection", text, err)
				}
				res.Body.Close()
				c.until("the log names the command", func() bool {
					for line := range strings.Lines(c.logs.String()) {
						if strings.Contains(line, `"status":200`) && strings.Contains(line, `"code":"unavailable"`) && strings.Contains(line, "'xrange'") {
							return true
						}
					}
					return false
				})
				return
			}
			res.Body.Close()
		}
		t.Error("no stream began")
	})
}
