package onekey

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

var (
	CommandLua    = source("command")
	DroppedScript = redisx.NewScript(redisx.IsNumber, source("dropped"))
)

// An Aligner updates the index sets of the given members to match the tertiary set that they are or
// were in.
type Aligner func(ctx context.Context, set recordkey.Key, members []string) error

// scanSet returns the next page of a set and the cursor of the page after it, or 0 after the last
// page. A record of another Redis type is not a set and has no members.
func (ks *OneSlot) scanSet(ctx context.Context, set string, cursor uint64) (members []string, next uint64, isSet bool, err error) {
	command := []any{"sscan", set, strconv.FormatUint(cursor, 10), "count", ks.options.MemberBatch}
	shape := redisx.IsList
	if ks.options.Sorted {
		command, shape = []any{"smembers", set}, redisx.IsTexts
	}
	reply, _, err := ks.client.Retry.Do(ctx, func(bool) (any, error) {
		cmd := redisx.NewNoRetryCmd(ctx, command)
		return redisx.Answer(cmd.Cmd, ks.client.Process(ctx, cmd), shape)
	})
	if redisx.WrongType(err) {
		return nil, 0, false, nil
	}
	if err == nil && !ks.options.Sorted {
		page := redisx.Items(reply)
		if err = redisx.CheckLength(len(page), 2); err == nil {
			next, err = strconv.ParseUint(redisx.Text(page, 0), 10, 64)
			reply = page[1]
		}
		err = redisx.Fail(cmp.Or(err, redisx.IsTexts.Check(reply)))
	}
	return redisx.Texts(reply), next, err == nil, redisx.IgnoreUnknownOutcome(err)
}

// Members reads up to about MemberBatch members of a set, which may be absent. whole reports
// whether these are all members. isSet is false if the record has another Redis type.
func (ks *OneSlot) Members(ctx context.Context, set string) (members []string, whole, isSet bool, err error) {
	for cursor := uint64(0); ; {
		var page []string
		page, cursor, isSet, err = ks.scanSet(ctx, set, cursor)
		members = append(members, page...)
		if err != nil || cursor == 0 || len(members) > ks.options.MemberBatch {
			slices.Sort(members)
			members = slices.Compact(members)
			return members, cursor == 0 && len(members) <= ks.options.MemberBatch, isSet, err
		}
	}
}

// allMembers reads a whole set page by page. isSet is false if the record has another Redis type.
func (ks *OneSlot) allMembers(ctx context.Context, set string) (members []string, isSet bool, err error) {
	err = rereadUntilComplete(func() (lacks bool, err error) {
		pages := 0
		for cursor := uint64(0); err == nil && (pages == 0 || cursor != 0); pages++ {
			var page []string
			page, cursor, isSet, err = ks.scanSet(ctx, set, cursor)
			members = append(members, page...)
		}
		if err != nil || pages == 1 {
			return false, err
		}
		slices.Sort(members)
		members = slices.Compact(members)
		size, err := ks.askCount(ctx, []any{"scard", set})
		return int64(len(members)) < size, err
	})
	slices.Sort(members)
	return slices.Compact(members), isSet, err
}

