package scim

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// Each group has a tag of its own, scim:ID, which no other group ever has. A group that
// Options.Tags maps has the mapped tag instead, and stores it in admin.GroupTag. At most one group
// at a time stores a mapped tag, even if another group already has the name that is mapped to it.
// To ensure that, members with a mapped tag are changed only under the lock of that tag, and a
// group gets the tag only after every other group that stores it has given it up.
//
// A group stores a mapped tag before its members get it, and until all of them have lost it. Its
// members always carry the stored tag or the group's own, so none is missing in between, and an
// interrupted change can be finished at any time.

// tagOf returns the tag that members of a group carry. A name in the form of an id is never looked
// up in Options.Tags, because a directory can name its groups freely.
func (r *collection) tagOf(id, name string) string {
	byID, byName := r.scope.withName(id), r.scope.withName(name)
	if tag := r.h.tags[byID]; tag != "" {
		return tag
	}
	if tag := r.h.tags[byName]; tag != "" && !isID(byName.idOrName) {
		return tag
	}
	return tagPrefix + id
}

// isMapped reports whether a tag is mapped to a group of the collection.
func (r *collection) isMapped(tag string) bool {
	for g, mapped := range r.h.tags {
		if mapped == tag && g.namespace == r.scope.namespace && g.typ == r.scope.typ {
			return true
		}
	}
	return false
}

// keepsOwnTag reports whether a group has its own tag and no other tag is mapped to it.
func (r *collection) keepsOwnTag(e userdb.Entry) bool {
	own := tagPrefix + e.UID()
	return e.Text(admin.GroupTag) == own && r.tagOf(e.UID(), e.Text(admin.GroupName)) == own
}

var (
	// errRenamed reports that the name of a group changed while the group was getting its tag.
	errRenamed = fmt.Errorf("%w: the group is being renamed", userdb.ErrUnavailable)
	// errLocked reports that a lock did not become free in time.
	errLocked = fmt.Errorf("%w: other changes to the same members or externalId are still running", userdb.ErrUnavailable)
)

// maxRenames limits how often withTag starts again because the name of the group has changed.
const maxRenames = 5

// withTag gives a group the tag for its name and id, and calls do with that tag. If the group gets
// another tag in the meantime, withTag calls do again. It returns the group in its final state.
func (r *collection) withTag(ctx context.Context, id string, do func(ctx context.Context, tag string) error) (e userdb.Entry, err error) {
	own := tagPrefix + id
	for renames := 0; renames < maxRenames; {
		if e, err = r.groups.Find(ctx, hints.UID(id)); err != nil {
			return e, err
		}
		stored, tag := e.Text(admin.GroupTag), r.tagOf(id, e.Text(admin.GroupName))
		switch {
		case stored != own && stored != tag:
			err = r.withLock(ctx, lockTag, stored, func(ctx context.Context) error { return r.giveUpTag(ctx, id, stored) })
			if err == nil {
				continue
			}
		case tag == own:
			after, done, err := r.withOwnTag(ctx, e, do)
			if done {
				return after, err
			}
			renames++
			continue
		default:
			err = r.withLock(ctx, lockTag, tag, func(ctx context.Context) error {
				if e, err = r.takeTag(ctx, id, tag); err != nil {
					return err
				}
				return do(ctx, tag)
			})
			if err == nil {
				return e, nil
			}
		}
		switch {
		case errors.Is(err, errRenamed):
			renames++
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return e, err
		}
		// Otherwise only the lock's time is up, and the next attempt continues.
	}
	return e, errRenamed
}

// withOwnTag calls do with the group's own tag, and returns the group as it is afterwards. done is
// false if the group needs another tag by then.
func (r *collection) withOwnTag(ctx context.Context, e userdb.Entry, do func(ctx context.Context, tag string) error) (after userdb.Entry, done bool, err error) {
	if err := do(ctx, tagPrefix+e.UID()); err != nil {
		return e, true, err
	}
	after, err = r.groups.Find(ctx, hints.UID(e.UID()))
	if errors.Is(err, userdb.ErrNotFound) {
		return e, true, nil // do or another request deleted it
	}
	return after, err != nil || r.keepsOwnTag(after), err
}

// takeTag makes a group the only one that stores a mapped tag, and gives the tag to its members. It
// returns errRenamed if the tag is no longer mapped to the group, or if the group still stores
// another mapped tag. The caller holds the lock of the tag.
func (r *collection) takeTag(ctx context.Context, id, tag string) (userdb.Entry, error) {
	e, err := r.groups.Find(ctx, hints.UID(id))
	if err != nil {
		return e, err
	}
	mayTake := func(e userdb.Entry) bool {
		stored := e.Text(admin.GroupTag)
		return r.tagOf(id, e.Text(admin.GroupName)) == tag && (stored == tag || stored == tagPrefix+id)
	}
	if !mayTake(e) {
		return e, errRenamed
	}
	for other, err := range r.groups.All(ctx, userdb.Query{Where: schema.Texts(admin.GroupTag, tag)}) {
		if err == nil && other.UID() != id {
			err = r.giveUpTag(ctx, other.UID(), tag)
		}
		if err != nil {
			return e, err
		}
	}
	if e.Text(admin.GroupTag) != tag {
		e, err = r.groups.Update(ctx, hints.UID(id), func(e *userdb.Entry) error {
			if !mayTake(*e) {
				return errRenamed
			}
			e.Put(admin.GroupTag, schema.Text(tag))
			return nil
		})
		if err != nil {
			return e, err
		}
	}
	return e, r.moveTag(ctx, tagPrefix+id, tag)
}

