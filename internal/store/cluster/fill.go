package cluster

import (
	"context"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// Tertiary records that are born with an entry must be there with it or not at all (I7), and no create that
// comes to nothing may touch those of a live entry. So their members are laid ready in a place of the
// attempt's own, ~/fill/TOKEN/{KEY}, whose braces put it into the slot of the set; the commit writes
// ~fill, and whoever reads that first moves them over, in one step. What was laid ready and never
// committed goes by itself.

// fill is what ~fill says: the token, then each record's name with marks: i is an indexed set, r replaces
// what is there.
func (a *attempt) fill() string {
	fill := a.token
	for _, m := range a.c.Add {
		mark := " -"
		if len(m.Index) > 0 {
			mark = " i"
		}
		if a.c.Replaces(m) {
			mark += "r"
		}
		fill += mark + ":" + recordkey.Escape(m.Key.Name())
	}
	return fill
}

func stageKey(set recordkey.Key, token string) string {
	return set.Namespace().String() + "~/fill/" + token + "/{" + set.String() + "}"
}

func (a *attempt) layReady(ctx context.Context, m store.Members) error {
	args := append([]string{tombstoneLife, m.Command()}, m.Values...)
	_, err := a.e.run(ctx, on(readyScript, stageKey(m.Key, a.token), args...))
	return err
}

// putInPlace moves over what was laid ready for an entry. Anybody may do it, any number of times:
// members that are there once are not laid ready any more.
func (e *Engine) putInPlace(ctx context.Context, entry recordkey.Key, fill string) error {
	token, names, _ := strings.Cut(fill, " ")
	for mark := range strings.FieldsSeq(names) {
		marks, escaped, _ := strings.Cut(mark, ":")
		name, err := recordkey.Unescape(escaped)
		if err != nil {
			continue
		}
		set, err := entry.Tertiary(name)
		if err != nil {
			continue
		}
		if err := e.promote(ctx, set, token, marks); err != nil {
			return err
		}
	}
	_, err := e.run(ctx, on(filledScript, entry.String(), fill))
	return harmless(err)
}

// promote reads the members first: an answer that is lost would take them with it.
func (e *Engine) promote(ctx context.Context, set recordkey.Key, token, marks string) error {
	stage, how := stageKey(set, token), "join"
	if strings.HasSuffix(marks, "r") {
		how = "replace"
	}
	var members []string
	if strings.HasPrefix(marks, "i") {
		var err error
		if members, err = e.members(ctx, stage); err != nil {
			return err
		}
	}
	_, err := e.run(ctx, step{promoteScript, []string{stage, set.String()}, []string{how}})
	if err == nil && len(members) > 0 {
		_, err = e.alignMembers(ctx, set, members, true)
	}
	return harmless(err)
}
