package admin

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// Owned counts the things of one kind that belong to a namespace but are stored outside it.
type Owned struct {
	Thing string // such as "API key"
	N     int64
}

// KeyMaxAge is how long a process trusts an API key that it has read, and RequestTimeout how long a
// request may use the store after its key was checked. Within RevocationTime after a key was
// revoked, an operator was disabled or a job was removed, every process has finished all work for
// them. That includes the last steps of imports and jobs, which may take 20 seconds more than a
// request.
const (
	KeyMaxAge      = 4 * time.Second
	RequestTimeout = 30 * time.Second
	RevocationTime = KeyMaxAge + RequestTimeout + 21*time.Second
)

// A removal removes the things of a namespace and of the namespaces inside it. If dry, it only
// counts them.
type removal struct {
	db  *userdb.DB // its feed records the removals
	ns  string
	dry bool
}

// owned lists everything that this package stores for namespaces. Operators come first, because a
// disabled operator can make no more keys, links or jobs.
var owned = []struct {
	thing string
	take  func(removal, context.Context) (int64, error)
}{
	{"operator", removal.operators},
	{"set-up link", removal.setupLinks},
	{"link", removal.links},
	{"API key", removal.keys},
	{"job", removal.jobs},
	{"group", removal.groups},
}

// CountOwned counts the things of a namespace and of the namespaces inside it: operators who are
// not disabled, set-up links, links that operators made for accounts, API keys, jobs and groups of
// directories. It leaves out kinds with none.
func CountOwned(ctx context.Context, db *userdb.DB, ns recordkey.Namespace) ([]Owned, error) {
	return removal{db, ns.Path(), true}.all(ctx)
}

// RemoveOwned removes the things that CountOwned counts, so that none is left for others who use
// the name of the namespace later, and returns their numbers. It disables operators instead of
// removing them, because histories name them. It records each disabled operator and revoked key as
// an event in the feed of db, and only logs a failure to do so. It can be stopped and called again.
// Processes may still write to the namespace until RevocationTime after the call. Call RemoveOwned
// again after that to remove what they left, such as a group.
func RemoveOwned(ctx context.Context, db *userdb.DB, ns recordkey.Namespace) ([]Owned, error) {
	return removal{db, ns.Path(), false}.all(ctx)
}

// EverServed reports whether the store has or had an API key, an operator, a link or a job. If not,
// no process of the service can have written to a namespace.
func EverServed(ctx context.Context, db *userdb.DB) (bool, error) {
	adminDB, err := Open(db)
	if err != nil {
		return false, err
	}
	stored, err := migrate.StoredSchema(ctx, adminDB) // stored together with the first of them
	return len(stored.Types) > 0, err
}

