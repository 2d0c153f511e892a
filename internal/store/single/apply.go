package single

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/arg"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/recordkey"
)

var (
	createScript = redisx.NewScript(redisx.IsNumber, source("create"))
	// updateScript makes changes that write no history. It has no history functions, because
	// defining them would cost Redis 2 µs in each call.
	updateScript = redisx.NewScript(redisx.IsNumber, "local permission_error, note\n", source("update"))
	notedScript  = redisx.NewScript(redisx.IsNumber, history.Lua, source("update"))
)

// An outcome is the result of an attempt to make a change without change.lua.
type outcome struct {
	made   bool
	unsure bool // the change may have been made; if so, change.lua finds its rev
}

// Apply implements [store.Engine]. It first runs a short script or, while many callers create
// entries, one script for all of them. If that cannot make the change, it runs change.lua, which
// makes any change.
func (e *Engine) Apply(ctx context.Context, c store.Change) (string, error) {
	if err := c.CheckFields(); err != nil {
		return "", fmt.Errorf("changing %s: %w", c.Key, err)
	}
	rev := store.NewRev()
	result, err := e.applyFast(ctx, &c, rev)
	switch {
	case err != nil:
		return "", fmt.Errorf("changing %s: %w", c.Key, err)
	case !result.made:
		err = e.applyAny(ctx, c, rev, result.unsure)
	}
	if err == nil {
		e.AfterNote(ctx, c.Key, c.Note)
	}
	return rev, e.awaitReplicas(ctx, &c, rev, err)
}

// awaitReplicas returns err if it is not nil. Otherwise it waits until as many replicas as c asks
// for have the change. It checks only the entry's rev, since one script wrote the whole change.
func (e *Engine) awaitReplicas(ctx context.Context, c *store.Change, rev string, err error) error {
	if err != nil || c.Replicas == 0 {
		return err
	}
	return redisx.Confirm(ctx, e.client, c.Key, rev, c.Replicas, c.ReplicaTime)
}

// applyFast makes a change without change.lua, if that is possible.
func (e *Engine) applyFast(ctx context.Context, c *store.Change, rev string) (result outcome, err error) {
	if onlyCreates(c) {
		defer e.creating.Add(-1)
		if e.creating.Add(1) > redisx.BatchThreshold {
			result, err = e.createWithOthers(ctx, c, rev)
		}
	}
	if err == nil && result == (outcome{}) && isShort(c) {
		result, err = e.applyShort(ctx, c, rev)
	}
	return result, err
}

// maxShortFacets limits the facets in a change that the short scripts make, since unpack in Lua
// fails for a long list.
const maxShortFacets = 1000

// isShort reports whether the short scripts can make a change. They can make most changes that
// touch only facets and secondary values.
func isShort(c *store.Change) bool {
	switch {
	case c.Delete, c.Repair, c.OnlyDisables():
		return false
	case len(c.Index)+len(c.Unindex)+len(c.Rank)+len(c.Unrank)+len(c.Add)+len(c.Drop)+len(c.Hold) > 0:
		return false
	case len(c.Set)+len(c.Unset) >= maxShortFacets:
		return false
	case c.Expected.Fence != "", c.Tokens.Known, c.Tokens.Spend != "":
		return false
	case c.Create:
		return noteFits(c)
	}
	return c.Expected.Rev != ""
}

// noteFits reports whether a create has no line for the history, or one that the entry can hold.
func noteFits(c *store.Change) bool { return len(c.Note.Lines) == 0 || c.Note.StoredInEntry() }

// applyShort runs create.lua or update.lua, which make the whole change or none of it. Each attempt
// has a command of its own, because hooks of the client may change the words of a command.
func (e *Engine) applyShort(ctx context.Context, c *store.Change, rev string) (outcome, error) {
	reply, unsure, err := e.client.Retry.Do(ctx, func(bool) (any, error) {
		s, call := e.shortCall(c, rev)
		return s.WriteCall(ctx, e.client.Process, call)
	})
	return outcome{made: reply == int64(1), unsure: unsure}, err
}

