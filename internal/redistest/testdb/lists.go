package testdb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// In chaos runs, clients change lists of identifiers: they add values, drop them, put them first,
// exchange them, and delete entries. Values that an entry gives up are held until somebody releases
// them, and the UIDs of deleted entries are retired. ListViolations judges the answers, ListDamage
// the raw records, and RecordViolations whether they agree.

// ListType is the type of the entries with lists.
const ListType = "member"

// A run consists of epochs. Each epoch has its own UIDs and values. Values are numbered from 1.
const (
	listUIDs   = 6
	listValues = 5
	maxListed  = 4 // in one field
)

var listFields = []string{"name", "nick"}

// ListSchema returns the schema of ListType. It holds values for longer than any run lasts.
func ListSchema() schema.Type {
	field := schema.Field{Role: schema.RoleSecondary, Many: maxListed, Hold: schema.Period(30 * 24 * time.Hour)}
	return schema.Type{
		Primary: "uid", Fold: schema.FoldCasefold, Retire: true,
		Fields: map[string]schema.Field{listFields[0]: field, listFields[1]: field},
	}
}

// A ListQuestion is a change of an entry with lists, or a search.
type ListQuestion struct {
	Verb  string `json:"verb"` // create, add, drop, first, exchange, delete, release or find
	UID   int    `json:"uid"`
	Field int    `json:"field"`
	Value int    `json:"value"` // to add, drop, put first, release or find; the first of create
	Other int    `json:"other"` // the value that exchange drops; the second value of create
}

// A ListAnswer holds the values that an entry has in any field before and after a change.
type ListAnswer struct {
	Before []int `json:"before,omitempty"`
	After  []int `json:"after,omitempty"`
}

// A ListOp is a question with its answer. OK says that it succeeded, and Unknown that it may have
// taken effect, or may still do so.
type ListOp struct {
	Begin, End  int64
	Ask         ListQuestion
	Answer      ListAnswer
	OK, Unknown bool
}

// RandomListQuestion returns a random question.
func RandomListQuestion(rnd *rand.Rand) ListQuestion {
	verbs := []string{"create", "create", "create", "create", "add", "add", "add", "drop", "drop", "first", "first", "exchange", "exchange", "exchange", "delete", "release", "release", "release", "find", "find"}
	return ListQuestion{
		Verb: verbs[rnd.IntN(len(verbs))], UID: rnd.IntN(listUIDs), Field: rnd.IntN(len(listFields)),
		Value: 1 + rnd.IntN(listValues), Other: 1 + rnd.IntN(listValues),
	}
}

func listUID(epoch, uid int) string { return fmt.Sprintf("m%d-%d", epoch, uid) }

func listText(epoch, value int) string { return fmt.Sprintf("Value%d-%d", epoch, value) }

// listCanonical returns the canonical form of listText.
func listCanonical(epoch, value int) string { return strings.ToLower(listText(epoch, value)) }

// valuesIn returns the values of an entry in any field.
func valuesIn(epoch int, e userdb.Entry) (all []int) {
	for value := 1; value <= listValues; value++ {
		for _, field := range listFields {
			if slices.Contains(e.Texts(field), listText(epoch, value)) && !slices.Contains(all, value) {
				all = append(all, value)
			}
		}
	}
	return all
}

// errList means that a search by a value found an entry without that value.
var errList = errors.New("a search by a value found an entry that does not have it")

