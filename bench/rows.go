package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/userdb"
)

// A row is one claim: a ratio and its target. It compares throughput unless its text says
// otherwise. The row NAME-cpu beside it compares the processor time of an operation.
type row struct {
	name   string
	what   string
	quick  bool    // also in the quick run
	target float64 // 0 if the row has none
	atMost bool    // the ratio must not exceed the target; if false, it must reach it
	cpu    float64 // upper bound of the ratio of the row NAME-cpu; 0 if that row has no target
	// p99 is the upper bound of the ratio of the row NAME-p99, which compares 99th percentiles; 0
	// if there is no such row.
	p99 float64
	// tcp makes the full run also measure NAME-tcp, over TCP instead of a Unix socket.
	tcp bool
	// cores makes the full run also measure NAME-cores, on all cores and without a target.
	cores    bool
	sittings int // how often it is measured, each time on a new server; 0 for the default
	// noisy is set if the processor time varies with how many calls share a round trip. Such a row
	// has a NAME-cpu only if that has a target, and then longer sittings.
	noisy bool
	named bool // measured only if the flag -only is set
	run   measure
}

// A measure runs the operations of a row.
type measure func(b *bench, ctx context.Context) outcome

// An outcome holds what a row measured.
type outcome struct {
	estimate
	cpu      *estimate // nil if there is no row NAME-cpu
	p99      *estimate
	rueidis  *estimate
	took     time.Duration
	entries  int // number of entries, set by comparePasses
	note     string
	variants []result
}

// A bench holds the servers of a run and its settings.
type bench struct {
	server    *server
	tcp       bool            // clients connect over TCP
	nodes     []*redis.Client // a client of each Redis whose work counts
	pids      []int           // process ids of the nodes, and of other processes whose work counts
	quick     bool
	allCores  bool
	served    bool          // processor time is compared only at the servers
	sittings  int           // how often a row is measured, each time on a new server
	pairs     int           // number of blocks of each variant
	blockTime time.Duration // minimum length of a block
	profile   string        // measure and profile only the row of this name; "" for all rows
}

// newBench returns a bench without servers.
func newBench(quick bool) *bench {
	b := &bench{quick: quick, sittings: 10, pairs: 40, blockTime: shortest}
	if quick {
		b.sittings = 5
	}
	return b
}

// onNewServer calls f with a copy of b on a new server that holds the population. Servers differ by
// some percent for as long as they run, depending on where their tables happen to lie in memory.
func (b *bench) onNewServer(ctx context.Context, f func(b *bench) outcome) outcome {
	var tb fakeTB
	defer tb.stop()
	clone := *b
	clone.server = startServer(&tb)
	clone.server.tcp = b.tcp
	clone.server.reset(ctx)
	return f(clone.withNodes(ctx, clone.server.admin))
}

// withNodes returns a copy of b that measures the work of these nodes.
func (b *bench) withNodes(ctx context.Context, nodes ...*redis.Client) *bench {
	clone := *b
	clone.nodes, clone.pids = nodes, nil
	for _, c := range nodes {
		clone.pids = append(clone.pids, int(info(ctx, c, "server")["process_id"]))
	}
	return &clone
}

// withProcesses returns a copy of b that also counts the work of the given processes.
func (b *bench) withProcesses(pids ...int) *bench {
	clone := *b
	clone.pids = slices.Concat(b.pids, pids)
	return &clone
}

// withBlocks returns a copy of b with the given number of blocks for each variant and their minimum
// length.
func (b *bench) withBlocks(pairs int, blockTime time.Duration) *bench {
	clone := *b
	clone.pairs, clone.blockTime = pairs, blockTime
	return &clone
}

// onAllCores returns a copy of b that does not pin processes.
func (b *bench) onAllCores() *bench {
	clone := *b
	clone.allCores = true
	return &clone
}

// overTCP returns a copy of b whose clients connect over TCP.
func (b *bench) overTCP() *bench {
	clone := *b
	clone.tcp = true
	return &clone
}

// A job is one row, or a row that the full run derives from it, such as NAME-tcp. It holds the
// outcomes of its sittings so far.
type job struct {
	row
	b        *bench
	sittings int
	done     []outcome
	took     time.Duration
}