// shortCall returns create.lua or update.lua, and the command that runs it for a change. The words
// of the command are pointers to texts of c.
func (e *Engine) shortCall(c *store.Change, rev string) (s redisx.Script, call []any) {
	texts := appendKeys(make([]string, 0, 20), []recordkey.Key{c.Key, c.Schema.Key}, c.Claim, c.Elsewhere)
	prk, claims := texts[0][len(c.Key.Namespace().String()):], strconv.Itoa(len(c.Claim))
	var keys int
	var note []string
	if c.Create {
		for _, d := range c.Schema.Containers(c.Key) { // a create that failed may have left them
			texts = append(texts, d.Key.String())
		}
		var line, maxEntries string
		texts, line, maxEntries = e.noteCreate(texts, c)
		s, keys = createScript, len(texts)
		texts = append(texts, c.Schema.Fingerprint, prk, claims, line, arg.Time(c.Note.Now), maxEntries, store.FieldRev, rev)
	} else {
		s, texts = updateScript, appendKeys(texts, c.Release)
		if len(c.Note.Lines) > 0 {
			s = notedScript
			texts, note = e.AppendNote(texts, nil, history.InBoth, c.Key, c.Note)
		}
		keys = len(texts)
		texts = append(texts, c.Schema.Fingerprint, prk, claims, strconv.Itoa(len(c.Elsewhere)), c.Expected.Rev, rev, strconv.Itoa(len(c.Unset)))
	}
	redundant := c.RedundantCanonicals()
	call = s.Call(keys, len(texts)+len(c.Unset)+2*len(c.Set)+2*len(redundant)+len(note))
	call = redisx.AppendWords(redisx.AppendWords(call, texts), c.Unset)
	for _, set := range [...][]store.Facet{c.Set, redundant} {
		for i := range set {
			call = append(call, &set[i].Field, &set[i].Wire)
		}
	}
	return s, redisx.AppendWords(call, note)
}

// noteCreate returns the history line of a create and the maximum number of entries in the feed, or
// "" and "0" if the create has no line. If there is a line, it also appends the key of the feed to
// keys.
func (e *Engine) noteCreate(keys []string, c *store.Change) (withFeed []string, line, maxEntries string) {
	if len(c.Note.Lines) == 0 {
		return keys, "", "0"
	}
	feed := e.FeedKey(c.Key.Namespace(), history.FeedChanges, c.Key)
	return append(keys, feed), c.Note.Lines[0], e.MaxFeedEntries(history.FeedChanges)
}

func appendList(args, items []string) []string {
	return append(append(args, strconv.Itoa(len(items))), items...)
}

// appendKeys appends the texts of the keys in some lists. They share one piece of memory.
func appendKeys(keys []string, lists ...[]recordkey.Key) []string {
	var buf [512]byte
	b := buf[:0]
	ends := make([]int, 0, 16)
	for _, list := range lists {
		for i := range list {
			b, _ = list[i].AppendText(b) // every key of a change is valid
			ends = append(ends, len(b))
		}
	}
	texts, at := string(b), 0
	for _, end := range ends {
		keys, at = append(keys, texts[at:end]), end
	}
	return keys
}

var (
	guardLua     = source("guard")
	changeScript = redisx.NewScript(redisx.IsVerdict, history.Lua, token.Lua, onekey.TombstoneLua, guardLua, source("change"))
)

// maxRuns is how many times applyAny runs change.lua before it gives up.
const maxRuns = 20

