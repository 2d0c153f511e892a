package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/crypto/bcrypt"

	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// A site is the service and, beside it, a handler that does the minimum. Each is a process of its
// own.
type site struct {
	service, bare process
	client        *http.Client
	key           string
}

// A process serves HTTP.
type process struct {
	url string
	pid int
}

// handlers maps names to handlers that a process can serve. Each is made for the Redis at a URL.
var handlers = map[string]func(ctx context.Context, url string) http.Handler{"service": service, "bare": bare}

func service(ctx context.Context, url string) http.Handler {
	db := mustGet(userdb.Open(ctx, url, userdb.Options{Schema: userSchema(), History: true}))
	return mustGet(serve.New(db, serve.Options{}))
}

// serveHTTP serves the named handler on a free port and prints its URL to standard output. It
// returns when standard input ends. If row is not empty, it writes profiles of this process.
func serveHTTP(ctx context.Context, name, url, row string) {
	h, ok := handlers[name]
	if !ok {
		must(fmt.Errorf("no handler %q", name))
	}
	l := mustGet(net.Listen("tcp", "127.0.0.1:0"))
	if row != "" {
		defer profileProcess(row + ".serving-" + name)()
	}
	fmt.Println("http://" + l.Addr().String())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		l.Close()
	}()
	if err := http.Serve(l, h(ctx, url)); !errors.Is(err, net.ErrClosed) {
		must(err)
	}
}

// startProcess starts this program again to serve a handler. If row is not empty, that process
// writes profiles of itself.
func startProcess(tb *fakeTB, handler, url, row string, oneCore bool) process {
	c := exec.Command(mustGet(os.Executable()), "-serve", handler, "-store", url, "-profile", row)
	if oneCore { // the runtime would notice that it is pinned, but not at once
		c.Env = append(os.Environ(), "GOMAXPROCS=1")
	}
	c.Stderr = os.Stderr
	in, out := mustGet(c.StdinPipe()), mustGet(c.StdoutPipe())
	must(c.Start())
	tb.Cleanup(func() {
		in.Close()
		c.Wait()
	})
	line := mustGet(bufio.NewReader(out).ReadString('\n'))
	return process{url: strings.TrimSpace(line), pid: c.Process.Pid}
}

// withSite runs f with a new site. The bench passed to f measures the work of the servers,
// including Redis.
func (b *bench) withSite(ctx context.Context, db *userdb.DB, f func(b *bench, s site) outcome) outcome {
	var tb fakeTB
	defer tb.stop()
	s := site{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}}
	name := fmt.Sprint("bench-", time.Now().UnixNano())
	s.key = mustGet(mustGet(admin.OpenKeys(db)).Create(ctx, admin.Key{Name: name, Scopes: []string{admin.ScopeAdmin}}))
	s.service = startProcess(&tb, "service", b.server.url(160), b.profile, !b.allCores)
	s.bare = startProcess(&tb, "bare", b.server.url(160), b.profile, !b.allCores)
	defer s.client.CloseIdleConnections()
	clone := b.withProcesses(s.service.pid, s.bare.pid)
	clone.served = true
	return f(clone, s)
}

var errStatus = errors.New("refused")

// do sends a request and reads the whole response.
func (s site) do(ctx context.Context, method, url string, body []byte, header ...string) error {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err = io.Copy(io.Discard, res.Body); err == nil && res.StatusCode/100 != 2 {
		err = fmt.Errorf("%w: %s", errStatus, res.Status)
	}
	return err
}

// bare returns a handler with a route for each kind of row. A route does only what its rows need,
// with go-redis.
func bare(_ context.Context, url string) http.Handler {
	c := redis.NewClient(mustGet(redis.ParseURL(url)))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{uid}", func(w http.ResponseWriter, r *http.Request) {
		fields, err := c.HGetAll(r.Context(), "user/uid:"+r.PathValue("uid")).Result()
		writeAnswer(w, fields, err)
	})
	mux.HandleFunc("POST /session", func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Secret string }
		if json.NewDecoder(r.Body).Decode(&in) != nil {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		pipe := c.Pipeline()
		uid, id, _ := strings.Cut(in.Secret, ".")
		pipe.HGet(r.Context(), "sessions:"+uid, id)
		fields := pipe.HGetAll(r.Context(), "user/uid:"+uid)
		_, err := pipe.Exec(r.Context())
		writeAnswer(w, fields.Val(), err)
	})
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
		writeAnswer(w, fields, nil)
	})
	return mux
}

