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

// A tertiary represents a tertiary record of the entry that a hint identifies.
type tertiary struct {
	t          *Type
	h          hints.Hint
	name, kind string
}

// maxElements is the maximum number of elements in one call.
const maxElements = 10_000

// checkElements checks the number of elements and their sizes.
func checkElements(name string, elements []string) error {
	if len(elements) > maxElements {
		return tooManyElements(name)
	}
	if slices.ContainsFunc(elements, func(e string) bool { return len(e) > schema.MaxFacet }) {
		return invalid(name, "size", "an element has over 64 KiB")
	}
	return nil
}

// tooManyElements returns the error for a call or a change with more than maxElements.
func tooManyElements(name string) error {
	return invalid(name, "max", "over 10,000 elements in one call")
}

// An effect says what a command does to a record.
type effect int

const (
	readOnly      effect = iota
	idempotent           // can be sent again after a lost reply
	notIdempotent        // a lost reply is ErrOutcomeUnknown
)

// methodNames maps commands to the names of the methods that send them.
var methodNames = map[string]string{
	"SADD": "Set.Add", "SREM": "Set.Remove", "SISMEMBER": "Set.Has", "SMEMBERS": "Set.Members", "SCARD": "Set.Len",
	"RPUSH": "List.Append", "LPUSH": "List.Prepend", "LPOP": "List.PopFirst", "RPOP": "List.PopLast", "LRANGE": "List.Items",
	"LREM": "List.Remove", "LLEN": "List.Len",
	"HSET": "Hash.Put", "HGET": "Hash.Get", "HGETALL": "Hash.All", "HDEL": "Hash.Remove", "HLEN": "Hash.Len",
	"SET": "String.Put", "GET": "String.Get", "UNLINK": "String.Remove",
	"ZADD": "SortedSet.Put", "ZINCRBY": "SortedSet.Increment", "ZSCORE": "SortedSet.Score", "ZRANGE": "SortedSet.Range",
	"ZRANGEBYSCORE": "SortedSet.Between", "ZREM": "SortedSet.Remove", "ZCARD": "SortedSet.Len",
}

// argsPerElement maps commands that add elements to the number of arguments for each element.
var argsPerElement = map[string]int{"SADD": 1, "RPUSH": 1, "LPUSH": 1, "HSET": 2, "ZADD": 2, "ZINCRBY": 2}

// do runs a command. For sets that the schema declares as indexed, the command also updates the
// index (I5).
func (r tertiary) do(ctx context.Context, eff effect, command string, args ...string) (reply store.Reply, err error) {
	ctx, v := r.t.db.begin(ctx, methodNames[command], &err)
	defer v.end(&err)
	if err := checkElements(r.name, args); err != nil {
		return store.Reply{}, err
	}
	err = r.t.retryOnSchemaChange(ctx, func(t *Type) (err error) {
		r.t = t
		reply, err = r.run(ctx, eff, command, args)
		return err
	})
	return reply, err
}

// run runs a command once, under the schema of r.t.
func (r tertiary) run(ctx context.Context, eff effect, command string, args []string) (store.Reply, error) {
	limit, perElement := 0, argsPerElement[command]
	if perElement > 0 {
		limit = r.t.declared.Schema.Tertiary[r.name].Limit()
	}
	if limit > 0 && len(args)/perElement > limit {
		return store.Reply{}, publicError(r.t.declared.TooManyError(r.name))
	}
	_, l, err := r.t.view.Resolve(r.h, r.t.declared.Name)
	if err != nil {
		return store.Reply{}, err
	}
	op := store.Op{PRK: l.PRK, Command: command, Args: args, Write: eff != readOnly, NoRetry: eff == notIdempotent, MaxMembers: limit}
	if !op.PRK.IsValid() {
		e, err := r.t.view.FindOne(ctx, l)
		if err != nil {
			return store.Reply{}, err
		}
		op.PRK = e.Key
	}
	switch command {
	case "SADD":
		op.Key, op.Index, err = r.t.declared.TertiaryKey(op.PRK, r.name, r.kind, args)
	case "SREM":
		op.Key, op.Unindex, err = r.t.declared.TertiaryKey(op.PRK, r.name, r.kind, args)
	default:
		op.Key, _, err = r.t.declared.TertiaryKey(op.PRK, r.name, r.kind, nil)
	}
	if err != nil {
		return store.Reply{}, publicError(err)
	}
	reply, err := r.send(ctx, op)
	if errors.Is(err, store.ErrFull) {
		err = publicError(r.t.declared.TooManyError(r.name))
	}
	same := reply.Int == 0 && (command == "SADD" || command == "SREM")
	if op.Write && committed(err) && !same {
		r.t.emitUpdate(ctx, op.PRK, []string{r.name})
	}
	return reply, err
}