// applyAny makes any change. unsure says that the change may have been made already.
func (e *Engine) applyAny(ctx context.Context, c store.Change, rev string, unsure bool) error {
	if c.Create {
		// A create that failed, or an earlier entry, may have left these records.
		historyKey, _ := history.Key(c.Key) // every PRK has one
		c.Drop = append(c.Leftovers(), store.Container{Key: historyKey})
	}
	c.Set = append(slices.Clip(c.Set), c.RedundantCanonicals()...)
	a := attempt{e: e, c: e.addDrops(c), srks: slices.Concat(c.Claim, c.Elsewhere), rev: rev, mayStore: c.Schema.MayStore, unsure: unsure}
	for range maxRuns {
		reply, err := a.send(ctx)
		if err != nil {
			return err
		}
		if redisx.Text(reply, 0) == "ok" {
			e.dropMovedAside(ctx, c.Key, redisx.Text(reply, 1))
			return nil
		}
		if err := a.fetchMissing(ctx, reply); err != nil {
			return err
		}
	}
	return store.ErrConflict
}

// An attempt is a change in progress, together with the information that change.lua has asked for
// so far.
type attempt struct {
	e           *Engine
	c           store.Change
	srks        []recordkey.Key // c.Claim, then c.Elsewhere
	rev         string
	mayStore    bool // the schema may be stored if none is
	searched    bool // the store was searched for entries that no stored schema describes
	unsure      bool // the change may have been made already
	readMembers bool // send reads the members of the sets to drop, since the script needs them
	owners      []owner
}

// An owner describes an SRK that names another entry.
type owner struct {
	number int    // the number of the SRK in attempt.srks, from 1
	value  string // its value, which begins with the relative PRK of that entry
}

// send runs change.lua and returns its reply. If the reply is lost, it runs the script again.
func (a *attempt) send(ctx context.Context) ([]any, error) {
	known := make([][]string, len(a.c.Drop))
	if !a.c.Create || a.readMembers { // a create rarely finds anything there
		var err error
		if known, err = a.e.knownMembers(ctx, a.c.Drop); err != nil {
			return nil, err
		}
	}
	keys, args := a.args(known)
	answer, unsure, err := a.e.client.Retry.Do(ctx, func(unsure bool) (any, error) {
		if a.c.Create && (a.unsure || unsure) {
			args[expectedArg] = resent
		}
		return changeScript.Write(ctx, a.e.client.Process, keys, args)
	})
	a.unsure = a.unsure || unsure
	if redisx.WrongType(err) {
		return nil, &store.CorruptError{Key: a.c.Key.String(), Reason: "it or a record that belongs to it has the wrong Redis type (WRONGTYPE)"}
	}
	if err != nil {
		return nil, fmt.Errorf("changing %s: %w", a.c.Key, err)
	}
	return redisx.Items(answer), nil
}

// fetchMissing gets the information that the script asked for in its reply. It returns an error if
// the change cannot be made.
func (a *attempt) fetchMissing(ctx context.Context, reply []any) (err error) {
	switch redisx.Text(reply, 0) {
	case "occupied":
		a.owners, err = a.parseOwners(reply[1:])
		return err
	case "members":
		a.readMembers = true
		return nil
	case "filling":
		return a.e.completeEntry(ctx, a.c.Key, redisx.Text(reply, 1))
	case "names":
		before := len(a.c.Drop)
		a.e.schemas.Store(a.c.Schema.Key, store.StoredSchema{JSON: redisx.Text(reply, 1), Fields: redisx.Texts(reply[min(2, len(reply)):])})
		if a.c = a.e.addDrops(a.c); len(a.c.Drop) == before && len(reply) > 2 {
			return &store.CorruptError{Key: a.c.Schema.Key.String(), Reason: "a field that names no tertiary record"}
		}
		return nil
	case "unstored":
		// Another program may just have created the first entries and stored the schema. Try once
		// more.
		err := store.CheckNoEntries(ctx, a.e, a.c.Schema.Entries)
		if err != nil && (a.searched || !errors.Is(err, store.ErrSchemaMismatch)) {
			return err
		}
		a.mayStore, a.searched = err == nil, true
		return nil
	}
	return a.refusalError(reply)
}