// writeAnswer writes an entry, or 404 if there is none.
func writeAnswer(w http.ResponseWriter, fields map[string]string, err error) {
	if err != nil || len(fields) == 0 {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(fields)
}

// webGet compares GET requests of an entry.
func webGet(workers int) measure {
	return func(b *bench, ctx context.Context) outcome {
		db, _ := b.server.open(ctx, userdb.Options{})
		defer db.Close()
		return b.withSite(ctx, db, func(b *bench, s site) outcome {
			get := func(name, path string) variant {
				return variant{name: name, op: func(ctx context.Context, _, i int) error {
					return s.do(ctx, "GET", path+uid(pick(i)), nil)
				}}
			}
			return b.compare(ctx, workers, get("userdb serve", s.service.url+"/v1/types/user/entries/"), get("HGETALL", s.bare.url+"/users/"))
		})
	}
}

// webSession compares requests that look up the session of a secret.
func webSession(workers int) measure {
	return func(b *bench, ctx context.Context) outcome {
		db, users := b.server.open(ctx, userdb.Options{})
		defer db.Close()
		secrets := startSessions(ctx, users, b.server.admin)
		return b.withSite(ctx, db, func(b *bench, s site) outcome {
			check := func(name, url string, secret func(i int) string) variant {
				return variant{name: name, op: func(ctx context.Context, _, i int) error {
					return s.do(ctx, "POST", url, mustGet(json.Marshal(map[string]string{"secret": secret(i % len(secrets))})))
				}}
			}
			return b.compare(ctx, workers,
				check("userdb serve", s.service.url+"/v1/session", func(i int) string { return secrets[i] }),
				check("HGET, HGETALL", s.bare.url+"/session", func(i int) string { return uid(i) + "." + bareSession }))
		})
	}
}

// webLogin compares a login with a handler that looks up the name and compares bcrypt hashes of the
// same cost. One caller runs on one core, several run on all cores.
func webLogin(workers int) measure {
	return func(b *bench, ctx context.Context) outcome {
		db, _ := b.loginStore(ctx, 10, workers)
		defer db.Close()
		b = b.oneHash()
		if workers > 1 { // 128 logins take about five seconds
			b = b.onAllCores().withBlocks(max(4, b.pairs/workers), time.Millisecond)
		}
		return b.withSite(ctx, db, func(b *bench, s site) outcome {
			login := func(name, url string) variant {
				return variant{name: name, op: func(ctx context.Context, w, _ int) error {
					body := mustGet(json.Marshal(map[string]string{"identifier": loginName(w), "password": loginPassword}))
					return s.do(ctx, "POST", url, body)
				}}
			}
			return b.compare(ctx, workers, login("userdb serve", s.service.url+"/v1/types/user/login"), login("bcrypt", s.bare.url+"/login"))
		})
	}
}

const (
	listeners = 200  // number of clients that read the stream of events
	events    = 2000 // number of events that each listener waits for
)

// webStream compares the time in which many listeners get all events with the time it takes to make
// the events.
func (b *bench) webStream(ctx context.Context) outcome {
	db, users := b.server.open(ctx, userdb.Options{History: true})
	defer db.Close()
	return b.withSite(ctx, db, func(b *bench, s site) outcome {
		var ratios []float64
		for range 7 {
			made, received := s.stream(ctx, users)
			ratios = append(ratios, float64(received)/float64(made))
		}
		return outcome{estimate: estimateMedian(ratios)}
	})
}

// stream makes events. It returns how long that took, and how long it took until the last listener
// had all of them.
func (s site) stream(ctx context.Context, users *userdb.Type) (made, received time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var ready, done sync.WaitGroup
	errs := make([]error, listeners)
	ready.Add(listeners)
	for i := range listeners {
		done.Go(func() { errs[i] = s.listen(ctx, ready.Done) })
	}
	ready.Wait()
	begin := time.Now()
	for range events {
		mustGet(users.Create(ctx, newUser(serial(int(operations.Add(1))))))
	}
	made = time.Since(begin)
	done.Wait()
	must(errors.Join(errs...))
	return made, time.Since(begin)
}

// listen calls ready when it is connected or could not connect, and returns when it has received
// all events.
func (s site) listen(ctx context.Context, ready func()) error {
	req, err := http.NewRequestWithContext(ctx, "GET", s.service.url+"/v1/events?kind=create", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Accept", "text/event-stream")
	res, err := s.client.Do(req)
	ready()
	if err != nil {
		return err
	}
	defer res.Body.Close()
	received := 0
	for in := bufio.NewScanner(res.Body); received < events && in.Scan(); {
		if strings.HasPrefix(in.Text(), "data:") {
			received++
		}
	}
	if received < events {
		return fmt.Errorf("a listener received %d of %d events", received, events)
	}
	return nil
}
