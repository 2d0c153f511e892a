package scim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	filter "github.com/scim2/filter-parser/v2"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/own"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// tagPrefix is how the tags of groups begin, unless Options.Tags has another one.
const tagPrefix = "scim:"

// A crowd is what becomes of the members of a group.
type crowd struct {
	all  bool            // others than those that are to be in are to be out
	want map[string]bool // by UID: whether it is to be in
}

func (w *crowd) put(uid string, in bool) {
	if w.want == nil {
		w.want = map[string]bool{}
	}
	w.want[uid] = in
}

// step has the crowd do one operation on members.
func (w *crowd) step(s step) error {
	uids, err := uidsOf(s.v)
	switch {
	case s.at.sub != "" && s.at.sub != "value":
		return errPath
	case s.at.which != nil: // members[value eq "ID"]
		a, is := s.at.which.(*filter.AttributeExpression)
		if !is || s.op != "remove" {
			return errPath
		}
		name, uid, err := equality("", a)
		if err != nil || name != "value" {
			return refuse(invalidFilter, "of members, value eq is known")
		}
		w.put(uid, false)
		return nil
	case s.op == "remove" && s.v == nil:
		*w = crowd{all: true}
		return nil
	case err != nil:
		return err
	case s.op == "replace":
		*w = crowd{all: true}
	}
	for _, uid := range uids {
		w.put(uid, s.op != "remove")
	}
	return nil
}

// uidsOf reads members: objects with a value.
func uidsOf(v any) (uids []string, err error) {
	all, is := v.([]any)
	if !is && v != nil {
		all = []any{v}
	}
	for _, one := range all {
		m, _ := one.(map[string]any)
		uid, is := member(m, "value").(string)
		if kind, _ := member(m, "type").(string); strings.EqualFold(kind, "Group") {
			return nil, errNested
		}
		if !is || uid == "" {
			return nil, refuse(invalidValue, "a member is an object with a value")
		}
		uids = append(uids, uid)
	}
	return uids, nil
}

// in are those that are to be in, or with false those to be out.
func (w crowd) in(in bool) (uids []string) {
	for uid, is := range w.want {
		if is == in {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// known refuses new members that are no users.
func (c *call) known(w crowd) error {
	var hs []hints.Hint
	for _, uid := range w.in(true) {
		hs = append(hs, hints.UID(uid))
	}
	for _, err := range c.users.FindAll(c.ctx, hs...) {
		switch {
		case err != nil && absent(err):
			return refuse(invalidValue, "a member is no user that is known here")
		case err != nil && !errors.Is(err, userdb.ErrCorrupt):
			return err
		}
	}
	return nil
}

// carriers are the UIDs of those that carry a tag, sorted.
func (r *room) carriers(ctx context.Context, tag string) (uids []string, err error) {
	for e, err := range r.users.All(ctx, userdb.Query{Has: []string{tag}}) {
		switch {
		case err == nil:
			uids = append(uids, e.UID())
		case !errors.Is(err, userdb.ErrCorrupt):
			return nil, err
		}
	}
	slices.Sort(uids)
	return slices.Compact(uids), nil
}

// manyMembers are as many as it is worth to look first which of them carry a tag.
const manyMembers = 100

// gather gives a tag to those of a crowd, and takes it from others, each by itself. What was done stays, if it is cut off, and is not
// done again.
func (r *room) gather(ctx context.Context, tag string, w crowd) error {
	in, out := w.in(true), w.in(false)
	if w.all || len(in) > manyMembers {
		now, err := r.carriers(ctx, tag)
		if err != nil {
			return err
		}
		carries := func(uid string) bool { _, is := slices.BinarySearch(now, uid); return is }
		in = slices.DeleteFunc(in, carries)
		if w.all {
			out = slices.DeleteFunc(slices.Clone(now), func(uid string) bool { return w.want[uid] })
		}
	}
	err := each(ctx, out, func(uid string) error {
		_, err := r.users.Tags(hints.UID(uid)).Remove(ctx, tag)
		return err
	})
	if err != nil {
		return err
	}
	return each(ctx, in, func(uid string) error {
		_, err := r.users.Tags(hints.UID(uid)).Add(ctx, tag)
		return err
	})
}

// tooMany reports whether a user has as many tags as the schema lets anybody have.
func tooMany(err error) bool {
	field, is := errors.AsType[*userdb.FieldError](err)
	return is && field.Field == tagsName && field.Rule == "max"
}

const atOnce = 8 // users whose tags are changed

// each does something to users, several at a time. Those that are not there are passed over.
func each(ctx context.Context, uids []string, do func(uid string) error) error {
	var all sync.WaitGroup
	errs := make([]error, atOnce)
	for i := range min(atOnce, len(uids)) {
		all.Go(func() {
			for at := i; at < len(uids) && errs[i] == nil && ctx.Err() == nil; at += atOnce {
				if err := do(uids[at]); !absent(err) || tooMany(err) {
					errs[i] = err
				}
			}
		})
	}
	all.Wait()
	return partly(errors.Join(append(errs, ctx.Err())...))
}

// tagOf returns the tag that members of a group carry. A name that has the form of an id is mapped
// to none: a directory names its groups as it likes.
func (r *room) tagOf(id, name string) string {
	byID, byName := r.tags.named(id), r.tags.named(name)
	if tag := r.h.tags[byID]; tag != "" {
		return tag
	}
	if tag := r.h.tags[byName]; tag != "" && !isID(byName.group) {
		return tag
	}
	return tagPrefix + id
}

// retag brings the members of a group to the tag that they are to carry, where that is another one by now.
func (r *room) retag(ctx context.Context, e userdb.Entry) (userdb.Entry, error) {
	was, tag := e.Text(own.GroupTag), r.tagOf(e.UID(), e.Text(own.GroupName))
	if was == tag {
		return e, nil
	}
	move := func() error {
		uids, err := r.carriers(ctx, was)
		if err != nil {
			return err
		}
		return each(ctx, uids, func(uid string) error {
			if _, err := r.users.Tags(hints.UID(uid)).Add(ctx, tag); err != nil {
				return err
			}
			_, err := r.users.Tags(hints.UID(uid)).Remove(ctx, was)
			return err
		})
	}
	if err := move(); err != nil {
		return e, err
	}
	next, err := r.groups.Update(ctx, hints.UID(e.UID()), func(e *userdb.Entry) error {
		e.Put(own.GroupTag, schema.Text(tag))
		return nil
	})
	if err != nil {
		return e, err
	}
	return next, move() // those who came meanwhile
}

// retagAll does so for all groups.
func (r *room) retagAll(ctx context.Context) error {
	for e, err := range r.groups.All(ctx, userdb.Query{Order: own.GroupAdded}) {
		if err == nil {
			_, err = r.retag(ctx, e)
		}
		if err != nil && !absent(err) && !errors.Is(err, userdb.ErrCorrupt) {
			return err
		}
	}
	return nil
}
