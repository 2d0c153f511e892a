package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/userdb"
)

// A row is one claim: a ratio and the target that it must reach.
type row struct {
	name   string
	what   string
	quick  bool    // also in the quick run
	target float64 // 0: the row is told without one
	most   bool    // the ratio must stay below the target, not above
	p99    float64 // a row NAME-p99 has how much higher the 99th percentile may be; 0: there is no such row
	tcp    bool    // the full run measures it over TCP as well, as NAME-tcp
	run    measure
}

// A measure does what a row is about.
type measure func(b *bench, ctx context.Context) outcome

// An outcome is what a row measured.
type outcome struct {
	ratio    float64
	p99      float64
	note     string
	variants []result
}

// A bench is one run: the server and how long things may take.
type bench struct {
	server *server
	quick  bool
	rounds int
	per    time.Duration
}

// measure runs a row, and yields it and those that go with it.
func (b *bench) measure(ctx context.Context, r row, yield func(row, outcome)) {
	all := []*bench{b}
	if !b.quick && r.tcp {
		all = append(all, b.overTCP())
	}
	for _, by := range all {
		o := r.run(by, ctx)
		one := r
		if by != b {
			one.name += "-tcp"
		}
		yield(one, o)
		if r.p99 > 0 {
			one.name, one.what, one.target, one.most = one.name+"-p99", "their 99th percentiles, against the lower one", r.p99, true
			yield(one, outcome{ratio: o.p99})
		}
	}
}

// overTCP is b, whose clients come over TCP.
func (b *bench) overTCP() *bench {
	over, s := *b, *b.server
	s.tcp = true
	over.server = &s
	return &over
}

// compare measures two variants; the ratio is that of the first over the second.
func (b *bench) compare(ctx context.Context, workers int, ours, bare variant) outcome {
	rs := b.interleave(ctx, workers, ours, bare)
	return outcome{ratio: ratio(rs[0], rs[1]), variants: rs}
}

// size is one of two numbers, for the full and for the quick run.
func (b *bench) size(full, quick int) int {
	if b.quick {
		return quick
	}
	return full
}

// beside compares what f makes of the library, opened for it, and of a bare client.
func (b *bench) beside(ctx context.Context, workers int, o userdb.Options, f func(*userdb.Type, *redis.Client) (ours, bare variant)) outcome {
	db, users := b.server.open(ctx, o)
	defer db.Close()
	c := b.server.client(workers + 8)
	defer c.Close()
	ours, bare := f(users, c)
	return b.compare(ctx, workers, ours, bare)
}

// What several rows measure.
const (
	getWhat    = "entry by PRK, cast, against HGETALL into a map"
	lookupWhat = "by a secondary key and by *, against one bare script GET, HGETALL"
	createWhat = "with uniqueness over 2 fields, against one bare script that checks 3 keys"
	sameWhat   = "the same, against one script by hand with the same checks, whose arguments are made ready before"

	sessionWhat = "Session, against HGET and HGETALL in one pipeline"
)

