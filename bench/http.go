package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/crypto/bcrypt"

	"github.com/coffeenode/userdb/internal/own"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/userdb"
)

// A web is the service, and a handler that does without it, each behind a server of its own on this machine.
type web struct {
	service, bare *httptest.Server
	client        *http.Client
	key           string
}

func newWeb(ctx context.Context, db *userdb.DB, bare http.Handler) (w web, stop func()) {
	service := got(serve.New(db, serve.Options{}))
	w.key = got(got(own.KeysOf(db)).Create(ctx, own.Key{Name: fmt.Sprint("bench-", time.Now().UnixNano()), Scopes: []string{own.ScopeAdmin}}))
	w.service, w.bare = httptest.NewServer(service), httptest.NewServer(bare)
	w.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	return w, func() {
		w.client.CloseIdleConnections()
		w.service.Close()
		w.bare.Close()
	}
}

var errStatus = errors.New("not answered 200")

// ask sends a request and reads the whole answer.
func (w web) ask(ctx context.Context, method, url string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+w.key)
	req.Header.Set("Content-Type", "application/json")
	res, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err = io.Copy(io.Discard, res.Body); err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%w: %s", errStatus, res.Status)
	}
	return err
}

// webGet compares GET of an entry with a handler that answers what HGETALL finds.
func webGet(workers int) measure {
	return func(b *bench, ctx context.Context) outcome {
		return b.beside(ctx, workers, userdb.Options{}, func(users *userdb.Type, c *redis.Client) (ours, bare variant) {
			db, _ := b.server.open(ctx, userdb.Options{History: true}) // it goes with the process
			mux := http.NewServeMux()
			mux.HandleFunc("GET /users/{uid}", func(w http.ResponseWriter, r *http.Request) {
				fields, err := c.HGetAll(r.Context(), "user/uid:"+r.PathValue("uid")).Result()
				if err != nil || len(fields) == 0 {
					http.Error(w, "not found", http.StatusNotFound)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				must(json.NewEncoder(w).Encode(fields))
			})
			web, _ := newWeb(ctx, db, mux)
			get := func(path string) func(context.Context, int, int) error {
				return func(ctx context.Context, _, i int) error { return web.ask(ctx, "GET", path+uid(pick(i)), nil) }
			}
			return variant{name: "userdb serve", op: get(web.service.URL + "/v1/types/user/entries/")}, variant{name: "HGETALL", op: get(web.bare.URL + "/users/")}
		})
	}
}

// webLogin compares a login with a handler that looks the name up, and compares bcrypt hashes of the same cost. Of many callers it
// has few rounds: 128 logins take some five seconds.
func webLogin(workers int) measure {
	return func(b *bench, ctx context.Context) outcome {
		defer b.server.reset(ctx)
		db, _ := b.loginStore(ctx, 10, workers)
		defer db.Close()
		c := b.server.client(workers + 8)
		defer c.Close()
		mux := http.NewServeMux()
		mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
			var in struct{ Identifier, Password string }
			if json.NewDecoder(r.Body).Decode(&in) != nil {
				http.Error(w, "bad request", http.StatusBadRequest)
				return
			}
			key, err := c.Get(r.Context(), "user/name:"+strings.ReplaceAll(in.Identifier, " ", "+_")+"/~prk").Result()
			var fields map[string]string
			if err == nil {
				fields, err = c.HGetAll(r.Context(), key).Result()
			}
			if err != nil || bcrypt.CompareHashAndPassword([]byte(fields["password"]), []byte(in.Password)) != nil {
				http.Error(w, "wrong", http.StatusUnauthorized)
				return
			}
			delete(fields, "password")
			w.Header().Set("Content-Type", "application/json")
			must(json.NewEncoder(w).Encode(fields))
		})
		web, stop := newWeb(ctx, db, mux)
		defer stop()
		body := func(w int) []byte {
			return got(json.Marshal(map[string]string{"identifier": loginName(w), "password": loginPassword}))
		}
		few := *b.lasting(time.Second)
		few.rounds = max(3, min(few.rounds, 16/workers))
		return few.compare(ctx, workers, variant{name: "userdb serve", op: func(ctx context.Context, w, i int) error {
			return web.ask(ctx, "POST", web.service.URL+"/v1/types/user/login", body(w))
		}}, variant{name: "bcrypt", op: func(ctx context.Context, w, i int) error {
			return web.ask(ctx, "POST", web.bare.URL+"/login", body(w))
		}})
	}
}

// listeners is how many clients a stream of events goes to.
const listeners = 200

// webStream is how long an event takes to reach the last of many listeners, against the first.
func (b *bench) webStream(ctx context.Context) outcome {
	defer b.server.reset(ctx)
	db, users := b.server.open(ctx, userdb.Options{History: true})
	defer db.Close()
	web, stop := newWeb(ctx, db, http.NotFoundHandler())
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	const events = 2000
	var all sync.WaitGroup
	var ready sync.WaitGroup
	took := make([]time.Duration, listeners)
	begun := make(chan time.Time)
	for i := range listeners {
		all.Add(1)
		ready.Add(1)
		go func() {
			defer all.Done()
			req := got(http.NewRequestWithContext(ctx, "GET", web.service.URL+"/v1/events?kind=create", nil))
			req.Header.Set("Authorization", "Bearer "+web.key)
			req.Header.Set("Accept", "text/event-stream")
			res := got(web.client.Do(req))
			defer res.Body.Close()
			ready.Done()
			at := <-begun
			n := 0
			for in := bufio.NewScanner(res.Body); n < events && in.Scan(); {
				if strings.HasPrefix(in.Text(), "data:") {
					n++
				}
			}
			if n < events {
				must(fmt.Errorf("a listener heard %d of %d events", n, events))
			}
			took[i] = time.Since(at)
		}()
	}
	ready.Wait()
	at := time.Now()
	for range listeners {
		begun <- at
	}
	for i := range events {
		got(users.Create(ctx, newUser(serial(i))))
	}
	made := time.Since(at)
	all.Wait()
	last := took[0]
	for _, d := range took {
		last = max(last, d)
	}
	return outcome{ratio: float64(last) / float64(made)}
}