// addDrops returns c with more records to drop if c is a delete or a create: the records that its
// own schema does not declare, but that the stored schema names. It uses the stored schema that
// change.lua last reported.
func (e *Engine) addDrops(c store.Change) store.Change {
	last, _ := e.schemas.Load(c.Schema.Key)
	if s, is := last.(store.StoredSchema); is && (c.Delete || c.Create) {
		c.Drop = append(slices.Clip(c.Drop), s.MoreDrops(c)...)
		if c.Delete {
			c.Schema.JSON = s.JSON // tells the script which stored schema was considered
		}
	}
	return c
}

// refusalError returns the error for a reply that says why nothing was written.
func (a *attempt) refusalError(reply []any) error {
	c, what, detail := a.c, redisx.Text(reply, 0), redisx.Text(reply, 1)
	reply = append(reply, nil) // reply[1] must exist
	if a.unsure && what != "duplicate" && what != "held" && !store.RevsComplete(detail, c.Expected.Rev) {
		return fmt.Errorf("changing %s: %w", c.Key, store.ErrOutcomeUnknown)
	}
	switch what {
	case "exists":
		return store.DuplicateField(c.Key.Field())
	case "retired":
		return store.RetiredUID(c.Key.Field())
	case "absent", "token":
		return store.ErrNotFound
	case "conflict":
		return store.ErrConflict
	case "schema":
		return &store.MismatchError{Stored: detail}
	case "damaged":
		return &store.CorruptError{Key: c.Key.String(), Reason: "a hash without ~isa"}
	case "duplicate":
		if n, ok := a.parseSRKNumber(reply[1]); ok {
			return store.DuplicateOf(c, a.srks[n-1])
		}
	case "held":
		if n, ok := a.parseSRKNumber(reply[1]); ok {
			return store.HeldOf(c, a.srks[n-1])
		}
	}
	return fmt.Errorf("changing %s: %w: %w", c.Key, store.ErrOutcomeUnknown, redisx.UnknownWord(what))
}

// parseOwners parses an "occupied" reply, which lists the number and the value of each occupied
// SRK.
func (a *attempt) parseOwners(pairs []any) ([]owner, error) {
	var owners []owner
	for i := 0; i+1 < len(pairs); i += 2 {
		n, ok := a.parseSRKNumber(pairs[i])
		value, is := pairs[i+1].(string)
		if !ok || !is {
			return nil, redisx.Fail(redisx.UnknownWord("occupied"))
		}
		owners = append(owners, owner{n, value})
	}
	return owners, nil
}

// parseSRKNumber returns the number of an SRK, from 1, and reports whether item is one.
func (a *attempt) parseSRKNumber(item any) (int, bool) {
	n, is := item.(int64)
	return int(n), is && n >= 1 && n <= int64(len(a.srks))
}

// knownMembers returns the members of each indexed set in drop, so that their index sets can be
// among the script's keys. It returns none for a large set, which the script moves aside instead.
func (e *Engine) knownMembers(ctx context.Context, drop []store.Container) (known [][]string, err error) {
	known = make([][]string, len(drop))
	for i, d := range drop {
		if d.Indexed && err == nil {
			var whole bool
			if known[i], whole, _, err = e.Members(ctx, d.Key.String()); !whole {
				known[i] = nil
			}
		}
	}
	return known, err
}

// expectedArg is the index of the argument with the rev that the entry must have. A create has no
// such rev.
const expectedArg = 8

// resent is the value of that argument for a create that may have been made already.
const resent = "again"

