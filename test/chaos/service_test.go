//go:build linux

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

// A run has two services: processes that answer over HTTP as 'userdb serve' does. The clock of one
// is an hour ahead, that of the other an hour behind.
const (
	services     = 2
	firstService = 101 // number of the first service; the numbers also decide the clocks
)

// serveStore serves the store in the process of a service, until the parent is gone.
func serveStore(t *testing.T, o config) {
	client := connect(o.Kind, o.Addrs, nil)
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			// The parent sends nothing; the input ends when the parent does.
			continue
		}
		os.Exit(0)
	}()
	for ; ; time.Sleep(100 * time.Millisecond) { // a master may be down
		db, err := redisdb.New(t.Context(), client, userdb.Options{Schema: chaosSchema(4), History: true})
		if err == nil {
			db, err = withSkewedClock(db, o.Number)
		}
		var service *serve.Service
		if err == nil {
			service, err = serve.New(db, serve.Options{})
		}
		var l net.Listener
		if err == nil {
			l, err = net.Listen("tcp", o.Serves)
		}
		if err == nil {
			fmt.Println("waits")
			err = service.Run(t.Context(), l)
		}
		fmt.Fprintln(os.Stderr, err)
	}
}

// startServices makes an API key and starts the services.
func (r *run) startServices() {
	keys, err := admin.OpenKeys(r.db)
	r.must(err)
	r.key, err = keys.Create(r.ctx, admin.Key{Name: "chaos", Scopes: []string{admin.ScopeAdmin}})
	r.must(err)
	for i := range services {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		r.must(err)
		r.serviceAddrs = append(r.serviceAddrs, l.Addr().String())
		r.must(l.Close())
		r.startService(i, 0)
	}
}

// startService starts service i and waits until it listens. life is the number of processes that
// were service i before this one.
func (r *run) startService(i, life int) {
	o := config{Number: firstService + i, Life: life, Kind: r.kind, Addrs: r.addrs(), Serves: r.serviceAddrs[i]}
	p, err := startProcess(o, r.logs)
	r.must(err)
	r.services[i] = p
	select {
	case <-p.idle:
	case <-p.exited:
		r.t.Fatalf("service %s exited; see %s", p.name(), filepath.Join(r.logs, "client-"+p.name()+".log"))
	case <-time.After(pauseTimeout):
		r.t.Fatalf("service %s did not start in time", p.name())
	}
}

// replaceService kills service i and starts another process at its address.
func (r *run) replaceService(i int) {
	life := r.services[i].Life
	r.services[i].kill()
	r.startService(i, life+1)
}

// endServices kills the services.
func (r *run) endServices() {
	for _, p := range r.services {
		if p != nil {
			p.kill()
		}
	}
}

// idempotencyKey returns the idempotency key number n of an epoch.
func idempotencyKey(epoch, n int) string { return fmt.Sprintf("%d.%d", epoch, n) }

// idempotencyKeys is the number of idempotency keys of an epoch.
const idempotencyKeys = 8

// once sends the request of an idempotency key to a service. The service creates an entry or
// returns the one that the key made before.
func (c caller) once(ctx context.Context, q question) (a answer) {
	a.UID = -1
	// Marshaling strings cannot fail.
	body, _ := json.Marshal(map[string]any{"facets": map[string]string{"nick": "once " + q.Name}})
	url := "http://" + c.serviceAddrs[c.how%len(c.serviceAddrs)] + "/v1/types/user/entries"
	req, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(string(body)))
	if err != nil {
		a.What, a.Text = "odd", err.Error()
		return a
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", q.Name)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		a.What, a.Text = "unknown", err.Error()
		return a
	}
	defer res.Body.Close()
	var problem struct{ Code, Detail string }
	_ = json.NewDecoder(res.Body).Decode(&problem) // an entry has neither member
	switch {
	case res.StatusCode == http.StatusCreated:
		a.What, a.ID = "ok", path.Base(res.Header.Get("Location"))
	case problem.Code == "conflict":
		a.What = "conflict"
	case res.StatusCode == http.StatusServiceUnavailable:
		a.What = "unknown"
	default:
		a.What = "odd"
	}
	if a.What != "ok" {
		a.Text = fmt.Sprint(res.StatusCode, " ", problem.Code, ": ", problem.Detail)
	}
	return a
}

// keyViolations returns a violation for each idempotency key that made more than one entry.
func keyViolations(ops []op) (violations []string) {
	made := map[string]op{}
	for _, o := range ops {
		if o.Ask.Verb != "once" || o.Answer.What != "ok" {
			continue
		}
		first, ok := made[o.Ask.Name]
		if !ok {
			made[o.Ask.Name] = o
		} else if first.Answer.ID != o.Answer.ID {
			violations = append(violations, fmt.Sprintf("one idempotency key made two entries:\n    %s\n    %s", first, o))
		}
	}
	return violations
}