// count runs a command and returns its numeric reply.
func (r tertiary) count(ctx context.Context, eff effect, command string, args ...string) (int64, error) {
	reply, err := r.do(ctx, eff, command, args...)
	return reply.Int, err
}

// write runs a command that writes elements. If there are none, it does nothing.
func (r tertiary) write(ctx context.Context, command string, elements []string) (int64, error) {
	if len(elements) == 0 {
		return 0, nil
	}
	return r.count(ctx, idempotent, command, elements...)
}

// optionalText converts a reply that may be nil to a string and reports whether it was not nil.
func optionalText(reply store.Reply, err error) (string, bool, error) {
	return reply.Text, err == nil && !reply.Nil, err
}

// A Set is a tertiary record that holds a set, such as the tags of an entry.
//
// Tertiary records ([Set], [List], [Hash], [String] and [SortedSet]) belong to an entry and have a
// name that the schema declares with its Redis type. As in Redis, the first write creates the
// record, and the record is gone when its last element is removed. Of their methods, only
// [Set.Replace] changes the revision of the entry.
//
// A method takes one round trip if the hint is a PRK or a UID, and two otherwise. [Set.Replace],
// and reads of more than about a thousand elements, take more. The errors are:
//
//   - ErrNotFound: there is no live entry.
//   - *schema.Error: the schema does not declare the name with this type.
//   - ErrCorrupt: the stored record has another Redis type.
//   - *FieldError with the rule "max": there would be more elements than the schema allows, or one
//     call has over 10,000.
//   - *FieldError with the rule "size": an element has over 64 KiB.
type Set struct{ r tertiary }

// Set returns the tertiary set with the given name of the entry that h identifies. It does not
// access the store.
func (t *Type) Set(h hints.Hint, name string) Set { return Set{tertiary{t, h, name, "set"}} }

// Tags returns the tertiary set "tags".
func (t *Type) Tags(h hints.Hint) Set { return t.Set(h, change.TagsName) }

// Add adds members and returns how many of them are new.
func (s Set) Add(ctx context.Context, members ...string) (int64, error) {
	return s.r.write(ctx, "SADD", distinct(members))
}

// Remove removes members and returns how many of them existed.
func (s Set) Remove(ctx context.Context, members ...string) (int64, error) {
	return s.r.write(ctx, "SREM", distinct(members))
}

// Replace replaces all members of the set in one change of the entry, which gets a new revision.
func (s Set) Replace(ctx context.Context, members ...string) (err error) {
	r := s.r
	ctx, v := r.t.db.begin(ctx, "Set.Replace", &err)
	defer v.end(&err)
	members = distinct(members)
	if err := checkElements(r.name, members); err != nil {
		return err
	}
	return r.t.retryOnSchemaChange(ctx, func(t *Type) error {
		_, err := t.rewrite(ctx, r.h, store.Record{}, func(current store.Record) (c store.Change, due bool, err error) {
			c, _, err = t.declared.Update(current, change.Facets(current), nil)
			if err == nil {
				err = t.declared.SetTertiary(&c, []change.Content{{Name: r.name, Kind: r.kind, Values: members}})
			}
			return c, err == nil, err
		})
		return err
	})
}

// distinct returns the texts sorted and without duplicates.
func distinct(texts []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(texts)))
}

