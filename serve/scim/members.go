package scim

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	filter "github.com/scim2/filter-parser/v2"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// tagPrefix begins the tags of groups that Options.Tags does not map.
const tagPrefix = admin.GroupTagPrefix

// A memberSet describes changes to the members of a group.
type memberSet struct {
	replace bool            // whether to remove all members that want does not keep
	want    map[string]bool // by UID: whether the user is to be a member
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
		return pathError(s.at.path)
	case s.at.which != nil: // members[value eq "ID"]
		a, ok := s.at.which.(*filter.AttributeExpression)
		if !ok || s.op != "remove" {
			return pathError(s.at.path)
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
			return nil, badRequest(invalidValue, "members must be objects with a value")
		}
		uids = append(uids, uid)
	}
	return uids, nil
}

// uids returns the UIDs to add or, if in is false, those to remove. They are sorted.
func (w memberSet) uids(in bool) (uids []string) {
	for uid, member := range w.want {
		if member == in {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// checkMembers returns an error if a new member does not exist, or registered without verifying an
// address.
func (c *call) checkMembers(w memberSet) error {
	v := view.Of(c.db)
	t, err := v.Type(c.users.Name())
	if err != nil {
		return err
	}
	var keys []recordkey.Key
	for _, uid := range w.uids(true) {
		key, err := t.PRK(uid)
		if err != nil {
			return errNoUser
		}
		keys = append(keys, key)
	}
	for batch := range slices.Chunk(keys, memberBatch) {
		live, err := v.LiveKeys(c.ctx, batch)
		if err != nil {
			return err
		}
		if len(live) < len(batch) {
			return errNoUser
		}
		unproven, err := v.KeysWithField(c.ctx, batch, store.FieldUnproven)
		if err != nil {
			return err
		}
		if len(unproven) > 0 {
			return errUnprovenMember
		}
	}
	return nil
}

var (
	errNoUser         = badRequest(invalidValue, "members: a value is not the id of an existing user")
	errUnprovenMember = badRequest(invalidValue, "members: a value is the id of a user who registered without verifying an address")
)

// memberBatch is the number of members to check in one round trip.
const memberBatch = 1000

// taggedUIDs yields the UIDs of the users that carry a tag, in batches. It does not read the users.
// A UID may be yielded twice. If the index of tags was removed or is being built, taggedUIDs yields
// an error at the end.
func (r *collection) taggedUIDs(ctx context.Context, tag string) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		for range maxSchemaReads {
			v := view.Of(r.db)
			for keys, err := range v.KeysWithTag(ctx, v.ByName[r.users.Name()], tag) {
				uids := make([]string, len(keys))
				for i, key := range keys {
					uids[i] = key.Value()
				}
				if !yield(uids, err) || err != nil {
					return
				}
			}
			same, err := r.isUnder(ctx, v)
			if err != nil {
				yield(nil, err)
			}
			if err != nil || same {
				return
			}
		}
		yield(nil, errSchemaChanged)
	}
}

// A member is one value of the attribute members.
type member struct {
	Value string `json:"value"`
	Type  string `json:"type"`
	Ref   string `json:"$ref"`
}

// membersOf returns the members of a group, sorted by UID. It returns errTooManyMembers if the
// response would have too many.
func (c *call) membersOf(e userdb.Entry) ([]member, error) {
	members, used := []member{}, c.used // without members, JSON has an empty list
	for _, tag := range memberTags(e) {
		for batch, err := range c.taggedUIDs(c.ctx, tag) {
			if err != nil {
				return nil, err
			}
			for _, uid := range batch {
				members = append(members, member{Value: uid, Type: "User", Ref: c.url("Users", uid)})
			}
			used = used.withMembers(members[len(members)-len(batch):])
			if used.tooManyMembers() {
				members = sortMembers(members)
				used = c.used.withMembers(members)
			}
			if used.tooManyMembers() {
				return nil, errTooManyMembers
			}
		}
	}
	members = sortMembers(members)
	c.used = c.used.withMembers(members)
	return members, nil
}

// sortMembers returns members sorted by UID, without duplicates.
func sortMembers(members []member) []member {
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.Value, b.Value) })
	return slices.CompactFunc(members, func(a, b member) bool { return a.Value == b.Value })
}

// memberTags returns the tags that make a user a member of a group: the stored one and the group's
// own, which members carry before they get the stored one and after they lose it.
func memberTags(e userdb.Entry) []string {
	stored, own := e.Text(admin.GroupTag), tagPrefix+e.UID()
	if stored == own {
		return []string{own}
	}
	return []string{stored, own}
}

// isMember reports whether a user is a member of a group.
func (c *call) isMember(uid string, e userdb.Entry) (bool, error) {
	for _, tag := range memberTags(e) {
		is, err := c.users.Tags(hints.UID(uid)).Has(c.ctx, tag)
		if is || err != nil {
			if isAbsent(err) {
				err = nil
			}
			return is, err
		}
	}
	return false, nil
}

// bulkMembers is the number of new members above which applyMembers first reads who already carries
// the tag, as it always does when it replaces all members.
const bulkMembers = 100

// applyMembers adds a tag to the new members of a group. From former members, it removes the tag
// and the group's own tag. It changes each user separately. If applyMembers is interrupted, the
// changes made so far stay, and the next attempt skips them.
func (r *collection) applyMembers(ctx context.Context, id, tag string, w memberSet) error {
	removeTags := func(uid string) error {
		_, err := r.users.Tags(hints.UID(uid)).Remove(ctx, tag, tagPrefix+id)
		return err
	}
	toAdd, toRemove := w.uids(true), w.uids(false)
	if w.replace || len(toAdd) > bulkMembers {
		carriesTag := map[string]bool{} // only users in w.want
		for batch, err := range r.taggedUIDs(ctx, tag) {
			var others []string
			for _, uid := range batch {
				if w.want[uid] {
					carriesTag[uid] = true
				} else {
					others = append(others, uid)
				}
			}
			if err == nil && w.replace {
				err = forEach(ctx, others, removeTags)
			}
			if err != nil {
				return err
			}
		}
		toAdd = slices.DeleteFunc(toAdd, func(uid string) bool { return carriesTag[uid] })
	}
	if err := forEach(ctx, toRemove, removeTags); err != nil {
		return err
	}
	return forEach(ctx, toAdd, func(uid string) error {
		_, err := r.users.Tags(hints.UID(uid)).Add(ctx, tag)
		return err
	})
}

// isTooManyTags reports whether err means that a user has as many tags as the schema allows.
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
				switch err := do(uids[at]); {
				case isTooManyTags(err):
					errs[i] = fmt.Errorf("user %q: %w", uids[at], err)
				case !isAbsent(err):
					errs[i] = err
				}
			}
		})
	}
	all.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}
