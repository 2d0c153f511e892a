package view

import (
	"context"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// An Actor is who does something, as histories tell it.
type Actor struct{ Who, Origin string }

// OperatorPrefix begins the Who of an operator of the console.
const OperatorPrefix = "operator:"

// IsOperator reports whether an operator of the console does it.
func (a Actor) IsOperator() bool { return strings.HasPrefix(a.Who, OperatorPrefix) }

type actorKey struct{}

// WithActor is a context under which an actor does something. What is "" stays as it was.
func WithActor(ctx context.Context, a Actor) context.Context {
	before := ActorOf(ctx)
	if a.Who == "" {
		a.Who = before.Who
	}
	if a.Origin == "" {
		a.Origin = before.Origin
	}
	return context.WithValue(ctx, actorKey{}, a)
}

type peerKey struct{}

// WithPeer returns a context for a call of a program that comes from an address. Act notes the
// address if the actor has no origin. Histories do not, since it is not a visitor's.
func WithPeer(ctx context.Context, address string) context.Context {
	return context.WithValue(ctx, peerKey{}, address)
}

// ActorOf is who does something under a context.
func ActorOf(ctx context.Context) Actor {
	a, _ := ctx.Value(actorKey{}).(Actor)
	return a
}

// Note is what histories tell of something; nothing where there are none.
func (v *View) Note(ctx context.Context, kind EventKind, purpose string, fields ...string) store.Note {
	if !v.Config.History {
		return store.Note{}
	}
	return store.Note{Lines: []string{Line(ActorOf(ctx), kind, purpose, fields)}, Now: v.StoreTime()}
}

// Act puts into the feed of the namespace what an operator did, or what was done about one, whether or not histories are kept: to an
// entry, or with the zero key to what about names.
func (v *View) Act(ctx context.Context, kind EventKind, prk recordkey.Key, about string) error {
	actor := ActorOf(ctx)
	if actor.Origin == "" {
		actor.Origin, _ = ctx.Value(peerKey{}).(string)
	}
	n := store.Note{Lines: []string{Line(actor, kind, about, nil)}, Now: v.StoreTime()}
	return v.Engine.Tell(ctx, v.NS, FeedOf(kind), prk, n)
}

// NoteWork notes, as Act does, that an import, an export or a repair begins: of the entry at prk
// or, for the zero key, of the entries of type about; "": of several types. It notes nothing if no
// actor is named and no histories are kept, nor of work on the store's own entries. If noting
// fails, it only logs that.
func (v *View) NoteWork(ctx context.Context, kind EventKind, prk recordkey.Key, about string) {
	if IsReserved(v.NS) || ActorOf(ctx).Who == "" && !v.Config.History {
		return
	}
	if err := v.Act(ctx, kind, prk, about); err != nil {
		v.Config.Log.WarnContext(ctx, "an event is missing in the feed", "kind", string(kind), "error", err)
	}
}

// Limits of what a line tells.
const (
	longestWho    = 80
	longestOrigin = 80
	longestFields = 500
)

// none stands for an empty word: no word escapes to it.
const none = "/"

// Line is KIND WHO ORIGIN FIELDS PURPOSE.
func Line(a Actor, kind EventKind, purpose string, fields []string) string {
	return strings.Join([]string{string(kind), word(a.Who, longestWho), word(a.Origin, longestOrigin), list(fields), word(purpose, longestOrigin)}, " ")
}

func word(text string, most int) string {
	if text == "" {
		return none
	}
	return recordkey.Escape(strings.ToValidUTF8(text[:min(len(text), most)], ""))
}

// list has slashes between names, of which there are none inside; the last one is … where there are more.
func list(fields []string) string {
	var b strings.Builder
	for i, f := range fields {
		if i > 0 {
			b.WriteByte('/')
		}
		f = recordkey.Escape(f)
		if b.Len()+len(f) > longestFields {
			b.WriteString("…")
			break
		}
		b.WriteString(f)
	}
	if b.Len() == 0 {
		return none
	}
	return b.String()
}

// noteChange is what histories tell of a change: it is all in there.
func (v *View) noteChange(ctx context.Context, c *store.Change) store.Note {
	if !v.Config.History {
		return store.Note{}
	}
	t, _ := v.Type(c.Key.Type()) // which has built the change
	n, actor := store.Note{Now: v.StoreTime()}, ActorOf(ctx)
	tell := func(kind EventKind, fields ...string) { n.Lines = append(n.Lines, Line(actor, kind, "", fields)) }
	facets := facetsOf(c)
	switch {
	case c.Create:
		tell(EventCreate, facets...)
		if sets(c, store.FieldDisabled) {
			tell(EventDisable)
		}
		return n
	case c.Delete:
		tell(EventDelete)
		return n
	}
	if c.Tokens.Spend != "" {
		n.Lines = append(n.Lines, Line(actor, EventRedeem, c.Tokens.Purpose, nil))
	}
	if sets(c, store.FieldDisabled) {
		tell(EventDisable)
	} else if slices.Contains(c.Unset, store.FieldDisabled) {
		tell(EventEnable)
	}
	if sets(c, store.FieldChanged) || slices.Contains(c.Unset, store.FieldPassword) {
		tell(EventPassword)
	}
	var identifiers []string
	for _, f := range facets {
		if t != nil && slices.Contains(t.Secondary, f) {
			identifiers = append(identifiers, f)
		}
	}
	if others := slices.DeleteFunc(facets, func(f string) bool { return slices.Contains(identifiers, f) }); len(others) > 0 {
		tell(EventUpdate, others...)
	}
	if len(identifiers) > 0 {
		tell(EventIdentifier, identifiers...)
	}
	if len(c.Add)+len(c.Drop) > 0 {
		tell(EventTags, names(c)...)
	}
	if len(n.Lines) == 0 && sets(c, store.FieldEpoch) {
		tell(EventSessionEnd)
	}
	return n
}

// facetsOf are the names of the facets that a change sets or unsets, sorted.
func facetsOf(c *store.Change) (fields []string) {
	for _, f := range c.Set {
		fields = append(fields, f.Field)
	}
	fields = append(fields, c.Unset...)
	fields = slices.DeleteFunc(fields, func(f string) bool { return store.OwnField(f) || f == store.FieldPassword || f == c.Key.Field() })
	slices.Sort(fields)
	return slices.Compact(fields)
}

func sets(c *store.Change, field string) bool {
	return slices.ContainsFunc(c.Set, func(f store.Facet) bool { return f.Field == field })
}

// names are those of the tertiary records that a change replaces.
func names(c *store.Change) (all []string) {
	for _, m := range c.Add {
		all = append(all, m.Key.Name())
	}
	for _, d := range c.Drop {
		all = append(all, d.Key.Name())
	}
	slices.Sort(all)
	return slices.Compact(all)
}