func (b *bench) jobs(r row) []*job {
	all := []*job{b.newJob(r, "")}
	if b.quick {
		return all
	}
	if r.noisy {
		r.cpu = 0 // only NAME itself has a NAME-cpu
	}
	if r.tcp {
		all = append(all, b.overTCP().newJob(r, "-tcp"))
	}
	if r.cores {
		r.target, r.p99, r.cpu = 0, 0, 0
		all = append(all, b.onAllCores().newJob(r, "-cores"))
	}
	return all
}

// longer multiplies the number of blocks of a sitting that judges the processor time of many
// callers, because the number of calls that share a round trip changes from block to block.
const longer = 4

func (b *bench) newJob(r row, suffix string) *job {
	r.name += suffix
	if r.noisy && r.cpu > 0 {
		b = b.withBlocks(longer*b.pairs, b.blockTime)
	}
	return &job{row: r, b: b, sittings: cmp.Or(r.sittings, b.sittings)}
}

// sit measures a job once more, on a new server.
func (j *job) sit(ctx context.Context) {
	began := time.Now()
	j.done = append(j.done, j.b.onNewServer(ctx, func(b *bench) outcome { return j.run(b, ctx) }))
	j.took += time.Since(began)
}

// report yields the row of a job, and its NAME-cpu, NAME-p99 and NAME-rueidis.
func (j *job) report(yield func(row, outcome)) {
	o := merge(j.done)
	o.took = j.took
	yield(j.row, o)
	if o.cpu != nil && !j.b.allCores && (j.cpu > 0 || !j.noisy && j.sittings > 1) {
		yield(row{name: j.name + "-cpu", what: "processor time of an operation", target: j.cpu, atMost: true}, outcome{estimate: *o.cpu})
	}
	if o.p99 != nil && j.p99 > 0 {
		yield(row{name: j.name + "-p99", what: "99th percentile, against the lowest of theirs", target: j.p99, atMost: true}, outcome{estimate: *o.p99})
	}
	if o.rueidis != nil {
		yield(row{name: j.name + "-rueidis", what: "throughput, against rueidis alone", target: 1}, outcome{estimate: *o.rueidis})
	}
}

// merge returns the outcome of several sittings: the estimate of each ratio, and the mean of every
// other figure.
func merge(all []outcome) outcome {
	estimates := func(of func(outcome) *estimate) *estimate {
		var es []estimate
		for _, o := range all {
			if e := of(o); e != nil {
				es = append(es, *e)
			}
		}
		if es == nil {
			return nil
		}
		e := estimateSittings(es)
		return &e
	}
	o := all[0]
	if len(all) == 1 {
		if len(o.variants) > 0 { // it is timed, not counted
			o.estimate = o.widened(singleError)
		}
		return o
	}
	o.estimate = *estimates(func(o outcome) *estimate { return &o.estimate })
	o.cpu = estimates(func(o outcome) *estimate { return o.cpu })
	o.p99 = estimates(func(o outcome) *estimate { return o.p99 })
	o.rueidis = estimates(func(o outcome) *estimate { return o.rueidis })
	for i := range o.variants {
		for _, other := range all[1:] {
			o.variants[i].add(other.variants[i])
		}
		o.variants[i].scale(1 / float64(len(all)))
	}
	return o
}

// compare measures two variants. The ratios are those of the first to the second.
func (b *bench) compare(ctx context.Context, workers int, ours, theirs variant) outcome {
	rs := b.interleave(ctx, workers, ours, theirs)
	return b.judge(rs, rs[0], rs[1])
}

// judge returns the outcome of comparing two of the results.
func (b *bench) judge(all []result, ours, theirs result) outcome {
	cpu := compareBlocks(ours, theirs, b.processor)
	return outcome{estimate: compareBlocks(ours, theirs, block.rate), cpu: &cpu, variants: all}
}

// processor returns the processor time to compare.
func (b *bench) processor(x block) float64 {
	if b.served {
		return x.server
	}
	return x.client + x.server
}

// size returns full or quick, depending on the run.
func (b *bench) size(full, quick int) int {
	if b.quick {
		return quick
	}
	return full
}

// compareWithBare opens the library with o and a bare client, and compares the two variants that f
// returns.
func (b *bench) compareWithBare(ctx context.Context, workers int, o userdb.Options, f func(*userdb.Type, *redis.Client) (ours, bare variant)) outcome {
	db, users := b.server.open(ctx, o)
	defer db.Close()
	c := b.server.client(workers + 8)
	defer c.Close()
	ours, bare := f(users, c)
	return b.compare(ctx, workers, ours, bare)
}