// args returns the keys and the arguments of change.lua. known holds the members of each record in
// c.Drop.
func (a *attempt) args(known [][]string) (keys, args []string) {
	c := a.c
	tokens, _ := token.Key(c.Key) // every PRK has one
	keys = []string{c.Key.String(), c.Schema.Key.String(), c.Schema.Types.String(), tokens.String()}
	args = append(guardArgs(c.Key, c.Schema, a.rev, a.mayStore), operation(c), c.Expected.Rev)
	for _, n := range []int{
		len(c.Claim), len(c.Elsewhere), len(c.Release), len(c.Hold), len(c.Index), len(c.Unindex),
		len(c.Rank), len(c.Unrank), len(c.Add), len(c.Drop), len(a.owners), 2 * len(c.Set),
	} {
		args = append(args, strconv.Itoa(n))
	}
	for _, f := range c.Set {
		args = append(args, f.Field, f.Wire)
	}
	rankKeys, ranks := splitRanked(c.Rank)
	unrankKeys, unranks := splitRanked(c.Unrank)
	holdKeys, ends := splitHeld(c.Hold)
	for _, list := range [][]string{c.Unset, ends, ranks, unranks, c.Tokens.Args()} {
		args = appendList(args, list)
	}
	for _, ks := range [][]recordkey.Key{a.srks, c.Release, holdKeys, c.Index, c.Unindex, rankKeys, unrankKeys} {
		keys = appendKeys(keys, ks)
	}
	for _, m := range c.Add {
		args = append(appendList(args, m.Values), arg.Bool(len(m.Index) > 0), m.Command())
		keys = appendKeys(append(keys, m.Key.String(), store.PreparedKey(m.Key, a.rev)), m.Index)
	}
	for i, d := range c.Drop {
		batch := 0
		if d.Indexed {
			batch = a.e.options.MemberBatch
		}
		keys = appendKeys(append(keys, d.Key.String(), store.DropKey(d.Key, a.rev)), memberIndexes(d.Key, known[i]))
		args = appendList(append(args, strconv.Itoa(batch)), known[i])
	}
	ns := c.Key.Namespace().String()
	for _, o := range a.owners {
		srk := a.srks[o.number-1]
		keys = append(keys, ns+store.Owner(o.value))
		args = append(args, strconv.Itoa(o.number), o.value, srk.Field(), srk.Value())
	}
	return a.e.AppendNote(keys, args, history.InBoth, c.Key, c.Note)
}

// operation returns the word that tells change.lua what a change does.
func operation(c store.Change) string {
	switch {
	case c.Delete:
		return "delete"
	case c.Create:
		return "create"
	case c.Repair:
		return "mend"
	case c.OnlyDisables():
		return "disable"
	}
	return "update"
}

// guardArgs returns the first arguments of change.lua and tertiary.lua, as guard.lua reads them.
func guardArgs(prk recordkey.Key, g store.Guard, rev string, mayStore bool) []string {
	return []string{
		prk.In(recordkey.Namespace{}).String(), prk.Namespace().String(), rev,
		g.Fingerprint, g.JSON, arg.Bool(mayStore), prk.Type(),
	}
}

// memberIndexes returns the index set of each member of a set. For a member that cannot be part of
// an index key, it returns the key of the set itself. Removing the entry from the set itself does
// no harm, since the set is being dropped.
func memberIndexes(set recordkey.Key, members []string) []recordkey.Key {
	index := make([]recordkey.Key, len(members))
	for i, m := range members {
		index[i] = set
		if k, err := recordkey.Index(set.Type(), set.Name(), m); err == nil {
			index[i] = k.In(set.Namespace())
		}
	}
	return index
}

// splitHeld returns the keys of held values and when they expire, as two parallel lists.
func splitHeld(held []store.HeldKey) (keys []recordkey.Key, ends []string) {
	for _, h := range held {
		keys, ends = append(keys, h.Key), append(ends, strconv.FormatInt(h.End, 10))
	}
	return keys, ends
}

// splitRanked returns the keys and the members of ranks as two parallel lists.
func splitRanked(ranks []store.Ranked) (keys []recordkey.Key, members []string) {
	for _, r := range ranks {
		keys, members = append(keys, r.Key), append(members, r.Member)
	}
	return keys, members
}
