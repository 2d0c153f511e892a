package userdb_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// wantTags checks that an entry has exactly these tags.
func wantTags(t *testing.T, what string, users *userdb.Type, uid string, want ...string) {
	t.Helper()
	slices.Sort(want)
	got, err := users.Tags(hints.UID(uid)).Members(t.Context())
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: got tags %q, %v, want %q", what, got, err, want)
	}
}

// TestChangeOfUnwrittenTags changes the tags of entries whose initial tags have not been written
// yet. Each change must write the initial tags first, so that they do not reappear later.
func TestChangeOfUnwrittenTags(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := s.wide()
		for name, tt := range map[string]struct {
			do   func(ctx context.Context, uid string) error
			want []string
		}{
			"emptied": {func(ctx context.Context, uid string) error { return users.Tags(hints.UID(uid)).Replace(ctx) }, nil},
			"replaced": {func(ctx context.Context, uid string) error {
				return users.Tags(hints.UID(uid)).Replace(ctx, "new", "red")
			}, []string{"new", "red"}},
			"added": {func(ctx context.Context, uid string) error {
				return errOf(users.Tags(hints.UID(uid)).Add(ctx, "new"))
			}, []string{"blue", "new", "red"}},
			"removed": {func(ctx context.Context, uid string) error {
				return errOf(users.Tags(hints.UID(uid)).Remove(ctx, "red"))
			}, []string{"blue"}},
			"deleted": {func(ctx context.Context, uid string) error {
				if err := users.Delete(ctx, hints.UID(uid)); err != nil {
					return err
				}
				_, err := users.Create(ctx, userdb.NewEntry{UID: uid, Facets: schema.Texts("name", "of deleted")})
				return err
			}, nil},
		} {
			addWithWaitingTags(t, users, s.raw, recordkey.Namespace{}, name)
			must(t, tt.do(t.Context(), name))
			wantTags(t, name, users, name, tt.want...)
			wantTags(t, name+", read again", users, name, tt.want...)
		}
	})
}

// TestCreateInheritsNothing creates accounts under UIDs that have records without an entry. Such
// records remain if a create was refused halfway, or if a process died while it deleted an earlier
// account whose tombstone has expired since. However the account is created, it must have none of
// these records.
func TestCreateInheritsNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.wide(), t.Context()
		add(t, users, "first")
		leaveRecords := func(uid string) {
			t.Helper()
			prk := "user/uid:" + uid
			must(t, errors.Join(
				s.raw.SAdd(ctx, prk+"/tags", "admin").Err(),
				s.raw.SAdd(ctx, "user/tags:admin/~prks", prk).Err(),
				s.raw.RPush(ctx, prk+"/notes", "old").Err(),
				s.raw.Set(ctx, prk+"/bio", "old", 0).Err(),
				s.raw.HSet(ctx, "~/throttle/user/uid/"+uid, "old", "1").Err(),
			))
		}
		for name, create := range map[string]func(uid string) error{
			"bare": func(uid string) error { return errOf(users.Create(ctx, userdb.NewEntry{UID: uid})) },
			"named": func(uid string) error {
				return errOf(users.Create(ctx, userdb.NewEntry{UID: uid, Facets: schema.Texts("name", uid)}))
			},
			"job": func(uid string) error {
				return errOf(users.Create(ctx, userdb.NewEntry{UID: uid, Facets: schema.Texts("job", "j")}))
			},
			"tagged": func(uid string) error {
				return errOf(users.Create(ctx, userdb.NewEntry{UID: uid, Tags: []string{"own"}}))
			},
			"imported": func(uid string) error {
				line := `{"type":"user","facets":{"uid":"` + uid + `"},"tertiary":{"tags":{"kind":"set","value":["own"]}}}`
				return errOf(transfer.Import(ctx, s.first, strings.NewReader(line), transfer.ImportOptions{}))
			},
		} {
			leaveRecords(name)
			must(t, create(name))
			var want []string
			if name == "tagged" || name == "imported" {
				want = []string{"own"}
			}
			wantTags(t, name, users, name, want...)
			h := hints.UID(name)
			if items, err := users.List(h, "notes").Items(ctx, 0, -1); err != nil || len(items) > 0 {
				t.Errorf("%s: got notes %q, %v; want none", name, items, err)
			}
			if n := s.raw.Exists(ctx, "user/uid:"+name+"/bio", "~/throttle/user/uid/"+name).Val(); n != 0 {
				t.Errorf("%s: the old bio or throttle record remains", name)
			}
		}
	})
}