// EachPage calls do with the members of a set, up to MemberBatch at a time, until the set is empty.
// do must remove them from the set.
func (ks *OneSlot) EachPage(ctx context.Context, set string, do func(members []string) error) error {
	for found := true; found; {
		found = false
		for cursor, more := uint64(0), true; more; more = cursor != 0 {
			var page []string
			var err error
			if page, cursor, _, err = ks.scanSet(ctx, set, cursor); err != nil {
				return err
			}
			found = found || len(page) > 0
			for some := range slices.Chunk(page, ks.options.MemberBatch) {
				if err := do(some); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Drain removes all members from the set at key, in batches, and then deletes it. Before it removes
// a batch, it calls align, which updates the index sets of these members to match set. Drain may be
// interrupted and repeated, and several processes may drain a set at the same time. If the record
// at key has another Redis type, Drain deletes it at once.
func (ks *OneSlot) Drain(ctx context.Context, key string, set recordkey.Key, align Aligner) error {
	err := ks.EachPage(ctx, key, func(members []string) error {
		if err := align(ctx, set, members); err != nil {
			return err
		}
		return ks.sendCount(ctx, redisx.AppendWords([]any{"srem", key}, members))
	})
	if err != nil {
		return err
	}
	return ks.sendCount(ctx, []any{"unlink", key})
}

// sendCount sends a command that returns a number and may arrive twice.
func (ks *OneSlot) sendCount(ctx context.Context, command []any) error {
	_, err := ks.askCount(ctx, command)
	return err
}

// askCount works like sendCount, and returns the number.
func (ks *OneSlot) askCount(ctx context.Context, command []any) (int64, error) {
	reply, _, err := ks.client.Retry.Do(ctx, func(bool) (any, error) {
		cmd := redisx.NewNoRetryCmd(ctx, command)
		return redisx.Answer(cmd.Cmd, ks.client.Process(ctx, cmd), redisx.IsNumber)
	})
	n, _ := reply.(int64)
	return n, redisx.IgnoreUnknownOutcome(err)
}

// DrainAll drains the records that a ~drop field names, and then removes the field.
func (ks *OneSlot) DrainAll(ctx context.Context, entry recordkey.Key, text string, align Aligner) error {
	for _, d := range store.ParseDropped(entry, text) {
		if err := ks.Drain(ctx, store.DropKey(d.Record, d.Rev), d.Record, align); err != nil {
			return err
		}
	}
	_, err := ks.RunBool(ctx, DroppedScript, []string{entry.String()}, text)
	return err
}

// pageCommands maps commands that read a whole record to commands that read it page by page.
var pageCommands = map[string]string{"SMEMBERS": "SSCAN", "HGETALL": "HSCAN"}

// ReadPages reads a tertiary record with run, which runs one command. It reads a set or a hash page
// by page.
func (ks *OneSlot) ReadPages(op store.Op, run func(store.Op) (store.Reply, error)) (store.Reply, error) {
	scan, ok := pageCommands[op.Command]
	if !ok || ks.options.Sorted {
		return run(op)
	}
	kind, count := "set", store.Op{PRK: op.PRK, Key: op.Key, Command: "SCARD"}
	if op.Command == "HGETALL" {
		kind, count.Command = "hash", "HLEN"
	}
	all := store.Reply{}
	err := rereadUntilComplete(func() (lacks bool, err error) {
		all.Items = []string{}
		pages := 0
		for op, cursor := op, "0"; pages == 0 || cursor != "0"; pages++ {
			op.Command, op.Args = scan, []string{cursor, "COUNT", strconv.Itoa(ks.options.MemberBatch)}
			page, err := run(op)
			if err == nil && len(page.Items) == 0 {
				err = redisx.Fail(redisx.IsVerdict.Check(nil))
			}
			if err != nil {
				return false, err
			}
			cursor, all.Items = page.Items[0], append(all.Items, page.Items[1:]...)
		}
		if pages == 1 {
			return false, nil
		}
		size, err := run(count)
		return distinct(kind, all.Items) < int(size.Int), err
	})
	if err != nil {
		return store.Reply{}, err
	}
	return all, nil
}

// maxReads limits how often the pages of a record are read. A record that keeps growing always has
// more elements than its pages had.
const maxReads = 4

// rereadUntilComplete calls read, which reads the pages of a set or a hash, until read reports that
// they lack nothing, but at most maxReads times. If a replica replaces the server, or the record
// moves to another node, between two pages, the cursor means something else there, and the pages
// lack elements.
func rereadUntilComplete(read func() (lacks bool, err error)) error {
	for range maxReads {
		if lacks, err := read(); !lacks || err != nil {
			return err
		}
	}
	return nil
}

// distinct returns the number of elements in the pages of a set or a hash.
func distinct(kind string, values []string) int {
	step := 1
	if kind == "hash" {
		step = 2
	}
	seen := make(map[string]bool, len(values)/step)
	for i := 0; i < len(values); i += step {
		seen[values[i]] = true
	}
	return len(seen)
}

// PageCommand returns the command, without its key, that reads one page of a record of a Redis
// type. The page begins at a position that ParsePage returned, or at the beginning for "".
func (ks *OneSlot) PageCommand(kind, at string) []string {
	at, size := cmp.Or(at, "0"), ks.PageSize()
	first, _ := strconv.Atoi(at)
	last := strconv.Itoa(first + size - 1)
	switch kind {
	case "list":
		return []string{"LRANGE", at, last}
	case "zset":
		return []string{"ZRANGE", at, last, "WITHSCORES"}
	case "hash":
		return []string{"HSCAN", at, "COUNT", strconv.Itoa(size)}
	case "string":
		return []string{"GET"}
	}
	return []string{"SSCAN", at, "COUNT", strconv.Itoa(size)}
}

// ParsePage returns the values of a page and the position of the next one, which is "" after the
// last page.
func (ks *OneSlot) ParsePage(kind, at string, reply store.Reply) (values []string, next string, err error) {
	first, _ := strconv.Atoi(at)
	values, size := reply.Items, ks.PageSize()
	switch {
	case kind == "string":
		return []string{reply.Text}, "", nil
	case kind == "list" && len(values) >= size, kind == "zset" && len(values) >= 2*size:
		return values, strconv.Itoa(first + size), nil
	case kind == "list", kind == "zset":
		return values, "", nil
	case len(values) == 0:
		return nil, "", redisx.IsVerdict.Check(nil)
	case values[0] != "0":
		next = values[0]
	}
	return values[1:], next, nil
}

// PageSize returns the approximate number of elements that one command reads.
func (ks *OneSlot) PageSize() int {
	if ks.options.Sorted {
		return 1 << 30
	}
	return ks.options.MemberBatch
}

// ReadRest returns the values of a record whose first page had the values first. It reads one page
// after another from the position at. If the record meanwhile gets another Redis type, it returns
// the values read so far.
func (ks *OneSlot) ReadRest(ctx context.Context, key recordkey.Key, kind, at string, first []string) (all []string, err error) {
	all = first
	err = rereadUntilComplete(func() (lacks bool, err error) {
		for more := true; more; more = at != "" {
			words := ks.PageCommand(kind, at)
			reply, err := ks.readAt(ctx, key, words)
			if redisx.WrongType(err) {
				return false, nil
			}
			var page []string
			if err == nil {
				page, at, err = ks.ParsePage(kind, at, reply)
			}
			if err != nil {
				return false, redisx.Fail(err)
			}
			all = append(all, page...)
		}
		size, counted := map[string]string{"set": "SCARD", "hash": "HLEN"}[kind]
		if !counted {
			return false, nil
		}
		n, err := ks.readAt(ctx, key, []string{size})
		if redisx.WrongType(err) {
			return false, nil
		}
		return err == nil && distinct(kind, all) < int(n.Int), redisx.Fail(err)
	})
	if err != nil {
		return nil, err
	}
	return store.SortedUnique(kind, all), nil
}

// readAt sends a command, whose words lack the key, that reads a record.
func (ks *OneSlot) readAt(ctx context.Context, key recordkey.Key, words []string) (store.Reply, error) {
	cmd := ks.client.Do(ctx, redisx.AppendWords([]any{words[0], key.String()}, words[1:])...)
	reply, err := redisx.ParseReply(words[0], cmd.Val())
	return reply, cmp.Or(cmd.Err(), err)
}
