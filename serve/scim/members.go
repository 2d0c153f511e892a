package scim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	filter "github.com/scim2/filter-parser/v2"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// tagPrefix begins the tags of groups that Options.Tags does not map.
const tagPrefix = "scim:"

// A memberSet describes changes to the members of a group.
type memberSet struct {
	replace bool            // whether to remove all members except those in want
	want    map[string]bool // whether the user with a UID is to be a member
}

func (w *memberSet) set(uid string, in bool) {
	if w.want == nil {
		w.want = map[string]bool{}
	}
	w.want[uid] = in
}

// apply adds one operation on members.
func (w *memberSet) apply(s step) error {
	uids, err := memberUIDs(s.v)
	switch {
	case s.at.sub != "" && s.at.sub != "value":
		return errPath
	case s.at.which != nil: // members[value eq "ID"]
		a, ok := s.at.which.(*filter.AttributeExpression)
		if !ok || s.op != "remove" {
			return errPath
		}
		name, uid, err := parseComparison("", a)
		if err != nil || name != "value" {
			return badRequest(invalidFilter, "a filter on members may only compare value with eq")
		}
		w.set(uid, false)
		return nil
	case s.op == "remove" && s.v == nil:
		*w = memberSet{replace: true}
		return nil
	case err != nil:
		return err
	case s.op == "replace":
		*w = memberSet{replace: true}
	}
	for _, uid := range uids {
		w.set(uid, s.op != "remove")
	}
	return nil
}

// memberUIDs returns the UIDs in a value of members: an object with a value, or an array of such
// objects.
func memberUIDs(v any) (uids []string, err error) {
	all, ok := v.([]any)
	if !ok && v != nil {
		all = []any{v}
	}
	for _, one := range all {
		m, _ := one.(map[string]any)
		uid, ok := lookupFold(m, "value").(string)
		if kind, _ := lookupFold(m, "type").(string); strings.EqualFold(kind, "Group") {
			return nil, errNested
		}
		if !ok || uid == "" {
			return nil, badRequest(invalidValue, "a member must be an object with a value")
		}
		uids = append(uids, uid)
	}
	return uids, nil
}

// uids returns the UIDs that are to be added or, if in is false, those that are to be removed. They
// are sorted.
func (w memberSet) uids(in bool) (uids []string) {
	for uid, member := range w.want {
		if member == in {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// checkMembers returns an error if a user that is to be added does not exist.
func (c *call) checkMembers(w memberSet) error {
	var hs []hints.Hint
	for _, uid := range w.uids(true) {
		hs = append(hs, hints.UID(uid))
	}
	for _, err := range c.users.FindAll(c.ctx, hs...) {
		switch {
		case err != nil && isAbsent(err):
			return badRequest(invalidValue, "a member is not an existing user")
		case err != nil && !errors.Is(err, userdb.ErrCorrupt):
			return err
		}
	}
	return nil
}

// taggedUIDs returns the UIDs of the users that carry a tag, sorted.
func (r *collection) taggedUIDs(ctx context.Context, tag string) (uids []string, err error) {
	for e, err := range r.users.All(ctx, userdb.Query{Tags: []string{tag}}) {
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

// bulkMembers is the number of members above which applyMembers first reads who carries the tag
// already.
const bulkMembers = 100

// applyMembers adds a tag to the users that become members and removes it from those that cease to
// be members. Each user is changed separately. If applyMembers is interrupted, the changes made so
// far stay, and the next attempt skips them.
func (r *collection) applyMembers(ctx context.Context, tag string, w memberSet) error {
	toAdd, toRemove := w.uids(true), w.uids(false)
	if w.replace || len(toAdd) > bulkMembers {
		current, err := r.taggedUIDs(ctx, tag)
		if err != nil {
			return err
		}
		carriesTag := func(uid string) bool { _, ok := slices.BinarySearch(current, uid); return ok }
		toAdd = slices.DeleteFunc(toAdd, carriesTag)
		if w.replace {
			toRemove = slices.DeleteFunc(slices.Clone(current), func(uid string) bool { return w.want[uid] })
		}
	}
	err := forEach(ctx, toRemove, func(uid string) error {
		_, err := r.users.Tags(hints.UID(uid)).Remove(ctx, tag)
		return err
	})
	if err != nil {
		return err
	}
	return forEach(ctx, toAdd, func(uid string) error {
		_, err := r.users.Tags(hints.UID(uid)).Add(ctx, tag)
		return err
	})
}

// isTooManyTags reports whether err says that a user has as many tags as the schema allows.
func isTooManyTags(err error) bool {
	field, ok := errors.AsType[*userdb.FieldError](err)
	return ok && field.Field == tagsName && field.Rule == "max"
}

const concurrency = 8 // users whose tags are changed concurrently

// forEach calls do for each user, several at a time. It ignores users that do not exist.
func forEach(ctx context.Context, uids []string, do func(uid string) error) error {
	var all sync.WaitGroup
	errs := make([]error, concurrency)
	for i := range min(concurrency, len(uids)) {
		all.Go(func() {
			for at := i; at < len(uids) && errs[i] == nil && ctx.Err() == nil; at += concurrency {
				if err := do(uids[at]); !isAbsent(err) || isTooManyTags(err) {
					errs[i] = err
				}
			}
		})
	}
	all.Wait()
	return markPartial(errors.Join(append(errs, ctx.Err())...))
}

// tagOf returns the tag that members of a group carry. A name in the form of an id is never looked
// up in Options.Tags, because a directory can name its groups freely.
func (r *collection) tagOf(id, name string) string {
	byID, byName := r.scope.withName(id), r.scope.withName(name)
	if tag := r.h.tags[byID]; tag != "" {
		return tag
	}
	if tag := r.h.tags[byName]; tag != "" && !isID(byName.group) {
		return tag
	}
	return tagPrefix + id
}

// retag changes the tag of a group and its members if the options give the group another tag than
// the stored one.
func (r *collection) retag(ctx context.Context, e userdb.Entry) (userdb.Entry, error) {
	was, tag := e.Text(admin.GroupTag), r.tagOf(e.UID(), e.Text(admin.GroupName))
	if was == tag {
		return e, nil
	}
	move := func() error {
		uids, err := r.taggedUIDs(ctx, was)
		if err != nil {
			return err
		}
		return forEach(ctx, uids, func(uid string) error {
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
		e.Put(admin.GroupTag, schema.Text(tag))
		return nil
	})
	if err != nil {
		return e, err
	}
	return next, move() // members that were added meanwhile
}

// retagAll calls retag for all groups.
func (r *collection) retagAll(ctx context.Context) error {
	for e, err := range r.groups.All(ctx, userdb.Query{Order: admin.GroupAdded}) {
		if err == nil {
			_, err = r.retag(ctx, e)
		}
		if err != nil && !isAbsent(err) && !errors.Is(err, userdb.ErrCorrupt) {
			return err
		}
	}
	return nil
}