// giveUpTag gives the members of a group the group's own tag in place of a mapped one, if the group
// still stores the mapped one. The caller holds the lock of the mapped tag.
func (r *collection) giveUpTag(ctx context.Context, id, mapped string) error {
	e, err := r.groups.Find(ctx, hints.UID(id))
	if err != nil || e.Text(admin.GroupTag) != mapped {
		if errors.Is(err, userdb.ErrNotFound) {
			err = nil
		}
		return err
	}
	if err := r.moveTag(ctx, mapped, tagPrefix+id); err != nil {
		return err
	}
	_, err = r.groups.Update(ctx, hints.UID(id), func(e *userdb.Entry) error {
		e.Put(admin.GroupTag, schema.Text(tagPrefix+id))
		return nil
	})
	return err
}

// moveTag replaces a tag with another one for all users that carry it. If a user has as many tags
// as the schema allows, it removes the old tag first. If the user has even more, it only removes
// the old tag, because such a user must not keep a tag that a group has given up, and must not stop
// a whole directory.
func (r *collection) moveTag(ctx context.Context, from, to string) error {
	for uids, err := range r.taggedUIDs(ctx, from) {
		if err != nil {
			return err
		}
		err = forEach(ctx, uids, func(uid string) error {
			tags := r.users.Tags(hints.UID(uid))
			_, err := tags.Add(ctx, to)
			isFull := isTooManyTags(err)
			if err != nil && !isFull {
				return err
			}
			if _, err = tags.Remove(ctx, from); err != nil || !isFull {
				return err
			}
			if _, err = tags.Add(ctx, to); isTooManyTags(err) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// retagAll gives all groups the tags that Options.Tags calls for.
func (r *collection) retagAll(ctx context.Context) error {
	for e, err := range r.groups.All(ctx, userdb.Query{Order: admin.GroupAdded}) {
		if err == nil {
			if r.keepsOwnTag(e) {
				continue
			}
			_, err = r.withTag(ctx, e.UID(), func(context.Context, string) error { return nil })
		}
		if err != nil && !isAbsent(err) && !errors.Is(err, userdb.ErrCorrupt) {
			return err
		}
	}
	return nil
}

// A lock is a record that holds a random name and the time of the server's clock when it was taken.
// After lockLife, others assume that its holder has died, and remove it. The holder stops after
// lockWork, well before that.
const (
	lockLife = time.Minute
	lockWork = 40 * time.Second
	// lockPoll is the first pause between attempts to take a lock. Each pause is twice as long as
	// the one before, up to maxLockPoll.
	lockPoll    = 20 * time.Millisecond
	maxLockPoll = time.Second
)

// The kinds of values that have locks.
const (
	lockTag      = "tag"
	lockExternal = "externalId"
)

// withLock calls do while it holds the lock of a value of a kind. No two requests in any process
// hold the lock of one value at the same time. withLock cancels the context of do before others may
// remove the lock.
func (r *collection) withLock(ctx context.Context, kind, value string, do func(context.Context) error) error {
	key, err := r.lockKey(kind, value)
	if err != nil {
		return err
	}
	engine := view.Of(r.db).Engine
	remove := func(ctx context.Context, value string) error {
		_, err := engine.Repair(ctx, store.Remove{Key: key.String(), Seen: store.Text{Wire: value, Exists: true}})
		return err
	}
	unlock := func(value string) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = remove(ctx, value) // if this fails, others remove the lock after lockLife
	}
	holder := rand.Text()
	for pause := lockPoll; ; pause = min(2*pause, maxLockPoll) {
		began := time.Now()
		now, err := engine.Time(ctx, key)
		if err != nil {
			return err
		}
		mine := holder + " " + strconv.FormatInt(now.UnixMilli(), 10)
		current, err := engine.Secret(ctx, key, mine)
		if err != nil {
			unlock(mine) // the lock may have been taken despite the error
			return err
		}
		if current == mine {
			defer unlock(mine)
			ctx, cancel := context.WithDeadline(ctx, began.Add(lockWork))
			defer cancel()
			return do(ctx)
		}
		_, at, _ := strings.Cut(current, " ")
		ms, err := strconv.ParseInt(at, 10, 64)
		if err != nil || now.Sub(time.UnixMilli(ms)).Abs() > lockLife {
			if err := remove(ctx, current); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return errLocked
		case <-time.After(pause):
		}
	}
}

func (r *collection) lockKey(kind, value string) (recordkey.Key, error) {
	sum := sha256.Sum256([]byte(r.name + "\x00" + value))
	key, err := recordkey.Own(kind+"-lock", hex.EncodeToString(sum[:]))
	return key.In(view.Reserved), err
}
