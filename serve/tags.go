package serve

import (
	"context"
	"net/http"
	"slices"

	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

func (s *Service) registerTags() {
	write := []string{admin.ScopeWrite}
	handleType(s, route{id: "getTags", method: "GET", path: typePrefix + "/entries/{uid}/tags", scopes: []string{admin.ScopeRead}, summary: "Get the tags of an entry"}, getTags)
	handleType(s, route{id: "replaceTags", method: "PUT", path: typePrefix + "/entries/{uid}/tags", scopes: write, summary: "Replace the tags of an entry"}, replaceTags)
	handleType(s, route{id: "addTag", method: "PUT", path: typePrefix + "/entries/{uid}/tags/{tag}", scopes: write, summary: "Add a tag to an entry", status: http.StatusNoContent}, addTag)
	handleType(s, route{id: "removeTag", method: "DELETE", path: typePrefix + "/entries/{uid}/tags/{tag}", scopes: write, summary: "Remove a tag from an entry", status: http.StatusNoContent}, removeTag)
}

// Tags holds the tags of an entry.
type Tags struct {
	Tags []string `json:"tags"`
}

type tagsOutput struct{ Body Tags }

func getTags(ctx context.Context, c *call, t *userdb.Type, in *EntryPath) (*tagsOutput, error) {
	if err := c.response.Reserve(ctx); err != nil {
		return nil, err
	}
	tags, err := t.Tags(in.hint()).Members(ctx)
	if err != nil {
		return nil, asNotFound(err)
	}
	if memoryOf(tags) > maxReadBytes {
		return nil, usageProblem("the tags are too large for one response")
	}
	return tagsOf(tags), nil
}

// tagsOf returns a response with the tags. In JSON, their list is never null.
func tagsOf(tags []string) *tagsOutput {
	if tags == nil {
		tags = []string{}
	}
	return &tagsOutput{Tags{tags}}
}

type replaceTagsInput struct {
	EntryPath
	Body struct {
		Tags []string `json:"tags" maxItems:"1000" doc:"at most as many as the schema allows"`
	}
}

// maxTag is the maximum size of a tag in bytes, which is what an index can hold.
const maxTag = 1 << 10

// checkTags returns an error if a tag is too long.
func checkTags(tags ...string) error {
	if slices.ContainsFunc(tags, func(tag string) bool { return len(tag) > maxTag }) {
		return &userdb.FieldError{Err: userdb.ErrInvalid, Field: "tags", Rule: "key", Reason: "a tag has over 1 KiB"}
	}
	return nil
}

func replaceTags(ctx context.Context, c *call, t *userdb.Type, in *replaceTagsInput) (*tagsOutput, error) {
	if err := checkTags(in.Body.Tags...); err != nil {
		return nil, err
	}
	if err := t.Tags(in.hint()).Replace(ctx, in.Body.Tags...); err != nil {
		return nil, asNotFound(err)
	}
	return tagsOf(slices.Compact(slices.Sorted(slices.Values(in.Body.Tags)))), nil
}

type tagInput struct {
	EntryPath
	Tag string `path:"tag"`
}

func addTag(ctx context.Context, c *call, t *userdb.Type, in *tagInput) (*empty, error) {
	err := checkTags(in.Tag)
	if err == nil {
		_, err = t.Tags(in.hint()).Add(ctx, in.Tag)
	}
	return &empty{}, pointToTag(asNotFound(err))
}

func removeTag(ctx context.Context, c *call, t *userdb.Type, in *tagInput) (*empty, error) {
	_, err := t.Tags(in.hint()).Remove(ctx, in.Tag)
	return &empty{}, pointToTag(asNotFound(err))
}

// pointToTag returns an error about tags as one about the parameter tag of a path.
func pointToTag(err error) error { return pointTo(err, func(string) string { return "tag" }, "tags") }
