package view

import (
	"context"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/recordkey"
)

// An Actor says who makes a call and from where, for histories.
type Actor struct{ Name, Origin string }

// OperatorPrefix begins the Name of an Actor that is a console operator.
const OperatorPrefix = "operator:"

// CommandName is the Name of an Actor who runs the command.
const CommandName = "command"

// IsOperator reports whether the actor is a console operator.
func (a Actor) IsOperator() bool { return strings.HasPrefix(a.Name, OperatorPrefix) }

// isTrusted reports whether the actor is a person who may do everything in a namespace.
func (a Actor) isTrusted() bool { return a.IsOperator() || a.Name == CommandName }

type actorKey struct{}

// WithActor returns a context for calls by an actor. An empty field of a keeps the value that the
// actor of ctx has.
func WithActor(ctx context.Context, a Actor) context.Context {
	before := ActorOf(ctx)
	if a.Name == "" {
		a.Name = before.Name
	}
	if a.Origin == "" {
		a.Origin = before.Origin
	}
	return context.WithValue(ctx, actorKey{}, a)
}

type peerKey struct{}

// WithPeer returns a context for calls by a program at an address. NoteAct records the address if
// the actor has no origin. Histories do not record it, since it is not the address of a visitor.
func WithPeer(ctx context.Context, address string) context.Context {
	return context.WithValue(ctx, peerKey{}, address)
}

// ActorOf returns the actor of a context.
func ActorOf(ctx context.Context) Actor {
	a, _ := ctx.Value(actorKey{}).(Actor)
	return a
}

// Note returns the note that records an event. It is empty if no histories are kept.
func (v *View) Note(ctx context.Context, kind EventKind, purpose string, fields ...string) history.Note {
	if !v.Config.History {
		return history.Note{}
	}
	return history.Note{Lines: []string{newLine(ActorOf(ctx), kind, purpose, fields)}, Now: v.StoreTime(), Feed: feedFor(ctx, kind)}
}

type historyOnlyKey struct{}

// WithoutFeed returns a context under which sessions and tokens are recorded in histories only, not
// in feeds.
func WithoutFeed(ctx context.Context) context.Context {
	return context.WithValue(ctx, historyOnlyKey{}, true)
}

// feedFor returns the feed for an event that histories also have.
func feedFor(ctx context.Context, kind EventKind) string {
	if ctx.Value(historyOnlyKey{}) != nil {
		return history.FeedNone
	}
	return FeedOf(kind, ActorOf(ctx))
}

// NoteAct adds an event of a kind for which IsOperator is true to a feed of the namespace, whether
// or not histories are kept. The event concerns the entry at prk or, if prk is the zero key, the
// object that about names.
func (v *View) NoteAct(ctx context.Context, kind EventKind, prk recordkey.Key, about string) error {
	actor := ActorOf(ctx)
	if actor.Origin == "" {
		actor.Origin, _ = ctx.Value(peerKey{}).(string)
	}
	n := history.Note{Lines: []string{newLine(actor, kind, about, nil)}, Now: v.StoreTime()}
	return v.Engine.AppendFeed(ctx, v.NS, FeedOf(kind, actor), prk, n)
}

// NoteWork records, as NoteAct does, that an import, an export or a repair begins. The work
// concerns the entry at prk or, if prk is the zero key, the type that about names. If about is "",
// it concerns several types. NoteWork records nothing about work on the store's own entries, and
// nothing if ctx names no actor and no histories are kept. It only logs a failure to record.
func (v *View) NoteWork(ctx context.Context, kind EventKind, prk recordkey.Key, about string) {
	if IsReserved(v.NS) || ActorOf(ctx).Name == "" && !v.Config.History {
		return
	}
	if err := v.NoteAct(ctx, kind, prk, about); err != nil {
		v.WarnMissing(ctx, kind, err)
	}
}

// WarnMissing logs that an event is missing from the feed because of err.
func (v *View) WarnMissing(ctx context.Context, kind EventKind, err error) {
	v.Config.Log.WarnContext(ctx, "an event is missing from the feed", "kind", string(kind), "error", err)
}

// newLine returns the line for an action of an actor.
func newLine(a Actor, kind EventKind, purpose string, fields []string) string {
	return history.Line{Kind: string(kind), Who: a.Name, Origin: a.Origin, Fields: fields, Purpose: purpose}.String()
}