// rows are all rows, in the order of the report.
var rows = []row{
	{name: "get-1", what: getWhat, quick: true, tcp: true, target: 0.95, run: get(1, 0)},
	{name: "get-4", what: getWhat, tcp: true, target: 0.95, run: get(4, 0)},
	{name: "get-16", what: getWhat, quick: true, tcp: true, target: 0.95, run: get(16, 0)},
	{name: "get-64", what: getWhat, tcp: true, target: 0.95, run: get(64, 0)},
	{name: "get-128", what: getWhat, quick: true, tcp: true, target: 0.95, run: get(128, 0)},
	{name: "lookup-1", what: lookupWhat, quick: true, tcp: true, target: 0.95, run: lookup(1)},
	{name: "lookup-4", what: lookupWhat, tcp: true, target: 0.95, run: lookup(4)},
	{name: "lookup-16", what: lookupWhat, quick: true, tcp: true, target: 0.95, run: lookup(16)},
	{name: "lookup-64", what: lookupWhat, tcp: true, target: 0.95, run: lookup(64)},
	{name: "lookup-128", what: lookupWhat, tcp: true, target: 0.95, run: lookup(128)},
	{name: "create-4", what: createWhat, tcp: true, target: 0.9, run: create(4, bareScript)},
	{name: "create-16", what: createWhat, quick: true, tcp: true, target: 0.9, run: create(16, bareScript)},
	{name: "create-64", what: createWhat, tcp: true, target: 0.9, run: create(64, bareScript)},
	{name: "create-128", what: createWhat, tcp: true, target: 0.9, run: create(128, bareScript)},
	{name: "create-1", what: createWhat + ": less than the promise takes", tcp: true, run: create(1, bareScript)},
	{name: "create-unchecked-1", what: "the same against a pipeline of HSET and 2 SET without checks", tcp: true, run: create(1, barePipeline)},
	{name: "create-same-1", what: sameWhat, quick: true, tcp: true, target: 0.92, run: createSame(1)},
	{name: "create-same-128", what: sameWhat, quick: true, tcp: true, target: 1.5, run: createSame(128)},
	{name: "peer-get-16", what: "entry by PRK, against HGETALL by the faster of rueidis and AutoPipeline of go-redis", tcp: true, target: 1.1, p99: 1.2, run: peerGet(16)},
	{name: "peer-get-64", what: "entry by PRK, against HGETALL by the faster of rueidis and AutoPipeline of go-redis", quick: true, tcp: true, target: 1.1, p99: 1.2, run: peerGet(64)},
	{name: "peer-get-128", what: "entry by PRK, against HGETALL by the faster of rueidis and AutoPipeline of go-redis", tcp: true, target: 1.1, p99: 1.2, run: peerGet(128)},
	{name: "peer-lookup-16", what: "by a secondary key, against a script GET, HGETALL by the faster of them", tcp: true, target: 1.1, p99: 1.2, run: peerLookup(16)},
	{name: "peer-lookup-64", what: "by a secondary key, against a script GET, HGETALL by the faster of them", tcp: true, target: 1.1, p99: 1.2, run: peerLookup(64)},
	{name: "peer-lookup-128", what: "by a secondary key, against a script GET, HGETALL by the faster of them", tcp: true, target: 1.1, p99: 1.2, run: peerLookup(128)},
	{name: "session-1", what: sessionWhat, quick: true, tcp: true, target: 0.85, run: session(1)},
	{name: "session-128", what: sessionWhat, quick: true, tcp: true, target: 1.2, run: session(128)},
	{name: "get-128-cached", what: "by PRK with Options.Cache, all entries hot", tcp: true, target: 3, run: get(128, 2*population)},
	{name: "count", what: "entries with one value of an indexed field, against SCARD", quick: true, target: 0.85, run: (*bench).counting},
	{name: "first-lookup", what: "time of the first * lookup after Open, against the hundredth", quick: true, target: 3, most: true, run: (*bench).firstLookup},
	{name: "create-history-1", what: "with Options.History, against without", quick: true, tcp: true, target: 0.83, run: historied(1)},
	{name: "create-history-16", what: "the same", tcp: true, target: 0.83, run: historied(16)},
	{name: "create-history-128", what: "the same", tcp: true, target: 0.83, run: historied(128)},
	{name: "cluster-create-history", what: "the same on six nodes, 16 callers", target: 0.83, run: (*bench).clusterHistoried},
	{name: "update-1", what: "one other and one secondary facet of an entry in hand, against a bare script of the same commands", quick: true, tcp: true, target: 0.9, run: (*bench).update},
	{name: "typed-find-1", what: "Find into a struct of 7 facets, against Find", quick: true, target: 0.87, run: typed(1, typedFind)},
	{name: "typed-find-128", what: "the same", target: 0.87, run: typed(128, typedFind)},
	{name: "typed-create-1", what: "Create of a struct, against Create", target: 0.87, run: typed(1, typedCreate)},
	{name: "typed-save-1", what: "Save of a struct in which two facets differ, against Put and Save", target: 0.87, run: typed(1, typedSave)},
	{name: "typed-page", what: "a Page of 256 structs, against one of entries", quick: true, target: 0.87, run: typed(1, typedPage)},
	{name: "import", what: "JSON lines with hashes, all rules and uniqueness over 2 fields, against a pipeline of 1,000 HSET and 2,000 SET without checks", quick: true, target: 0.8, run: (*bench).importing},
	{name: "check", what: "time of a check of all records against a bare pass of SCAN, HGETALL and MGET over them", target: 3.5, most: true, run: (*bench).checking},
	{name: "any-scale", what: "time of a * lookup among a hundred times as many entries", quick: true, target: 1.25, most: true, run: (*bench).anyScale},
	{name: "memory", what: "bytes of an entry against the original's records of the same data", quick: true, target: 1.10, most: true, run: (*bench).memory},
	{name: "login", what: "against a bare bcrypt compare of the same cost, on all cores", quick: true, target: 0.97, run: (*bench).login},
	{name: "login-same-time", what: "the slowest median of a wrong password, an unknown identifier, no password and a disabled entry, against the fastest", target: 1.1, most: true, run: (*bench).loginAnswers},
	{name: "read-under-login-flood", what: "p99 of reads under ten times more logins than can be hashed, against idle", target: 3, most: true, run: (*bench).readUnderFlood},
	{name: "memory-under-login-flood", what: "heap and stacks late in that flood, against early in it", target: 1.1, most: true, run: (*bench).memoryUnderFlood},
	{name: "uniqueness-price", what: "Create of 128 callers, against Save of rueidis/om, which checks nothing", run: (*bench).uniquenessPrice},
	{name: "om-fetch-128", what: "Find, against Fetch of rueidis/om", target: 1, run: (*bench).omFetch},
	{name: "handmade-128", what: "Create, against go-redis by hand with WATCH and MULTI", target: 1, run: create(128, handmade)},
	{name: "cluster-create", what: "create on six nodes, against one bare script in one slot", target: 0.25, run: clusterCreate(1)},
	{name: "cluster-create-64", what: "the same, of 64 callers", target: 0.35, run: clusterCreate(64)},
	{name: "cluster-create-trips", what: "its p50 over wires of 1 ms each way, in round trips of such a wire", target: 3.4, most: true, run: (*bench).clusterTrips},
	{name: "cluster-lookup", what: "lookup on six nodes, against GET, then HGETALL", target: 0.9, run: clusterLookup(1)},
	{name: "cluster-lookup-64", what: "the same, of 64 callers", target: 1, run: clusterLookup(64)},
	{name: "http-get-1", what: "GET of an entry from 'userdb serve', against a net/http handler with HGETALL", quick: true, target: 0.8, run: webGet(1)},
	{name: "http-get-16", what: "the same", target: 0.8, run: webGet(16)},
	{name: "http-get-128", what: "the same", quick: true, target: 0.8, run: webGet(128)},
	{name: "http-login-1", what: "login over HTTP, against a net/http handler with GET, HGETALL and bcrypt", quick: true, target: 0.8, run: webLogin(1)},
	{name: "http-login-16", what: "the same", target: 0.8, run: webLogin(16)},
	{name: "http-login-128", what: "the same", target: 0.8, run: webLogin(128)},
	{name: "http-stream-200", what: "time until the last of 200 listeners has 2,000 events, against that of making them", quick: true, target: 3, most: true, run: (*bench).webStream},
	{name: "cold", what: "processor seconds of a first go build of the command, against those of the packages of Go itself in it", most: true, run: (*bench).cold},
	{name: "keys", what: "allocations to parse a key, and to build one and write it as text; 0 and 1", target: 1, most: true, run: (*bench).keys},
}

func (r row) ok(o outcome, slack float64) bool {
	if r.target == 0 {
		return true
	}
	if r.most {
		return o.ratio <= r.target/slack
	}
	return o.ratio >= r.target*slack
}
