package userdb

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/schema"
)

// A tertiary is a tertiary record of the entry that a hint points at.
type tertiary struct {
	t          *Type
	h          hints.Hint
	name, kind string
}

// maxElements is how many elements of a tertiary record one verb takes.
const maxElements = 10_000

func checkElements(name string, elements []string) error {
	if len(elements) > maxElements {
		return invalid(name, "max", "over 10,000 elements in one call")
	}
	if slices.ContainsFunc(elements, func(e string) bool { return len(e) > schema.MaxFacet }) {
		return invalid(name, "size", "an element of over 64 KiB")
	}
	return nil
}

// What a command does to a record.
type effect int

const (
	reads    effect = iota
	writes          // sent again, it does nothing more
	writesOn        // sent again, it is done twice: so a lost reply is ErrOutcomeUnknown
)

// verbs are the methods below, by their commands.
var verbs = map[string]string{
	"SADD": "Set.Add", "SREM": "Set.Remove", "SISMEMBER": "Set.Has", "SMEMBERS": "Set.Members", "SCARD": "Set.Len",
	"RPUSH": "List.Append", "LPUSH": "List.Prepend", "LPOP": "List.First", "RPOP": "List.Last", "LRANGE": "List.Items",
	"LREM": "List.Remove", "LLEN": "List.Len",
	"HSET": "Hash.Put", "HGET": "Hash.Get", "HGETALL": "Hash.All", "HDEL": "Hash.Remove", "HLEN": "Hash.Len",
	"SET": "String.Put", "GET": "String.Get", "UNLINK": "String.Remove",
	"ZADD": "SortedSet.Put", "ZINCRBY": "SortedSet.Increase", "ZSCORE": "SortedSet.Score", "ZRANGE": "SortedSet.Range",
	"ZRANGEBYSCORE": "SortedSet.Between", "ZREM": "SortedSet.Remove", "ZCARD": "SortedSet.Len",
}

// adding are the commands that add members, by how many of their arguments make one.
var adding = map[string]int{"SADD": 1, "RPUSH": 1, "LPUSH": 1, "HSET": 2, "ZADD": 2, "ZINCRBY": 2}

// do runs a command. Index members are kept for sets that the schema declares as indexed (I5).
func (r tertiary) do(ctx context.Context, does effect, command string, args ...string) (reply store.Reply, err error) {
	ctx, v := r.t.db.begin(ctx, verbs[command], &err)
	defer v.end(&err)
	if err := checkElements(r.name, args); err != nil {
		return store.Reply{}, err
	}
	err = r.t.following(ctx, func(t *Type) (err error) {
		r.t = t
		reply, err = r.run(ctx, does, command, args)
		return err
	})
	return reply, err
}

func (r tertiary) run(ctx context.Context, does effect, command string, args []string) (store.Reply, error) {
	most, each := 0, adding[command]
	if each > 0 {
		most = r.t.declared.Schema.Tertiary[r.name].Limit()
	}
	if most > 0 && len(args)/each > most {
		return store.Reply{}, public(r.t.declared.TooMany(r.name))
	}
	_, l, err := r.t.view.Resolve(r.h, r.t.declared.Name)
	if err != nil {
		return store.Reply{}, err
	}
	op := store.Op{PRK: l.PRK, Command: command, Args: args, Write: does != reads, Once: does == writesOn, Most: most}
	if !op.PRK.IsValid() {
		e, err := r.t.view.FindOne(ctx, l)
		if err != nil {
			return store.Reply{}, err
		}
		op.PRK = e.Key
	}
	switch command {
	case "SADD":
		op.Key, op.Index, err = r.t.declared.Tertiary(op.PRK, r.name, r.kind, args)
	case "SREM":
		op.Key, op.Unindex, err = r.t.declared.Tertiary(op.PRK, r.name, r.kind, args)
	default:
		op.Key, _, err = r.t.declared.Tertiary(op.PRK, r.name, r.kind, nil)
	}
	if err != nil {
		return store.Reply{}, public(err)
	}
	reply, err := r.send(ctx, op)
	if errors.Is(err, store.ErrFull) {
		err = public(r.t.declared.TooMany(r.name))
	}
	same := reply.Int == 0 && (command == "SADD" || command == "SREM")
	if op.Write && done(err) && !same {
		r.t.tellUpdate(ctx, op.PRK, []string{r.name})
	}
	return reply, err
}

// count is the answer of a command that answers with a number.
func (r tertiary) count(ctx context.Context, does effect, command string, args ...string) (int64, error) {
	reply, err := r.do(ctx, does, command, args...)
	return reply.Int, err
}

// each is count for a command that writes elements; without any there is nothing to do.
func (r tertiary) each(ctx context.Context, command string, elements []string) (int64, error) {
	if len(elements) == 0 {
		return 0, nil
	}
	return r.count(ctx, writes, command, elements...)
}

// text is a reply that may be absent.
func text(reply store.Reply, err error) (string, bool, error) {
	return reply.Text, err == nil && !reply.Nil, err
}