// noteChange returns the note with the history lines for a change. It derives the events only from
// the change itself.
func (v *View) noteChange(ctx context.Context, c *store.Change) history.Note {
	if !v.Config.History {
		return history.Note{}
	}
	n, actor := history.Note{Now: v.StoreTime()}, ActorOf(ctx)
	add := func(kind EventKind, purpose string, fields ...string) {
		n.Lines = append(n.Lines, newLine(actor, kind, purpose, fields))
	}
	switch {
	case c.Create:
		add(EventCreate, "", ChangedFacets(c)...)
		if c.Sets(store.FieldDisabled) {
			add(EventDisable, "")
		}
		return n
	case c.Delete:
		add(EventDelete, "")
		return n
	}
	addAccessEvents(c, add)
	v.addContentEvents(c, add)
	if len(n.Lines) > 0 {
		return n
	}
	if released := fieldsReleased(c); c.Sets(session.FieldEpoch) {
		add(EventSessionEnd, "")
		n.Feed = feedFor(ctx, EventSessionEnd)
	} else if len(released) > 0 {
		add(EventRelease, "", released...)
	}
	return n
}

// findDropped changes the elements of c.Drop that are silent but may have members, so that
// histories and events mention them.
func (v *View) findDropped(ctx context.Context, c *store.Change) {
	for i, d := range c.Drop {
		if d.Silent {
			sizes, err := v.Engine.Cardinalities(ctx, []recordkey.Key{d.Key})
			c.Drop[i].Silent = err == nil && sizes[0] == 0
		}
	}
}

// addAccessEvents adds the events of an update that concern how the entry logs in.
func addAccessEvents(c *store.Change, add func(kind EventKind, purpose string, fields ...string)) {
	if c.Tokens.Spend != "" {
		add(EventRedeem, c.Tokens.Purpose)
	}
	if c.Sets(store.FieldDisabled) {
		add(EventDisable, "")
	} else if slices.Contains(c.Unset, store.FieldDisabled) {
		add(EventEnable, "")
	}
	if c.Sets(store.FieldChanged) || slices.Contains(c.Unset, store.FieldPassword) {
		add(EventPassword, "")
	}
	if c.Sets(factor.FieldMark) {
		add(EventFactors, strings.Join(markOf(c).Methods(), ","))
	} else if slices.Contains(c.Unset, factor.FieldMark) {
		add(EventFactors, "")
	}
}

// addContentEvents adds the events of an update that concern facets and tertiary records.
func (v *View) addContentEvents(c *store.Change, add func(kind EventKind, purpose string, fields ...string)) {
	t, _ := v.Type(c.Key.Type()) // this type built the change
	var identifiers, others []string
	for _, f := range ChangedFacets(c) {
		if t != nil && slices.Contains(t.Secondary, f) {
			identifiers = append(identifiers, f)
		} else {
			others = append(others, f)
		}
	}
	if len(others) > 0 {
		add(EventUpdate, "", others...)
	}
	if len(identifiers) > 0 {
		add(EventIdentifier, "", identifiers...)
	}
	if names := TertiaryNames(c); len(names) > 0 {
		add(EventTags, "", names...)
	}
}

// markOf returns the mark of second factors that a change sets.
func markOf(c *store.Change) factor.Mark {
	i := slices.IndexFunc(c.Set, func(f store.Facet) bool { return f.Field == factor.FieldMark })
	return factor.Mark(c.Set[i].Wire)
}

// ChangedFacets returns the names of the facets and lost values that a change sets or unsets, and
// the fields whose further values or labels it changes, sorted.
func ChangedFacets(c *store.Change) (fields []string) {
	for _, f := range c.Set {
		fields = append(fields, f.Field)
	}
	fields = append(fields, c.Unset...)
	for i, name := range fields {
		if store.IsFurther(name) {
			f, _ := store.ParseFurther(name, "")
			fields[i] = f.Field
		} else if field := store.FieldOfLabel(name); field != "" {
			fields[i] = field
		}
	}
	fields = slices.DeleteFunc(fields, func(f string) bool {
		return store.OwnField(f) && !store.IsLost(f) || f == store.FieldPassword || f == c.Key.Field()
	})
	slices.Sort(fields)
	return slices.Compact(fields)
}

// fieldsReleased returns the fields whose held values a change frees, sorted.
func fieldsReleased(c *store.Change) (fields []string) {
	for _, name := range c.Unset {
		if h, ok := store.ParseHeld(name); ok {
			fields = append(fields, h.Field)
		}
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

// TertiaryNames returns the names of the tertiary records that a change writes or drops, sorted. It
// leaves out silent drops.
func TertiaryNames(c *store.Change) (all []string) {
	for _, m := range c.Add {
		all = append(all, m.Key.Name())
	}
	for _, d := range c.Drop {
		if !d.Silent {
			all = append(all, d.Key.Name())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
