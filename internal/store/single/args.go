package single

import (
	"strconv"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// guardArgs are the first arguments of every script that changes data; see guard.lua.
func guardArgs(prk recordkey.Key, g store.Guard, token string, may bool) []string {
	return []string{
		prk.In(recordkey.Namespace{}).String(), prk.Namespace().String(), token,
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
