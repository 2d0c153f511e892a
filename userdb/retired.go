package userdb

import (
	"context"
	"iter"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A RetiredUID is the UID of an entry that was deleted while its type had schema.Type.Retire. No
// other entry may get it.
type RetiredUID struct {
	UID string
	At  time.Time // when the entry was deleted
}

// RetiredUIDs yields the retired UIDs of the type, in no particular order. It scans the keys of all
// entries, which is slow and not meant for hot paths. It may yield a UID twice if the server's
// tables grow or shrink meanwhile. It ends after an error.
func (t *Type) RetiredUIDs(ctx context.Context) iter.Seq2[RetiredUID, error] {
	return func(yield func(RetiredUID, error) bool) {
		var err error
		ctx, v := t.db.begin(ctx, "RetiredUIDs", &err)
		defer v.end(&err)
		t := t.current()
		for r, failure := range t.view.Retired(ctx, t.declared) {
			if err = publicError(failure); err != nil {
				yield(RetiredUID{}, err)
				return
			}
			if !yield(retiredUID(r), nil) {
				return
			}
		}
	}
}

func retiredUID(r store.Record) RetiredUID {
	retired := RetiredUID{UID: r.Key.Value()}
	if date, err := schema.Decode(schema.CodecDate, r.Fields[store.FieldRetired]); err == nil {
		retired.At, _ = date.Time()
	}
	return retired
}

// RetiredPage returns up to limit retired UIDs of the type, and at most 1,000. after is the next
// that an earlier call returned, or "" for the first page. next is "" after the last page. A page
// scans at most about 100,000 keys and stops after about 80 ms, so it may have fewer UIDs than
// limit, or none, although next is not "". The error is ErrCursor if after is invalid.
func (t *Type) RetiredPage(ctx context.Context, after string, limit int) (page []RetiredUID, next string, err error) {
	ctx, v := t.db.begin(ctx, "RetiredPage", &err)
	defer v.end(&err)
	t = t.current()
	found, next, err := t.view.RetiredPage(ctx, t.declared, after, min(max(limit, 1), maxRetiredPage))
	for _, r := range found {
		page = append(page, retiredUID(r))
	}
	return page, next, publicError(err)
}

// maxRetiredPage is the maximum number of UIDs on a page.
const maxRetiredPage = 1000

// checkRetired returns ErrDuplicate if the UID of the key is retired, and ErrNotFound if it is not.
func (t *Type) checkRetired(ctx context.Context, prk recordkey.Key) error {
	raws, err := t.view.Engine.ReadRaw(ctx, []store.RawRead{{Key: prk.String(), As: store.RawField, Field: store.FieldRetired}})
	switch {
	case err != nil:
		return err
	case raws[0].Wire != "":
		return store.RetiredUID(prk.Field())
	}
	return ErrNotFound
}

// ForgetUID makes a retired UID free for another entry. The error is ErrNotFound if the UID is not
// retired. The UID can be reused at once, even on a cluster.
func (t *Type) ForgetUID(ctx context.Context, uid string) (err error) {
	ctx, v := t.db.begin(ctx, "ForgetUID", &err)
	defer v.end(&err)
	current := t.current()
	prk, err := current.declared.PRK(uid)
	if err != nil {
		return publicError(err)
	}
	forgotten, err := current.view.Engine.Repair(ctx, store.ForgetUID{Entry: prk})
	if err == nil && !forgotten {
		err = ErrNotFound
	}
	if err == nil {
		current.noteRelease(ctx, prk, prk.Field())
	}
	return publicError(err)
}