// Texts that several rows share.
const (
	getWhat        = "finds an entry by its PRK and casts its facets, against HGETALL into a map"
	lookupWhat     = "finds by a secondary key and by *, against one bare script with GET and HGETALL"
	createWhat     = "creates with uniqueness over 2 fields, against one bare script that checks 3 keys"
	sameWhat       = "creates with uniqueness over 2 fields, against a handwritten script with the same checks, whose arguments are prepared beforehand"
	peerGetWhat    = "finds an entry by its PRK, against HGETALL by the faster of rueidis and go-redis' AutoPipeline"
	peerLookupWhat = "finds by a secondary key, against a script with GET and HGETALL by the faster of the same two"
	sessionWhat    = "Session, against HGET and HGETALL in one pipeline"
	historyWhat    = "creates with Options.History, against creates without it"
	typedFindWhat  = "Find into a struct of 7 facets, against Find"
	webGetWhat     = "GET of an entry from 'userdb serve', against a net/http handler with HGETALL"
	webSessionWhat = "POST /v1/session, against a net/http handler with HGET and HGETALL in one pipeline"
	webLoginWhat   = "login over HTTP, against a net/http handler with GET, HGETALL and bcrypt"
)

// rows holds all rows, in the order of the report.
var rows = []row{
	{
		name: "get-1", quick: true, tcp: true, target: 0.95, cpu: 1.15, run: get(1, 0),
		what: getWhat,
	},
	{
		name: "get-4", target: 0.95, cpu: 1.15, noisy: true, run: get(4, 0),
		what: getWhat,
	},
	{
		name: "get-16", quick: true, target: 0.95, cpu: 1.15, cores: true, noisy: true, run: get(16, 0),
		what: getWhat,
	},
	{
		name: "get-64", target: 0.95, noisy: true, run: get(64, 0),
		what: getWhat,
	},
	{
		name: "get-128", quick: true, tcp: true, target: 0.95, cores: true, noisy: true, run: get(128, 0),
		what: getWhat,
	},
	{
		name: "lookup-1", quick: true, tcp: true, target: 0.95, cpu: 1.15, run: lookup(1),
		what: lookupWhat,
	},
	{
		name: "lookup-4", target: 0.95, cpu: 1.15, run: lookup(4),
		what: lookupWhat,
	},
	{
		name: "lookup-16", quick: true, target: 0.95, cpu: 1.15, cores: true, noisy: true, run: lookup(16),
		what: lookupWhat,
	},
	{
		name: "lookup-64", target: 0.95, noisy: true, run: lookup(64),
		what: lookupWhat,
	},
	{
		name: "lookup-128", target: 0.95, cores: true, noisy: true, run: lookup(128),
		what: lookupWhat,
	},
	{
		name: "create-4", target: 0.9, run: create(4, bareScript),
		what: createWhat,
	},
	{
		name: "create-16", quick: true, target: 0.9, cores: true, noisy: true, run: create(16, bareScript),
		what: createWhat,
	},
	{
		name: "create-64", target: 0.9, noisy: true, run: create(64, bareScript),
		what: createWhat,
	},
	{
		name: "create-128", target: 0.9, cores: true, noisy: true, run: create(128, bareScript),
		what: createWhat,
	},
	{
		name: "create-1", tcp: true, run: create(1, bareScript),
		what: createWhat + ", fewer than uniqueness requires",
	},
	{
		name: "create-unchecked-1", run: create(1, barePipeline),
		what: "creates with uniqueness over 2 fields, against a pipeline of HSET and 2 SET without checks",
	},
	{
		name: "create-same-1", quick: true, tcp: true, target: 0.92, cpu: 1.25, run: createSame(1),
		what: sameWhat,
	},
	{
		name: "create-same-128", quick: true, target: 1.5, cores: true, noisy: true, run: createSame(128),
		what: sameWhat,
	},
	{
		name: "peer-get-16", target: 1.1, p99: 1.2, noisy: true, run: peerGet(16),
		what: peerGetWhat,
	},
	{
		name: "peer-get-64", target: 1.1, p99: 1.2, noisy: true, run: peerGet(64),
		what: peerGetWhat,
	},
	{
		name: "peer-get-128", tcp: true, target: 1.1, p99: 1.2, cores: true, noisy: true, run: peerGet(128),
		what: peerGetWhat,
	},
	{
		name: "peer-lookup-16", target: 1.1, p99: 1.2, noisy: true, run: peerLookup(16),
		what: peerLookupWhat,
	},
	{
		name: "peer-lookup-64", target: 1.1, p99: 1.2, noisy: true, run: peerLookup(64),
		what: peerLookupWhat,
	},
	{
		name: "peer-lookup-128", target: 1.1, p99: 1.2, noisy: true, run: peerLookup(128),
		what: peerLookupWhat,
	},
	{
		name: "session-1", quick: true, tcp: true, target: 0.85, cpu: 1.15, run: session(1),
		what: sessionWhat,
	},
	{
		name: "session-128", quick: true, target: 1.2, cores: true, noisy: true, run: session(128),
		what: sessionWhat,
	},
	{
		name: "get-128-cached", target: 3, run: get(128, 2*population),
		what: "finds by PRK with Options.CacheSize, when all entries are cached, against HGETALL",
	},
	{
		name: "count", quick: true, target: 0.85, run: (*bench).count,
		what: "counts entries with one value of an indexed field, against SCARD",
	},
	{
		name: "first-lookup", quick: true, target: 3, atMost: true, sittings: 1, run: (*bench).firstLookup,
		what: "time of the first * lookup after Open, against the hundredth",
	},
	{
		name: "create-history-1", quick: true, target: 0.83, run: createWithHistory(1),
		what: historyWhat,
	},
	{
		name: "create-history-16", target: 0.83, noisy: true, run: createWithHistory(16),
		what: historyWhat,
	},
	{
		name: "create-history-128", target: 0.83, noisy: true, run: createWithHistory(128),
		what: historyWhat,
	},
	{
		name: "cluster-create-history", target: 0.83, sittings: 3, run: (*bench).clusterCreateWithHistory,
		what: historyWhat + ", on six nodes with 16 callers",
	},
	{
		name: "create-many-1", target: 0.97, cpu: 1.03, run: (*bench).createOfMany,
		what: "creates with one address under a schema that allows ten, against creates under one that allows one",
	},
	{
		name: "create-ten-1", target: 1, run: (*bench).createTen,
		what: "a create with ten addresses, against ten creates with one each",
	},
	{
		name: "lookup-further-1", target: 0.97, cpu: 1.03, run: (*bench).lookupFurther,
		what: "finds by the last of ten addresses, against finding by the first",
	},
	{
		name: "create-held-1", target: 0.95, cpu: 1.05, sittings: 3, run: (*bench).createBesideHeld,
		what: "creates in a store in which a million deleted entries hold an address, against one with as many keys that holds none",
	},
	{
		name: "update-1", quick: true, tcp: true, target: 0.9, cpu: 1.25, run: (*bench).update,
		what: "changes a plain and a secondary facet of an entry that was read before, against a bare script with the same commands",
	},
	{
		name: "typed-find-1", quick: true, target: 0.87, run: compareTyped(1, typedFind),
		what: typedFindWhat,
	},
	{
		name: "typed-find-128", target: 0.87, noisy: true, run: compareTyped(128, typedFind),
		what: typedFindWhat,
	},
	{
		name: "typed-create-1", target: 0.87, run: compareTyped(1, typedCreate),
		what: "Create of a struct, against Create",
	},
	{
		name: "typed-save-1", target: 0.87, run: compareTyped(1, typedSave),
		what: "Save of a struct in which two facets differ, against Put and Save",
	},
	{
		name: "typed-page", target: 0.87, run: compareTyped(1, typedPage),
		what: "a Page of 256 structs, against one of entries",
	},
	{
		name: "import", quick: true, target: 0.8, sittings: 1, run: (*bench).compareImport,
		what: "JSON lines with hashes, all rules and uniqueness over 2 fields, against a pipeline of 1,000 HSET and 2,000 SET without checks",
	},
	{
		name: "import-million", target: 2.5, atMost: true, sittings: 1, run: (*bench).compareImportOfMillion,
		what: "processor time of an import of a million lines, against the pipeline of the row import",
	},
	{
		name: "check", target: 3.5, atMost: true, sittings: 1, run: (*bench).compareCheck,
		what: "time of a check of all records against a bare pass of SCAN, HGETALL and MGET over them",
	},
	{
		name: "any-scale", target: 1.25, atMost: true, sittings: 1, run: (*bench).anyScale,
		what: "time of a * lookup among a hundred times as many entries",
	},
	{
		name: "memory", quick: true, target: 1.10, atMost: true, sittings: 1, run: (*bench).memory,
		what: "bytes of an entry, against the records of CoffeeNode UserDB for the same data",
	},
	{
		name: "login", quick: true, target: 0.97, cpu: 1.05, cores: true, sittings: 1, run: (*bench).login,
		what: "a login, against a bare bcrypt comparison of the same cost; NAME-cores has a caller for each core",
	},
	{
		name: "login-same-time", target: 1.1, atMost: true, sittings: 1, run: (*bench).loginAnswers,
		what: "the slowest median of a wrong password, an unknown identifier, no password and a disabled entry, against the fastest",
	},
	{
		name: "read-under-login-flood", target: 3, atMost: true, sittings: 1, run: (*bench).readUnderFlood,
		what: "p99 of reads while ten times more logins arrive than can be hashed, against an idle machine",
	},
	{
		name: "memory-under-login-flood", target: 1.1, atMost: true, sittings: 1, run: (*bench).memoryUnderFlood,
		what: "heap and stacks late in a flood of logins, against early in it",
	},
	{
		name: "uniqueness-price", noisy: true, run: (*bench).uniquenessPrice,
		what: "Create of 128 callers, against Save of rueidis/om, which checks nothing",
	},
	{
		name: "om-fetch-128", target: 1, noisy: true, run: (*bench).omFetch,
		what: "Find, against Fetch of rueidis/om",
	},
	{
		name: "handmade-128", target: 1, noisy: true, run: create(128, watchMulti),
		what: "Create, against go-redis by hand with WATCH and MULTI",
	},
	{
		name: "cluster-create", target: 0.25, sittings: 3, run: clusterCreate(1),
		what: "create on six nodes, against one bare script in one slot",
	},
	{
		name: "cluster-create-64", target: 0.35, sittings: 3, run: clusterCreate(64),
		what: "create on six nodes, against one bare script in one slot, 64 callers",
	},
	{
		name: "cluster-create-trips", target: 3.4, atMost: true, sittings: 3, run: (*bench).clusterTrips,
		what: "time of a create if a message takes 1 ms each way, in round trips",
	},
	{
		name: "cluster-lookup", target: 0.9, sittings: 3, run: clusterLookup(1),
		what: "lookup on six nodes, against GET, then HGETALL",
	},
	{
		name: "cluster-lookup-64", target: 1, sittings: 3, run: clusterLookup(64),
		what: "lookup on six nodes, against GET, then HGETALL, 64 callers",
	},
	{
		name: "http-get-1", quick: true, target: 0.8, cpu: 1.25, noisy: true, run: webGet(1),
		what: webGetWhat,
	},
	{
		name: "http-get-16", target: 0.8, cpu: 1.25, noisy: true, run: webGet(16),
		what: webGetWhat,
	},
	{
		name: "http-get-128", quick: true, target: 0.8, noisy: true, run: webGet(128),
		what: webGetWhat,
	},
	{
		name: "http-session-1", quick: true, target: 0.8, cpu: 1.25, noisy: true, run: webSession(1),
		what: webSessionWhat,
	},
	{
		name: "http-session-16", target: 0.8, cpu: 1.25, noisy: true, run: webSession(16),
		what: webSessionWhat,
	},
	{
		name: "http-login-1", target: 0.8, sittings: 1, run: webLogin(1),
		what: webLoginWhat,
	},
	{
		name: "http-login-128", target: 0.8, sittings: 1, run: webLogin(128),
		what: webLoginWhat,
	},
	{
		name: "http-stream-200", target: 3, atMost: true, sittings: 1, run: (*bench).webStream,
		what: "time until the last of 200 listeners has 2,000 events, against that of making them",
	},
	{
		name: "cold", atMost: true, sittings: 1, named: true, run: (*bench).cold,
		what: "processor seconds of a first go build of the command, against building only the packages of Go itself that it uses",
	},
	{
		name: "keys", target: 1, atMost: true, sittings: 1, run: (*bench).keys,
		what: "allocations of parsing a key (0) and of building one and writing it as text (1)",
	},
}
