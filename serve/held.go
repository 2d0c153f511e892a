package serve

import (
	"context"
	"net/http"
	"time"

	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

func (s *Service) registerHeld() {
	read, write := []string{admin.ScopeRead}, []string{admin.ScopeWrite}
	handleType(s, route{id: "lookupHeld", method: "POST", path: typePrefix + "/held/lookup", scopes: read, summary: "Find the entry that holds a value it has given up"}, lookupHeld)
	handleType(s, route{id: "releaseHeld", method: "POST", path: typePrefix + "/held/release", scopes: write, summary: "Let others take a held value before its time is up", status: http.StatusNoContent}, releaseHeld)
	handleType(s, route{id: "listRetired", method: "GET", path: typePrefix + "/retired", scopes: read, summary: "List the UIDs of deleted entries that cannot be reused"}, listRetired)
	handleType(s, route{id: "forgetRetired", method: "POST", path: typePrefix + "/retired/forget", scopes: write, summary: "Allow the UID of a deleted entry to be reused", status: http.StatusNoContent}, forgetRetired)
}

type heldInput struct {
	TypePath
	Body struct {
		Field string `json:"field" minLength:"1" maxLength:"1024" example:"email" doc:"the field that had the value"`
		Value string `json:"value" minLength:"1" maxLength:"4096"`
	}
}

// Held describes a value that an entry has given up and that no other entry may have yet.
type Held struct {
	UID   string    `json:"uid" doc:"of the entry that holds the value; the entry may have been deleted"`
	Field string    `json:"field"`
	Value string    `json:"value" doc:"in canonical form"`
	Until time.Time `json:"until"`
}

type heldOutput struct{ Body Held }

func lookupHeld(ctx context.Context, c *call, t *userdb.Type, in *heldInput) (*heldOutput, error) {
	h, err := t.FindHeld(ctx, in.Body.Field, in.Body.Value)
	if err != nil {
		return nil, err
	}
	h.Until = h.Until.UTC()
	return &heldOutput{Held(h)}, nil
}

func releaseHeld(ctx context.Context, c *call, t *userdb.Type, in *heldInput) (*empty, error) {
	return &empty{}, t.ReleaseHeld(ctx, in.Body.Field, in.Body.Value)
}

type listRetiredInput struct {
	TypePath
	Limit int    `query:"limit" minimum:"1" maximum:"200" default:"50"`
	After string `query:"after" maxLength:"12288" doc:"next from another page"`
}

// Retired describes the UID of a deleted entry, which no other entry may have.
type Retired struct {
	UID     string     `json:"uid"`
	Deleted *time.Time `json:"deleted" doc:"when the entry was deleted; null if that is not known"`
}

type retiredOutput struct {
	Body struct {
		Retired []Retired `json:"retired"`
		Next    *string   `json:"next" doc:"after= for the page after this one; null if there is none"`
	}
}

func listRetired(ctx context.Context, c *call, t *userdb.Type, in *listRetiredInput) (*retiredOutput, error) {
	page, next, err := t.RetiredPage(ctx, in.After, in.Limit)
	if err != nil {
		return nil, queryError(err)
	}
	out := &retiredOutput{}
	out.Body.Retired = make([]Retired, len(page))
	for i, r := range page {
		out.Body.Retired[i].UID = r.UID
		if !r.At.IsZero() {
			out.Body.Retired[i].Deleted = ptr(r.At.UTC())
		}
	}
	if next != "" {
		out.Body.Next = &next
	}
	return out, nil
}

type retiredInput struct {
	TypePath
	Body struct {
		UID string `json:"uid" minLength:"1" maxLength:"1024"`
	}
}

func forgetRetired(ctx context.Context, c *call, t *userdb.Type, in *retiredInput) (*empty, error) {
	return &empty{}, asNotFound(t.ForgetUID(ctx, in.Body.UID))
}
