package userdb_test

import (
	"context"
	"slices"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// wantTags wants an entry to have these tags and no others, also in their index.
func wantTags(t *testing.T, what string, users *userdb.Type, uid string, want ...string) {
	t.Helper()
	slices.Sort(want)
	got, err := users.Tags(hints.UID(uid)).Members(t.Context())
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: tags %q, %v, want %q", what, got, err, want)
	}
}

// TestUnfinishedFill changes the tags of entries whose first tags are still to be put in place. They are put there before,
// so that they do not come back afterwards.
func TestUnfinishedFill(t *testing.T) {
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
			"added": {func(ctx context.Context, uid string) error { return errOf(users.Tags(hints.UID(uid)).Add(ctx, "new")) }, []string{"blue", "new", "red"}},
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
			waiting(t, users, s.raw, recordkey.Namespace{}, name)
			must(t, tt.do(t.Context(), name))
			wantTags(t, name, users, name, tt.want...)
			wantTags(t, name+", read again", users, name, tt.want...)
		}
	})
}
