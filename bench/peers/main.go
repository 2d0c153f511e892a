// Command peers measures userdb serve against another product over HTTP. See README.md.
//
//	go run . [-peer pocketbase] [-accounts 1000,10000,100000] [-callers 1,16,128] [-only REGEXP]
//		[-seconds 5] [-out BASE]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// init keeps main on its thread: servers end with the thread that started them.
func init() { runtime.LockOSThread() }

// stores lists the stores on which userdb is measured.
var stores = []string{"redis", "redis-always", "file"}

// peers holds the names of the products that userdb is measured against, by the names that -peer
// takes.
var peers = map[string]string{"pocketbase": "PocketBase", "better-auth": "Better Auth"}

// A plan describes what a run measures.
type plan struct {
	accounts, callers []int
	only              *regexp.Regexp
	settings
	peer    string // a key of peers
	userdb  string // path of the program, "" for one that is built
	peerLog bool
	total   time.Duration // how long the run may take
	end     time.Time     // no row begins after it
}

// rows returns the rows of one store with the given number of accounts.
func (p plan) rows(store string, accounts int) (rows []row) {
	for _, j := range jobs {
		if _, can := j.theirs[p.peer]; !can {
			continue
		}
		for _, callers := range p.callers {
			name := fmt.Sprintf("%s/%s/%d/%d", store, j.name, accounts, callers)
			if p.only.MatchString(name) {
				rows = append(rows, row{Name: name, Service: store, Job: j.name, Accounts: accounts, Callers: callers, job: j})
			}
		}
	}
	return rows
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("peers: ")
	p := plan{peer: "pocketbase", accounts: []int{1000, 10_000, 100_000}, callers: []int{1, 16, 128}, only: regexp.MustCompile("")}
	flag.Func("accounts", "comma-separated numbers of accounts (default 1000,10000,100000)", func(text string) (err error) {
		p.accounts, err = numbers(text, 1, 10_000_000)
		return err
	})
	flag.Func("callers", "comma-separated numbers of callers (default 1,16,128)", func(text string) (err error) {
		p.callers, err = numbers(text, 1, 1024)
		return err
	})
	flag.Func("only", "measure the rows whose name (STORE/JOB/ACCOUNTS/CALLERS) matches `REGEXP`", func(text string) (err error) {
		p.only, err = regexp.Compile(text)
		return err
	})
	flag.Func("peer", "measure against `PRODUCT`, pocketbase or better-auth (default pocketbase)", func(text string) error {
		if p.peer = text; peers[text] == "" {
			return errors.New("want pocketbase or better-auth")
		}
		return nil
	})
	flag.Float64Var(&p.seconds, "seconds", 5, "how long each side of a row is measured")
	flag.DurationVar(&p.limit, "limit", 0, "how long a row may take (default 18 times -seconds)")
	flag.DurationVar(&p.total, "total", time.Hour, "how long the run may take")
	flag.StringVar(&p.userdb, "userdb", "", "measure the program at `PATH`, such as one of an earlier version")
	flag.BoolVar(&p.peerLog, "peer-log", false, "PocketBase keeps its log of requests, as it does by default: see README.md")
	out := flag.String("out", "", "write the report to `BASE`.md and BASE.json")
	chart := flag.String("chart", "", "measure nothing, but draw the reports that the arguments name (files of JSON) into `FILE`")
	flag.Parse()
	if *chart != "" {
		if err := writeChart(*chart, flag.Args()); err != nil {
			log.Fatal(err)
		}
		return
	}
	if p.limit == 0 {
		p.limit = time.Duration(18 * p.seconds * float64(time.Second))
	}
	if flag.NArg() > 0 || p.seconds <= 0 || p.seconds > 60 || p.limit <= 0 || p.limit > 10*time.Minute {
		flag.Usage()
		os.Exit(2)
	}
	if runtime.GOOS != "linux" {
		log.Fatal("runs only on Linux, because it reads /proc")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := p.run(ctx, *out)
	if ctx.Err() != nil {
		log.Print("interrupted")
		os.Exit(130)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// numbers parses numbers from low to high that are separated by commas.
func numbers(text string, low, high int) (all []int, err error) {
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < low || n > high {
			return nil, fmt.Errorf("want numbers from %d to %d, separated by commas", low, high)
		}
		all = append(all, n)
	}
	return all, nil
}

var errRows = errors.New("some rows could not be measured")

// run measures all rows. Everything it started has ended when it returns.
func (p plan) run(ctx context.Context, out string) error {
	begin := time.Now()
	p.end = begin.Add(p.total)
	dir, err := os.MkdirTemp("", "userdb-peers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	before := load() // building adds to it
	log.Print("building userdb and ", peers[p.peer])
	t, err := build(ctx, dir, p.userdb, p.peer)
	if err != nil {
		return err
	}
	t.peerLog = p.peerLog
	r := report{Peer: p.peer, PeerLog: p.peerLog, Machine: machine(), Versions: t.versions(), When: begin, Seconds: p.seconds, Bcrypt: checkTime()}
	fmt.Printf("%s\n%s\n", r.Machine, r.Versions)
	printHead(os.Stdout)
	for _, n := range p.accounts {
		if err := p.measure(ctx, t, n, &r); err != nil {
			return err
		}
	}
	r.Took, r.Load = time.Since(begin).Round(time.Second).String(), before+" | "+load()
	fmt.Println("took", r.Took)
	if out != "" {
		err = r.write(out)
	}
	if slices.ContainsFunc(r.Rows, func(x row) bool { return x.failed }) {
		err = errors.Join(err, errRows)
	}
	return err
}

// measure measures the rows with n accounts. The peer runs all the time; our services run one at a
// time.
func (p plan) measure(ctx context.Context, t tools, n int, r *report) error {
	if !slices.ContainsFunc(stores, func(store string) bool { return len(p.rows(store, n)) > 0 }) {
		return nil
	}
	accounts := filepath.Join(t.dir, fmt.Sprint("accounts-", n, ".jsonl"))
	if err := writeAccounts(accounts, n); err != nil {
		return err
	}
	peer, err := t.startPeer(ctx, p.peer, accounts)
	defer peer.stop()
	if err != nil {
		return fmt.Errorf("starting %s: %w", peers[p.peer], err)
	}
	r.Loadings = append(r.Loadings, peer.loaded(n))
	for _, store := range stores {
		if rows := p.rows(store, n); len(rows) > 0 {
			if err := p.measureStore(ctx, t, peer, accounts, rows, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// measureStore measures the rows of one store. If the accounts cannot be loaded into the store,
// each row gets the reason instead of figures.
func (p plan) measureStore(ctx context.Context, t tools, peer *service, accounts string, rows []row, r *report) error {
	ours, err := t.start(ctx, rows[0].Service, accounts)
	defer ours.stop()
	refusal, refused := errors.AsType[loadError](err)
	if err != nil && !refused || ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	l := ours.loaded(rows[0].Accounts)
	if refused {
		l.Words = "not loaded: " + refusal.Error()
	}
	r.Loadings = append(r.Loadings, l)
	for _, x := range rows {
		if x.Words = l.Words; !refused {
			p.measureRow(ctx, ours, peer, &x)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		x.print(os.Stdout)
		r.Rows = append(r.Rows, x)
	}
	return nil
}

// measureRow measures a row, or sets the reason why it could not.
func (p plan) measureRow(ctx context.Context, ours, peer *service, x *row) {
	if time.Now().After(p.end) {
		x.Words, x.failed = fmt.Sprintf("not measured: the run took longer than %v", p.total), true
		return
	}
	f, err := compare(ctx, p.settings, ours, peer, x.job, x.Accounts, x.Callers)
	switch {
	case err == nil:
		x.Figures = &f
	case errors.Is(err, errSlow):
		x.Words = err.Error()
	default:
		x.Words, x.failed = "failed: "+err.Error(), true
	}
}