// AskList asks a question about the lists of an epoch.
func AskList(ctx context.Context, members *userdb.Type, epoch int, q ListQuestion) (a ListAnswer, err error) {
	field, text, other, uid := listFields[q.Field], listText(epoch, q.Value), listText(epoch, q.Other), listUID(epoch, q.UID)
	switch q.Verb {
	case "create":
		texts := []string{text}
		if other != text {
			texts = append(texts, other)
		}
		var e userdb.Entry
		e, err = members.Create(ctx, userdb.NewEntry{UID: uid, Values: map[string][]string{field: texts}})
		a.After = valuesIn(epoch, e)
	case "delete":
		var e userdb.Entry
		if e, err = members.Find(ctx, hints.UID(uid)); err == nil {
			a.Before = valuesIn(epoch, e)
			err = members.Delete(ctx, hints.UID(uid))
		}
	case "release":
		err = members.ReleaseHeld(ctx, field, text)
	case "find":
		for _, h := range []hints.Hint{hints.Any(text), hints.Field(field, text)} {
			e, failed := members.Find(ctx, h)
			if err = failed; err != nil {
				return a, err
			}
			if !slices.Contains(valuesIn(epoch, e), q.Value) {
				return a, fmt.Errorf("%w: %s by %s", errList, e.UID(), text)
			}
		}
	default:
		_, err = members.Update(ctx, hints.UID(uid), func(e *userdb.Entry) error {
			a.Before = valuesIn(epoch, *e)
			q.edit(epoch, e)
			a.After = valuesIn(epoch, *e)
			return nil
		})
	}
	return a, err
}

// edit makes the change of an add, drop, first or exchange. It adds nothing to a field that is
// full.
func (q ListQuestion) edit(epoch int, e *userdb.Entry) {
	field, text := listFields[q.Field], listText(epoch, q.Value)
	switch q.Verb {
	case "drop":
		e.DropText(field, text)
		return
	case "exchange":
		e.DropText(field, listText(epoch, q.Other))
	}
	switch {
	case len(e.Texts(field)) >= maxListed:
	case q.Verb == "first":
		e.PutFirst(field, text)
	default:
		e.AddText(field, text)
	}
}

// gains reports whether an operation may have given a value to an entry.
func (o ListOp) gains(value int) bool {
	if o.OK {
		return slices.Contains(o.Answer.After, value) && !slices.Contains(o.Answer.Before, value)
	}
	return o.Unknown && slices.Contains([]string{"create", "add", "first", "exchange"}, o.Ask.Verb) && (o.Ask.Value == value || o.Ask.Verb == "create" && o.Ask.Other == value)
}

// givenUpValues returns the values that an entry certainly gave up: with a delete, all values that
// it had.
func (o ListOp) givenUpValues() (values []int) {
	for _, value := range o.Answer.Before {
		if o.OK && !slices.Contains(o.Answer.After, value) {
			values = append(values, value)
		}
	}
	return values
}

// heldUntil returns the time until which a given-up value is certainly held: the earliest time at
// which its release, or a change by which the entry may take it back, may have begun. forever
// reports that there is no such operation.
func (o ListOp) heldUntil(ops []ListOp, value int) (end int64, forever bool) {
	forever = true
	for _, p := range ops {
		frees := p.Ask.Verb == "release" && p.Ask.Value == value || p.Ask.UID == o.Ask.UID && p.gains(value)
		if (p.OK || p.Unknown) && frees && p.End > o.Begin && (forever || p.Begin < end) {
			end, forever = p.Begin, false
		}
	}
	return end, forever
}

// ListViolations returns the contradictions in the answers to the questions of one epoch: an entry
// got a value that another one held, or a UID was given twice.
func ListViolations(ops []ListOp) (found []string) {
	made := map[int]ListOp{}
	for _, o := range ops {
		if o.Ask.Verb != "create" || !o.OK {
			continue
		}
		if other, again := made[o.Ask.UID]; again {
			found = append(found, fmt.Sprintf("a UID was given twice: %+v and %+v", other, o))
		}
		made[o.Ask.UID] = o
	}
	for _, o := range ops {
		for _, value := range o.givenUpValues() {
			end, forever := o.heldUntil(ops, value)
			for _, p := range ops {
				if p.OK && p.Ask.UID != o.Ask.UID && p.gains(value) && p.Begin > o.End && (forever || p.End < end) {
					found = append(found, fmt.Sprintf("another entry got the value %d while it was held: %+v, then %+v", value, o, p))
				}
			}
		}
	}
	return found
}