// Has reports whether member is in the set.
func (s Set) Has(ctx context.Context, member string) (bool, error) {
	n, err := s.r.count(ctx, readOnly, "SISMEMBER", member)
	return n == 1, err
}

// Members returns all members in sorted order. A set of more than about a thousand members is read
// in pages; members that are added or removed while it is read may be missing.
func (s Set) Members(ctx context.Context) ([]string, error) {
	reply, err := s.r.do(ctx, readOnly, "SMEMBERS")
	slices.Sort(reply.Items)
	return slices.Compact(reply.Items), err
}

// Len returns the number of members.
func (s Set) Len(ctx context.Context) (int64, error) { return s.r.count(ctx, readOnly, "SCARD") }

// A List is a tertiary record that holds a list.
type List struct{ r tertiary }

// List returns the tertiary list with the given name of the entry that h identifies.
func (t *Type) List(h hints.Hint, name string) List { return List{tertiary{t, h, name, "list"}} }

// Append adds items at the end and returns the new length of the list. If the reply is lost, the
// error is ErrOutcomeUnknown.
func (l List) Append(ctx context.Context, items ...string) (int64, error) {
	return l.push(ctx, "RPUSH", items)
}

// Prepend adds items one by one at the front, so that the last of them ends up first, and returns
// the new length of the list. If the reply is lost, the error is ErrOutcomeUnknown.
func (l List) Prepend(ctx context.Context, items ...string) (int64, error) {
	return l.push(ctx, "LPUSH", items)
}

func (l List) push(ctx context.Context, command string, items []string) (int64, error) {
	if len(items) == 0 {
		return l.Len(ctx)
	}
	return l.r.count(ctx, notIdempotent, command, items...)
}

// PopFirst removes and returns the first item. It returns false if the list is empty. If the reply
// is lost, the error is ErrOutcomeUnknown.
func (l List) PopFirst(ctx context.Context) (string, bool, error) {
	return optionalText(l.r.do(ctx, notIdempotent, "LPOP"))
}

// PopLast removes and returns the last item. It returns false if the list is empty. If the reply is
// lost, the error is ErrOutcomeUnknown.
func (l List) PopLast(ctx context.Context) (string, bool, error) {
	return optionalText(l.r.do(ctx, notIdempotent, "RPOP"))
}

// Items returns the items from start to stop, both included. Indexes start at 0; negative ones
// count from the end.
func (l List) Items(ctx context.Context, start, stop int64) ([]string, error) {
	reply, err := l.r.do(ctx, readOnly, "LRANGE", itoa(start), itoa(stop))
	return reply.Items, err
}

// Remove removes all items equal to item and returns how many there were.
func (l List) Remove(ctx context.Context, item string) (int64, error) {
	return l.r.count(ctx, idempotent, "LREM", "0", item)
}

// Len returns the length of the list.
func (l List) Len(ctx context.Context) (int64, error) { return l.r.count(ctx, readOnly, "LLEN") }

// A Hash is a tertiary record that maps names to values.
type Hash struct{ r tertiary }

// Hash returns the tertiary hash with the given name of the entry that h identifies.
func (t *Type) Hash(h hints.Hint, name string) Hash { return Hash{tertiary{t, h, name, "hash"}} }

// Put sets the value of a name.
func (h Hash) Put(ctx context.Context, name, value string) error {
	_, err := h.r.do(ctx, idempotent, "HSET", name, value)
	return err
}

// Get returns the value of a name and reports whether the name exists.
func (h Hash) Get(ctx context.Context, name string) (string, bool, error) {
	return optionalText(h.r.do(ctx, readOnly, "HGET", name))
}

// All returns all names and values.
func (h Hash) All(ctx context.Context) (map[string]string, error) {
	reply, err := h.r.do(ctx, readOnly, "HGETALL")
	if err != nil {
		return nil, err
	}
	all := make(map[string]string, len(reply.Items)/2)
	for i := 0; i+1 < len(reply.Items); i += 2 {
		all[reply.Items[i]] = reply.Items[i+1]
	}
	return all, nil
}