// Set is a tertiary record that holds a set, such as an entry's tags. Like [List], [Hash],
// [String] and [SortedSet] it hangs on an entry, under a name that the schema declares with its
// Redis type. The first write makes it, and it goes with its last element, as in Redis. Every
// method costs one round trip where the hint is a PRK or a UID, and two otherwise; ErrNotFound
// says that the entry is not live, *schema.Error that the name is not declared with this type,
// ErrCorrupt that the record is of another Redis type; and, of what adds members, a *FieldError of
// the rule "max" that there would be more than the schema's limit. Writes do not change the
// entry's Rev.
type Set struct{ r tertiary }

// Set names the tertiary set of the entry that a hint points at.
func (t *Type) Set(h hints.Hint, name string) Set { return Set{tertiary{t, h, name, "set"}} }

// Tags is the tertiary set "tags".
func (t *Type) Tags(h hints.Hint) Set { return t.Set(h, change.TagsName) }

// Add puts members in and returns how many are new.
func (s Set) Add(ctx context.Context, members ...string) (int64, error) {
	return s.r.each(ctx, "SADD", distinct(members))
}

// Remove takes members out and returns how many were there.
func (s Set) Remove(ctx context.Context, members ...string) (int64, error) {
	return s.r.each(ctx, "SREM", distinct(members))
}

// Replace makes the set these members, and no others, in one change of the entry, which has another Rev then.
func (s Set) Replace(ctx context.Context, members ...string) (err error) {
	r := s.r
	ctx, v := r.t.db.begin(ctx, "Set.Replace", &err)
	defer v.end(&err)
	members = distinct(members)
	if err := checkElements(r.name, members); err != nil {
		return err
	}
	return r.t.following(ctx, func(t *Type) error {
		after, err := t.rewrite(ctx, r.h, store.Record{}, func(now store.Record) (c store.Change, due bool, err error) {
			c, _, err = t.declared.Update(now, change.Bare(now), nil)
			if err == nil {
				err = t.declared.Replace(&c, []change.Content{{Name: r.name, Kind: r.kind, Values: members}})
			}
			return c, err == nil, err
		})
		if done(err) {
			t.tellUpdate(ctx, after.Key, []string{r.name})
		}
		return err
	})
}

// distinct are texts sorted, each once.
func distinct(texts []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(texts)))
}

// Has reports whether member is in the set.
func (s Set) Has(ctx context.Context, member string) (bool, error) {
	n, err := s.r.count(ctx, reads, "SISMEMBER", member)
	return n == 1, err
}

// Members returns all members, sorted; none where there is no record. A set of more than about a
// thousand is read in pages: members that come or go meanwhile may be missing.
func (s Set) Members(ctx context.Context) ([]string, error) {
	reply, err := s.r.do(ctx, reads, "SMEMBERS")
	slices.Sort(reply.Items)
	return slices.Compact(reply.Items), err
}

// Len is how many members there are.
func (s Set) Len(ctx context.Context) (int64, error) { return s.r.count(ctx, reads, "SCARD") }

// List is a tertiary record that holds a list.
type List struct{ r tertiary }

// List names the tertiary list of the entry that a hint points at.
func (t *Type) List(h hints.Hint, name string) List { return List{tertiary{t, h, name, "list"}} }

// Append puts items at the end and returns how long the list is then. A lost reply is ErrOutcomeUnknown.
func (l List) Append(ctx context.Context, items ...string) (int64, error) {
	return l.push(ctx, "RPUSH", items)
}

// Prepend puts items at the front, the last one foremost. A lost reply is ErrOutcomeUnknown.
func (l List) Prepend(ctx context.Context, items ...string) (int64, error) {
	return l.push(ctx, "LPUSH", items)
}

func (l List) push(ctx context.Context, command string, items []string) (int64, error) {
	if len(items) == 0 {
		return l.Len(ctx)
	}
	return l.r.count(ctx, writesOn, command, items...)
}

// First takes the first item out; false for an empty list. A lost reply is ErrOutcomeUnknown.
func (l List) First(ctx context.Context) (string, bool, error) {
	return text(l.r.do(ctx, writesOn, "LPOP"))
}

// Last takes the last item out; false for an empty list. A lost reply is ErrOutcomeUnknown.
func (l List) Last(ctx context.Context) (string, bool, error) {
	return text(l.r.do(ctx, writesOn, "RPOP"))
}

// Items returns the items from start to stop, both included, from 0; negative ones count from the end.
func (l List) Items(ctx context.Context, start, stop int64) ([]string, error) {
	reply, err := l.r.do(ctx, reads, "LRANGE", itoa(start), itoa(stop))
	return reply.Items, err
}

// Remove takes out every item that equals item and returns how many there were.
func (l List) Remove(ctx context.Context, item string) (int64, error) {
	return l.r.count(ctx, writes, "LREM", "0", item)
}

// Len is how long the list is.
func (l List) Len(ctx context.Context) (int64, error) { return l.r.count(ctx, reads, "LLEN") }

// Hash is a tertiary record that holds names with values.
type Hash struct{ r tertiary }

// Hash names the tertiary hash of the entry that a hint points at.
func (t *Type) Hash(h hints.Hint, name string) Hash { return Hash{tertiary{t, h, name, "hash"}} }

