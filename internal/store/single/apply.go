package single

import (
	"context"
	"fmt"
	"strconv"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

var (
	createScript = redisx.NewScript(scripts, "create", redisx.IsNumber)
	updateScript = redisx.NewScript(scripts, "update", redisx.IsNumber)
)

// An outcome is what became of a change in one of the quick ways.
type outcome struct {
	done  bool
	maybe bool // it is not known: change.lua finds the rev if it was done
}

// Apply implements [store.Engine]: one short script or, where many callers create, one for all of them; else, after it,
// the script for any change.
func (e *Engine) Apply(ctx context.Context, c store.Change) (string, error) {
	rev := store.NewRev()
	got, err := e.applyQuick(ctx, &c, rev)
	switch {
	case err != nil:
		return "", fmt.Errorf("changing %s: %w", c.Key, err)
	case !got.done:
		err = e.applyAny(ctx, c, rev, got.maybe)
	}
	return rev, e.confirmed(ctx, &c, rev, err)
}

// confirmed waits for the replicas that a change asks for: it is one script, so its entry stands for all of it.
func (e *Engine) confirmed(ctx context.Context, c *store.Change, rev string, err error) error {
	if err != nil || c.Replicas == 0 {
		return err
	}
	return redisx.Confirm(ctx, e.client, c.Key, rev, c.Replicas, c.ReplicaTime)
}

// applyQuick makes a change in one of the quick ways, or not at all.
func (e *Engine) applyQuick(ctx context.Context, c *store.Change, rev string) (got outcome, err error) {
	if onlyCreates(c) {
		busy := e.creating.Enter()
		defer e.creating.Leave()
		if busy {
			got, err = e.createWithOthers(ctx, c, rev)
		}
	}
	if err == nil && got == (outcome{}) && isShort(c) {
		got, err = e.applyShort(ctx, c, rev)
	}
	return got, err
}

// shortFacets is how many facets the short scripts take: Lua unpacks no list of any length.
const shortFacets = 1000

// isShort reports whether the short scripts make a change: facets and secondary values alone.
func isShort(c *store.Change) bool {
	return !c.Delete && !c.Mend && len(c.Index)+len(c.Unindex)+len(c.Rank)+len(c.Unrank)+len(c.Add)+len(c.Drop) == 0 &&
		len(c.Set)+len(c.Unset) < shortFacets && c.Seen.Fence == "" && !c.Tokens.Known && c.Tokens.Spend == "" && (c.Create || c.Seen.Rev != "")
}

// applyShort sends a short script, which does everything or nothing.
func (e *Engine) applyShort(ctx context.Context, c *store.Change, rev string) (outcome, error) {
	keys := make([]string, 2, 2+len(c.Claim)+len(c.Elsewhere)+len(c.Release))
	keys[0], keys[1] = c.Key.String(), c.Schema.Key.String()
	keys = appendKeys(appendKeys(keys, c.Claim), c.Elsewhere)
	prk := keys[0][len(c.Key.Namespace().String()):]
	args := make([]string, 0, 10+2*len(c.Set)+len(c.Unset))
	args = append(args, c.Schema.Fingerprint, prk, strconv.Itoa(len(c.Claim)))
	s := createScript
	if c.Create {
		args = append(args, store.FieldRev, rev)
	} else {
		s = updateScript
		keys = appendKeys(keys, c.Release)
		args = append(args, strconv.Itoa(len(c.Elsewhere)), c.Seen.Rev, rev, strconv.Itoa(len(c.Unset)))
		args = append(args, c.Unset...)
	}
	for _, f := range c.Set {
		args = append(args, f.Field, f.Wire)
	}
	reply, unsure, err := e.client.Write(ctx, s, keys, args)
	return outcome{done: reply == int64(1), maybe: unsure}, err
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