// Remove removes names and returns how many of them existed.
func (h Hash) Remove(ctx context.Context, names ...string) (int64, error) {
	return h.r.write(ctx, "HDEL", names)
}

// Len returns the number of names.
func (h Hash) Len(ctx context.Context) (int64, error) { return h.r.count(ctx, readOnly, "HLEN") }

// A String is a tertiary record that holds one text.
type String struct{ r tertiary }

// String returns the tertiary string with the given name of the entry that h identifies.
func (t *Type) String(h hints.Hint, name string) String {
	return String{tertiary{t, h, name, "string"}}
}

// Put sets the text.
func (s String) Put(ctx context.Context, text string) error {
	_, err := s.r.do(ctx, idempotent, "SET", text)
	return err
}

// Get returns the text and reports whether the record exists.
func (s String) Get(ctx context.Context) (string, bool, error) {
	return optionalText(s.r.do(ctx, readOnly, "GET"))
}

// Remove deletes the record and reports whether it existed.
func (s String) Remove(ctx context.Context) (bool, error) {
	n, err := s.r.count(ctx, idempotent, "UNLINK")
	return n > 0, err
}

// A SortedSet is a tertiary record that holds members with scores.
type SortedSet struct{ r tertiary }

// A Scored is a member of a sorted set and its score.
type Scored struct {
	Member string
	Score  float64
}

// SortedSet returns the tertiary sorted set with the given name of the entry that h identifies.
func (t *Type) SortedSet(h hints.Hint, name string) SortedSet {
	return SortedSet{tertiary{t, h, name, "zset"}}
}

// Put adds a member or changes the score of an existing one. The score must not be NaN.
func (s SortedSet) Put(ctx context.Context, score float64, member string) error {
	if math.IsNaN(score) {
		return invalid(s.r.name, "score", "not a number")
	}
	_, err := s.r.do(ctx, idempotent, "ZADD", ftoa(score), member)
	return err
}

// Increment adds by to the score of a member and returns the sum. A new member starts at 0. If the
// reply is lost, the error is ErrOutcomeUnknown.
func (s SortedSet) Increment(ctx context.Context, by float64, member string) (float64, error) {
	if math.IsNaN(by) {
		return 0, invalid(s.r.name, "score", "not a number")
	}
	reply, err := s.r.do(ctx, notIdempotent, "ZINCRBY", ftoa(by), member)
	if err != nil {
		return 0, err
	}
	return parseScore(reply.Text)
}

// Score returns the score of a member and reports whether the member exists.
func (s SortedSet) Score(ctx context.Context, member string) (float64, bool, error) {
	reply, err := s.r.do(ctx, readOnly, "ZSCORE", member)
	if err != nil || reply.Nil {
		return 0, false, err
	}
	score, err := parseScore(reply.Text)
	return score, err == nil, err
}

// Range returns the members from start to stop, both included, in order of increasing score.
// Indexes start at 0; negative ones count from the end.
func (s SortedSet) Range(ctx context.Context, start, stop int64) ([]Scored, error) {
	return parseScored(s.r.do(ctx, readOnly, "ZRANGE", itoa(start), itoa(stop), "WITHSCORES"))
}

// Between returns the members with scores from low to high, both included, in order of increasing
// score.
func (s SortedSet) Between(ctx context.Context, low, high float64) ([]Scored, error) {
	return parseScored(s.r.do(ctx, readOnly, "ZRANGEBYSCORE", ftoa(low), ftoa(high), "WITHSCORES"))
}

// Remove removes members and returns how many of them existed.
func (s SortedSet) Remove(ctx context.Context, members ...string) (int64, error) {
	return s.r.write(ctx, "ZREM", members)
}

// Len returns the number of members.
func (s SortedSet) Len(ctx context.Context) (int64, error) { return s.r.count(ctx, readOnly, "ZCARD") }

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

// parseScored parses a reply of members, each followed by its score.
func parseScored(reply store.Reply, err error) ([]Scored, error) {
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