// RecordViolations returns what acknowledged operations of an epoch should have left, and the raw
// records lack: values that are held, and UIDs that are retired. Call it while no operation runs.
// hashOf returns the hash at a key.
func RecordViolations(epoch int, ops []ListOp, hashOf func(key string) map[string]string) (found []string) {
	for _, o := range ops {
		key := ListType + "/uid:" + listUID(epoch, o.Ask.UID)
		hash := hashOf(key)
		if o.Ask.Verb == "delete" && o.OK && (hash["~isa"] != "" || hash["~retired"] == "") {
			found = append(found, fmt.Sprintf("the UID of %s is not retired: %v, after %+v", key, hash, o))
		}
		for _, value := range o.givenUpValues() {
			_, forever := o.heldUntil(ops, value)
			held := slices.ContainsFunc(listFields, func(field string) bool { return hash["~held:"+field+":"+listCanonical(epoch, value)] != "" })
			if forever && !held {
				found = append(found, fmt.Sprintf("%s does not hold the value %d: %v, after %+v", key, value, hash, o))
			}
		}
	}
	return found
}

// ListDamage returns the damage in the raw records of ListType, given as hashes and texts by key.
// It parses them without the library. It checks that no value has two owners, an owner and a
// holder, or two holders, that the SRK of each value names its owner or its holder, and that no
// entry has a retired UID.
func ListDamage(hashes map[string]map[string]string, texts map[string]string) (found []string) {
	owners, holders := map[string]string{}, map[string]string{}
	checkSRK := func(field, canonical, key string) {
		name := ListType + "/" + field + ":" + canonical + "/~prk"
		if prk, _, _ := strings.Cut(texts[name], " "); prk != key {
			found = append(found, fmt.Sprintf("I1: %s names %q, not %s", name, texts[name], key))
		}
	}
	addUnique := func(in map[string]string, what, canonical, key string) {
		if other := in[canonical]; other != "" && other != key {
			found = append(found, fmt.Sprintf("I2: %q has two %s, %s and %s", canonical, what, other, key))
		}
		in[canonical] = key
	}
	for _, key := range slices.Sorted(maps.Keys(hashes)) {
		hash := hashes[key]
		if hash["~isa"] != "" && hash["~retired"] != "" {
			found = append(found, fmt.Sprintf("I3: %s has a retired UID: %v", key, hash))
		}
		has := rawListValues(hash)
		for value := range has {
			field, canonical, _ := strings.Cut(value, ":")
			addUnique(owners, "owners", canonical, key)
			checkSRK(field, canonical, key)
		}
		for name, text := range hash {
			rest, ok := strings.CutPrefix(name, "~held:")
			field, canonical, _ := strings.Cut(rest, ":")
			end, _ := strconv.ParseInt(text, 10, 64)
			if !ok || has[rest] || time.UnixMilli(end).Before(time.Now()) {
				continue
			}
			addUnique(holders, "holders", canonical, key)
			checkSRK(field, canonical, key)
		}
	}
	for canonical, key := range holders {
		if owner := owners[canonical]; owner != "" && owner != key {
			found = append(found, fmt.Sprintf("I2: %q is held by %s and belongs to %s", canonical, key, owner))
		}
	}
	return found
}

// rawListValues returns the values in the hash of an entry, each as FIELD:CANONICAL. An entry that
// is not live has none.
func rawListValues(hash map[string]string) map[string]bool {
	values := map[string]bool{}
	if hash["~isa"] == "" {
		return values
	}
	for name, text := range hash {
		if slices.Contains(listFields, name) {
			values[name+":"+strings.ToLower(text)] = true
		} else if value, is := strings.CutPrefix(name, "~also:"); is && strings.Contains(value, ":") {
			values[value] = true
		}
	}
	return values
}