func (r removal) all(ctx context.Context) (all []Owned, err error) {
	if ns, err := recordkey.ParseNamespace(r.ns); err != nil || r.ns == "" || view.IsReserved(ns) {
		return nil, &recordkey.SyntaxError{Func: "RemoveOwned", Input: r.ns, Reason: "it is the whole store, or the store's own namespace"}
	}
	for _, o := range owned {
		n, err := o.take(r, ctx)
		if n > 0 {
			all = append(all, Owned{o.thing, n})
		}
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// record records the event of a removal.
func (r removal) record(ctx context.Context, kind userdb.EventKind, name string) {
	if err := RecordEvent(ctx, r.db, kind, name); err != nil {
		view.Of(r.db).WarnMissing(ctx, kind, err)
	}
}

func (r removal) operators(ctx context.Context) (n int64, err error) {
	operators, err := Operators(r.db)
	if err != nil {
		return 0, err
	}
	for e, err := range operators.All(ctx, userdb.Query{Order: OperatorName}) {
		if err != nil {
			return n, err
		}
		if e.Disabled() || !CanSee(r.ns, e.Text(OperatorNamespace)) {
			continue
		}
		if !r.dry {
			if err := operators.Disable(ctx, hints.Key(e.Key())); err != nil {
				return n, err
			}
			r.record(ctx, userdb.EventOperatorDisable, e.Text(OperatorName))
		}
		n++
	}
	return n, nil
}

func (r removal) setupLinks(ctx context.Context) (n int64, err error) {
	prk, err := recordkey.PRK(operatorType, "uid", setupPrefix)
	if err != nil {
		return 0, err
	}
	key, err := token.Key(prk.In(view.Reserved))
	if err != nil {
		return 0, err
	}
	engine, begin, seen := view.Of(r.db).Engine, strings.TrimSuffix(key.String(), "}"), map[string]bool{}
	for found, err := range engine.ScanAll(ctx, store.Scan{Pattern: recordkey.Glob(begin) + "*", Count: scanBatch}) {
		if err != nil {
			return n, err
		}
		records, err := store.Hashes(ctx, engine, found)
		if err != nil {
			return n, err
		}
		for i, raw := range found {
			if seen[raw] || !r.ownsSetupLink(records[i].Fields) {
				continue
			}
			seen[raw] = true // a scan may return a key twice
			if _, err := r.removeRecord(ctx, raw); err != nil {
				return n, err
			}
			n++
		}
	}
	return n, nil
}

// ownsSetupLink reports whether the set-up link whose record has the given members is valid in the
// namespace of r or in one inside it.
func (r removal) ownsSetupLink(members map[string]string) bool {
	for _, member := range members { // its last word is the escaped namespace
		ns, err := recordkey.Unescape(member[strings.LastIndexByte(member, ' ')+1:])
		if err == nil && CanSee(r.ns, ns) {
			return true
		}
	}
	return false
}

// links removes the records of links that operators made. The links themselves end with their
// accounts.
func (r removal) links(ctx context.Context) (n int64, err error) {
	links, err := OpenLinks(r.db)
	if err != nil {
		return 0, err
	}
	for l, err := range links.typed.All(ctx, userdb.Query{Order: "expires"}) {
		if err != nil {
			return n, err
		}
		if !CanSee(r.ns, l.Namespace) {
			continue
		}
		if !r.dry {
			if err := links.all.Delete(ctx, hints.UID(l.ID)); err != nil && !errors.Is(err, userdb.ErrNotFound) {
				return n, err
			}
		}
		n++
	}
	return n, nil
}

func (r removal) keys(ctx context.Context) (n int64, err error) {
	keys, err := OpenKeys(r.db)
	if err != nil {
		return 0, err
	}
	keys = keys.In(r.ns)
	all, err := keys.All(ctx)
	for _, k := range all {
		if !r.dry {
			if err := keys.Revoke(ctx, k.Name); errors.Is(err, userdb.ErrNotFound) {
				continue // revoked meanwhile
			} else if err != nil {
				return n, err
			}
			r.record(ctx, userdb.EventKeyRevoke, k.Name)
		}
		n++
	}
	return n, err
}

// jobs removes the records of jobs. A job that is running stops at its next heartbeat.
func (r removal) jobs(ctx context.Context) (n int64, err error) {
	jobs, err := OpenJobs(r.db)
	if err != nil {
		return 0, err
	}
	all, err := jobs.In(r.ns).All(ctx)
	for _, j := range all {
		if !r.dry {
			if err := jobs.all.Delete(ctx, hints.UID(j.ID)); err != nil && !errors.Is(err, userdb.ErrNotFound) {
				return n, err
			}
		}
		n++
	}
	return n, err
}

// groups removes all records of groups and counts the groups.
func (r removal) groups(ctx context.Context) (n int64, err error) {
	// Remove the entries first. If names went first, a second group could take the name of a group
	// that still exists.
	n, err = r.groupRecords(ctx, true)
	if err == nil && !r.dry {
		_, err = r.groupRecords(ctx, false)
	}
	return n, err
}

// groupRecords removes and counts the entries of groups or, if entries is false, their other
// records.
func (r removal) groupRecords(ctx context.Context, entries bool) (n int64, err error) {
	seen := map[string]bool{} // a scan may return a key twice
	for found, err := range view.Of(r.db).Engine.ScanAll(ctx, store.Scan{Pattern: recordkey.Glob(groupSpaces.String()) + "*", Count: scanBatch}) {
		if err != nil {
			return n, err
		}
		for _, raw := range found {
			key, err := recordkey.Parse(raw)
			isEntry := err == nil && key.Kind() == recordkey.KindPRK
			if entries != isEntry || seen[raw] || !CanSee(r.ns, groupNamespace(raw)) {
				continue
			}
			seen[raw] = entries
			removed, err := r.removeRecord(ctx, raw)
			if err != nil {
				return n, err
			}
			if removed {
				n++
			}
		}
	}
	return n, nil
}

// removeRecord removes a record and reports whether it existed. A dry run only returns true.
func (r removal) removeRecord(ctx context.Context, key string) (existed bool, err error) {
	if r.dry {
		return true, nil
	}
	return view.Of(r.db).Engine.Repair(ctx, store.Remove{Key: key})
}

// scanBatch is the number of keys that each SCAN asks for.
const scanBatch = 1000
