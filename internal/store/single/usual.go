package single

import (
	"context"
	"strconv"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// usualFacets is how many facets the short scripts take: Lua unpacks no list of any length.
const usualFacets = 1000

// usual says whether a change is one that the short scripts make: facets and secondary values.
func usual(c store.Change) bool {
	return !c.Delete && !c.Mend && len(c.Index)+len(c.Unindex)+len(c.Rank)+len(c.Unrank)+len(c.Add)+len(c.Drop) == 0 &&
		len(c.Set)+len(c.Unset) < usualFacets && c.Version.Fence == "" && !c.Tokens.Known && c.Tokens.Spend == "" && (c.Create || c.Version.Rev != "")
}

// applyUsual tries a short script, which does everything or nothing. unsure says that it may have been
// carried out although the answer says that nothing was done: change.lua finds the token then.
func (e *Engine) applyUsual(ctx context.Context, c store.Change, token string) (done, unsure bool, err error) {
	keys := make([]string, 2, 2+len(c.Claim)+len(c.Aside)+len(c.Release))
	keys[0], keys[1] = c.Key.String(), c.Schema.Key.String()
	keys = appendKeys(appendKeys(keys, c.Claim), c.Aside)
	prk := c.Key.In(recordkey.Namespace{}).String()
	args := make([]string, 0, 10+2*len(c.Set)+len(c.Unset))
	args = append(args, c.Schema.Fingerprint, prk, strconv.Itoa(len(c.Claim)))
	s := createScript
	if c.Create {
		args = append(args, store.FieldRev, token)
	} else {
		s = updateScript
		keys = appendKeys(keys, c.Release)
		args = append(args, strconv.Itoa(len(c.Aside)), c.Version.Rev, token, strconv.Itoa(len(c.Unset)))
		args = append(args, c.Unset...)
	}
	for _, f := range c.Set {
		args = append(args, f.Field, f.Wire)
	}
	reply, unsure, err := e.write(ctx, s, keys, args)
	if err != nil {
		return false, unsure, err
	}
	return reply == int64(1), unsure, nil
}
