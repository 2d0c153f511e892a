package single

import (
	"strconv"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/recordkey"
)

// expectedArg is where change.lua reads the rev that is expected; a create expects none.
const expectedArg = 8

// resent stands there where a create may have been made already.
const resent = "again"

// changeArgs lays a change out as change.lua reads it.
func changeArgs(c store.Change, rev string, may bool, known [][]string, owners []owner) (keys, args []string) {
	tokens, _ := store.TokenKey(c.Key) // every PRK has one
	keys = []string{c.Key.String(), c.Schema.Key.String(), c.Schema.Types.String(), tokens.String()}
	args = guardArgs(c.Key, c.Schema, rev, may)
	args = append(args, verb(c), c.Seen.Rev)
	for _, n := range []int{
		len(c.Claim), len(c.Elsewhere), len(c.Release), len(c.Index), len(c.Unindex),
		len(c.Rank), len(c.Unrank), len(c.Add), len(c.Drop), len(owners),
	} {
		args = append(args, strconv.Itoa(n))
	}
	args = append(args, strconv.Itoa(2*len(c.Set)))
	for _, f := range c.Set {
		args = append(args, f.Field, f.Wire)
	}
	args = appendList(args, c.Unset)
	rankKeys, ranks := rankLists(c.Rank)
	unrankKeys, unranks := rankLists(c.Unrank)
	args = appendList(appendList(appendList(args, ranks), unranks), onekey.EndingArgs(c.Tokens))
	for _, ks := range [][]recordkey.Key{c.Claim, c.Elsewhere, c.Release, c.Index, c.Unindex, rankKeys, unrankKeys} {
		keys = appendKeys(keys, ks)
	}
	for _, m := range c.Add {
		args = append(appendList(args, m.Values), flag(len(m.Index) > 0), m.Command(), flag(c.Replaces(m)))
		keys = appendKeys(append(keys, m.Key.String()), m.Index)
	}
	for i, d := range c.Drop {
		members, index := memberIndexes(d, known[i])
		keys = appendKeys(append(keys, d.Key.String()), index)
		args = appendList(append(args, flag(d.Indexed)), members)
	}
	ns := c.Key.Namespace().String()
	for _, o := range owners {
		srk := srkAt(c, o.at)
		keys = append(keys, ns+store.Owner(o.seen))
		args = append(args, strconv.Itoa(o.at), o.seen, srk.Field(), srk.Value())
	}
	return keys, args
}

func verb(c store.Change) string {
	switch {
	case c.Delete:
		return "delete"
	case c.Create:
		return "create"
	case c.Mend:
		return "mend"
	}
	return "update"
}

// guardArgs are the first arguments of every script that changes data; see guard.lua.
func guardArgs(prk recordkey.Key, g store.Guard, rev string, may bool) []string {
	return []string{
		prk.In(recordkey.Namespace{}).String(), prk.Namespace().String(), rev,
		g.Fingerprint, g.JSON, flag(may), prk.Type(),
	}
}

// memberIndexes pairs the members of an indexed set with their index sets. A member that no index
// key can name stands in none: it is paired with the set itself, which goes anyway.
func memberIndexes(d store.Container, members []string) ([]string, []recordkey.Key) {
	if !d.Indexed {
		return nil, nil
	}
	index := make([]recordkey.Key, len(members))
	for i, m := range members {
		k, err := recordkey.Index(d.Key.Type(), d.Key.Name(), m)
		if err != nil {
			index[i] = d.Key
			continue
		}
		index[i] = k.In(d.Key.Namespace())
	}
	return members, index
}

// rankLists are the keys and the members of ordered indexes, side by side.
func rankLists(ranks []store.Ranked) (keys []recordkey.Key, members []string) {
	for _, r := range ranks {
		keys, members = append(keys, r.Key), append(members, r.Member)
	}
	return keys, members
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func appendList(args, items []string) []string {
	return append(append(args, strconv.Itoa(len(items))), items...)
}

func appendKeys(keys []string, more []recordkey.Key) []string {
	for _, k := range more {
		keys = append(keys, k.String())
	}
	return keys
}
