package scim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A directory sends requests to a Handler that manages the users of a site.
type directory struct {
	t testing.TB
	*testdb.Site
	h *Handler
}

func newDirectory(t testing.TB, s *testdb.Site, tags map[string]string) directory {
	t.Helper()
	h, err := New(Options{Tags: tags, Namespace: s.NS.Path()})
	if err != nil {
		t.Fatal(err)
	}
	d := directory{t, s, h}
	d.prepare()
	return d
}

func (d directory) prepare() {
	d.t.Helper()
	if err := d.h.Prepare(d.Ctx, d.DB, d.NS.Path(), UserType); err != nil {
		d.t.Fatal(err)
	}
}

// send sends a request and returns the body of the response.
func (d directory) send(method, path, body string) (map[string]any, error) {
	w := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(d.Ctx, method, Prefix+path, strings.NewReader(body))
	if err := d.h.Serve(w, req, d.DB, d.NS.Path(), UserType, noMeter{}); err != nil || w.Body.Len() == 0 {
		return nil, err
	}
	var v map[string]any
	err := json.Unmarshal(w.Body.Bytes(), &v)
	return v, err
}

// noMeter is a Meter without limits.
type noMeter struct{}

func (noMeter) Reserve(context.Context) error { return nil }
func (noMeter) Charge(any) error              { return nil }

// must sends a request that must succeed, and returns the body of the response.
func (d directory) must(method, path, body string) map[string]any {
	d.t.Helper()
	v, err := d.send(method, path, body)
	if err != nil {
		d.t.Fatalf("%s %s %.200s: %v", method, path, body, err)
	}
	return v
}

// wantError checks that the response to a request is an error with a status and a scimType.
func (d directory) wantError(status int, scimType, method, path, body string) {
	d.t.Helper()
	v, err := d.send(method, path, body)
	if refused, is := errors.AsType[*Error](err); !is || refused.Status != status || refused.Type != scimType {
		d.t.Errorf("%s %s %.200s: got %.200v, %v; want %d %s", method, path, body, v, err, status, scimType)
	}
}

// createUsers creates users with these UIDs.
func (d directory) createUsers(uids ...string) {
	d.t.Helper()
	for _, uid := range uids {
		if _, err := d.Type(d.t, UserType).Create(d.Ctx, userdb.NewEntry{UID: uid, Facets: schema.Texts("email", uid+"@x.org")}); err != nil {
			d.t.Fatal(err)
		}
	}
}

func groupBody(name string, members ...string) string {
	values := []map[string]string{}
	for _, uid := range members {
		values = append(values, map[string]string{"value": uid})
	}
	text, _ := json.Marshal(map[string]any{"displayName": name, "members": values})
	return string(text)
}

func (d directory) createGroup(name string, members ...string) (id string) {
	d.t.Helper()
	return d.must("POST", "/Groups", groupBody(name, members...))["id"].(string)
}

func renameBody(name string) string {
	return fmt.Sprintf(`{"Operations":[{"op":"replace","path":"displayName","value":%q}]}`, name)
}

// checkMembers checks the members of a group, and that a filter finds the group by each of them.
func (d directory) checkMembers(id string, want ...string) {
	d.t.Helper()
	if got := memberValues(d.must("GET", "/Groups/"+id, "")); !slices.Equal(got, want) {
		d.t.Errorf("group %s: got the members %q, want %q", id, got, want)
	}
	for _, uid := range want {
		found := d.must("GET", "/Groups?attributes=id&filter="+url.QueryEscape(`members eq "`+uid+`"`), "")
		if text := fmt.Sprint(found["Resources"]); !strings.Contains(text, id) {
			d.t.Errorf("user %s: got the groups %s, want also %s", uid, text, id)
		}
	}
}

func memberValues(group map[string]any) (uids []string) {
	all, _ := group["members"].([]any)
	for _, m := range all {
		uids = append(uids, m.(map[string]any)["value"].(string))
	}
	return uids
}

func (d directory) checkTags(uid string, want ...string) {
	d.t.Helper()
	got, err := d.Type(d.t, UserType).Tags(hints.UID(uid)).Members(d.Ctx)
	if slices.Sort(got); err != nil || !slices.Equal(got, want) {
		d.t.Errorf("user %s: got the tags %q, %v; want %q", uid, got, err, want)
	}
}

// withContext returns d with another context.
func (d directory) withContext(ctx context.Context) directory {
	s := *d.Site
	s.Ctx, d.Site = ctx, &s
	return d
}