// Put sets a name's value.
func (h Hash) Put(ctx context.Context, name, value string) error {
	_, err := h.r.do(ctx, writes, "HSET", name, value)
	return err
}

// Get returns a name's value, and whether it is there.
func (h Hash) Get(ctx context.Context, name string) (string, bool, error) {
	return text(h.r.do(ctx, reads, "HGET", name))
}

// All returns all names with their values.
func (h Hash) All(ctx context.Context) (map[string]string, error) {
	reply, err := h.r.do(ctx, reads, "HGETALL")
	if err != nil {
		return nil, err
	}
	all := make(map[string]string, len(reply.Items)/2)
	for i := 0; i+1 < len(reply.Items); i += 2 {
		all[reply.Items[i]] = reply.Items[i+1]
	}
	return all, nil
}

// Remove takes names out and returns how many were there.
func (h Hash) Remove(ctx context.Context, names ...string) (int64, error) {
	return h.r.each(ctx, "HDEL", names)
}

// Len is how many names there are.
func (h Hash) Len(ctx context.Context) (int64, error) { return h.r.count(ctx, reads, "HLEN") }

// String is a tertiary record that holds one text.
type String struct{ r tertiary }

// String names the tertiary string of the entry that a hint points at.
func (t *Type) String(h hints.Hint, name string) String {
	return String{tertiary{t, h, name, "string"}}
}

// Put sets the text.
func (s String) Put(ctx context.Context, text string) error {
	_, err := s.r.do(ctx, writes, "SET", text)
	return err
}

// Get returns the text, and whether there is one.
func (s String) Get(ctx context.Context) (string, bool, error) {
	return text(s.r.do(ctx, reads, "GET"))
}

// Remove deletes the record and reports whether there was one.
func (s String) Remove(ctx context.Context) (bool, error) {
	n, err := s.r.count(ctx, writes, "UNLINK")
	return n > 0, err
}

// SortedSet is a tertiary record that holds members with scores.
type SortedSet struct{ r tertiary }

// Scored is a member of a sorted set with its score.
type Scored struct {
	Member string
	Score  float64
}

// SortedSet names the tertiary sorted set of the entry that a hint points at.
func (t *Type) SortedSet(h hints.Hint, name string) SortedSet {
	return SortedSet{tertiary{t, h, name, "zset"}}
}

// Put adds a member, or gives one that is there another score. A score must not be NaN.
func (s SortedSet) Put(ctx context.Context, score float64, member string) error {
	if math.IsNaN(score) {
		return invalid(s.r.name, "score", "not a number")
	}
	_, err := s.r.do(ctx, writes, "ZADD", ftoa(score), member)
	return err
}

// Increase adds to a member's score, from 0 for a new one, and returns the sum. A lost reply is ErrOutcomeUnknown.
func (s SortedSet) Increase(ctx context.Context, by float64, member string) (float64, error) {
	if math.IsNaN(by) {
		return 0, invalid(s.r.name, "score", "not a number")
	}
	reply, err := s.r.do(ctx, writesOn, "ZINCRBY", ftoa(by), member)
	if err != nil {
		return 0, err
	}
	return parseScore(reply.Text)
}

// Score returns a member's score, and whether it is there.
func (s SortedSet) Score(ctx context.Context, member string) (float64, bool, error) {
	reply, err := s.r.do(ctx, reads, "ZSCORE", member)
	if err != nil || reply.Nil {
		return 0, false, err
	}
	score, err := parseScore(reply.Text)
	return score, err == nil, err
}

// Range returns the members from start to stop by rising score, both included, from 0; negative ones
// count from the end.
func (s SortedSet) Range(ctx context.Context, start, stop int64) ([]Scored, error) {
	return scored(s.r.do(ctx, reads, "ZRANGE", itoa(start), itoa(stop), "WITHSCORES"))
}

// Between returns the members whose scores lie from low to high, both included, by rising score.
func (s SortedSet) Between(ctx context.Context, low, high float64) ([]Scored, error) {
	return scored(s.r.do(ctx, reads, "ZRANGEBYSCORE", ftoa(low), ftoa(high), "WITHSCORES"))
}

// Remove takes members out and returns how many were there.
func (s SortedSet) Remove(ctx context.Context, members ...string) (int64, error) {
	return s.r.each(ctx, "ZREM", members)
}

// Len is how many members there are.
func (s SortedSet) Len(ctx context.Context) (int64, error) { return s.r.count(ctx, reads, "ZCARD") }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func ftoa(f float64) string {
	return strings.ToLower(strconv.FormatFloat(f, 'g', 17, 64)) // +inf, -inf
}

func parseScore(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("reading a score: %w", err)
	}
	return f, nil
}

// scored are the pairs of a reply, each a member and its score.
func scored(reply store.Reply, err error) ([]Scored, error) {
	if err != nil {
		return nil, err
	}
	var all []Scored
	for i := 0; i+1 < len(reply.Items); i += 2 {
		score, err := parseScore(reply.Items[i+1])
		if err != nil {
			return nil, err
		}
		all = append(all, Scored{Member: reply.Items[i], Score: score})
	}
	return all, nil
}
