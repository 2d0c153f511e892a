package serve

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

const problemJSON = "application/problem+json"

// refusals are the statuses of problems that operations answer besides those of every one of their kind, by operationId.
var refusals = map[int][]string{
	http.StatusConflict:            {"createEntry", "patchEntry", "setPassword", "startSession", "login", "redeemToken", "resetPassword", "acceptInvitation", "exportEntries", "exportEntry", "importEntries"},
	http.StatusGone:                {"createEntry"},
	http.StatusInternalServerError: {"importEntries"}, // there is no folder for the refused lines
	http.StatusPreconditionFailed:  {"patchEntry", "startSession"},
	http.StatusUnprocessableEntity: {"createEntry", "patchEntry", "setPassword", "startSession", "login", "issueToken", "redeemToken", "resetPassword", "invite", "acceptInvitation", "addTag", "replaceTags", "removeTag"},
	http.StatusNotFound:            {"peekToken", "redeemToken", "resetPassword"},
}

// refusalsOf are all statuses of problems of an operation.
func refusalsOf(path string, op *huma.Operation) []int {
	all := []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable}
	if len(op.Parameters) > 0 || op.RequestBody != nil {
		all = append(all, http.StatusBadRequest)
	}
	if op.RequestBody != nil {
		all = append(all, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	if strings.Contains(path, "{type}") {
		all = append(all, http.StatusNotFound)
	}
	for status, ids := range refusals {
		if slices.Contains(ids, op.OperationID) {
			all = append(all, status)
		}
	}
	return all
}

// document completes /openapi.json after all routes are there: what the types of inputs and outputs cannot say.
func (s *Service) document() {
	doc := s.api.OpenAPI()
	schemas := doc.Components.Schemas
	problem := schemas.Schema(reflect.TypeFor[Problem](), true, "Problem")
	doc.Servers = []*huma.Server{{URL: "/"}}
	doc.Components.Responses = map[string]*huma.Response{}
	answered, sent := map[string]bool{}, map[string]bool{}
	for path, item := range doc.Paths {
		for _, op := range operationsOf(item) {
			for _, status := range refusalsOf(path, op) {
				name := strconv.Itoa(status)
				doc.Components.Responses[name] = problemResponse(status, problem)
				op.Responses[name] = &huma.Response{Ref: "#/components/responses/" + name}
			}
			for _, r := range op.Responses {
				for _, content := range r.Content {
					reach(schemas, content.Schema, answered)
				}
			}
			for _, p := range op.Parameters {
				reach(schemas, p.Schema, sent)
			}
			if op.RequestBody != nil {
				for _, content := range op.RequestBody.Content {
					reach(schemas, content.Schema, sent)
				}
			}
		}
	}
	entry := doc.Paths[typePrefix+"/entries/{uid}"]
	entry.Get.Responses["304"] = &huma.Response{Description: "The entry has the revision of If-None-Match.", Headers: entry.Get.Responses["200"].Headers}
	merge := entry.Patch.RequestBody.Content
	merge["application/json"] = merge["application/merge-patch+json"]
	for name, schema := range schemas.Map() {
		switch {
		case !answered[name] && !sent[name]:
			delete(schemas.Map(), name) // of the library for schemas, whose errors are answered as problems
		case answered[name]:
			answerable(schema, !sent[name])
		}
	}
}

// problemResponse is what a status of a problem looks like.
func problemResponse(status int, schema *huma.Schema) *huma.Response {
	text := func(about string) *huma.Param {
		return &huma.Param{Description: about, Schema: &huma.Schema{Type: "string"}}
	}
	headers := map[string]*huma.Param{"X-Request-Id": text("the request_id")}
	switch status {
	case http.StatusUnauthorized:
		headers["WWW-Authenticate"] = text("Bearer where the key is wrong, else Password")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusConflict:
		headers["Retry-After"] = text("seconds until it is worth to ask again")
	}
	return &huma.Response{Description: http.StatusText(status), Headers: headers, Content: map[string]*huma.MediaType{problemJSON: {Schema: schema}}}
}

func operationsOf(item *huma.PathItem) map[string]*huma.Operation {
	all := map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete}
	for method, op := range all {
		if op == nil {
			delete(all, method)
		}
	}
	return all
}

// reach notes the named schemas that a schema refers to.
func reach(r huma.Registry, s *huma.Schema, seen map[string]bool) {
	each(s, func(s *huma.Schema) {
		name := strings.TrimPrefix(s.Ref, "#/components/schemas/")
		if s.Ref != "" && !seen[name] {
			seen[name] = true
			reach(r, r.SchemaFromRef(s.Ref), seen)
		}
	})
}

// each visits a schema and those in it.
func each(s *huma.Schema, visit func(*huma.Schema)) {
	if s == nil {
		return
	}
	visit(s)
	each(s.Items, visit)
	if more, is := s.AdditionalProperties.(*huma.Schema); is {
		each(more, visit)
	}
	for _, p := range s.Properties {
		each(p, visit)
	}
	for _, some := range [][]*huma.Schema{s.OneOf, s.AnyOf, s.AllOf} {
		for _, one := range some {
			each(one, visit)
		}
	}
}

// mayBeNull are the lists that are null in answers, as they could not be counted.
const mayBeNull = "namespaces"

// answerable is a schema of answers: lists are lists, never null. What is sent by callers may have no members that nobody knows; answers
// may get new ones.
func answerable(s *huma.Schema, more bool) {
	each(s, func(s *huma.Schema) {
		if _, is := s.AdditionalProperties.(bool); is && more {
			s.AdditionalProperties = nil
		}
		for name, p := range s.Properties {
			if p.Type == huma.TypeArray && name != mayBeNull {
				p.Nullable = false
			}
		}
		if more, is := s.AdditionalProperties.(*huma.Schema); is && more.Type == huma.TypeArray {
			more.Nullable = false
		}
	})
	if role := s.Properties["role"]; role != nil && role.Type == huma.TypeInteger { // schema.Role, which writes itself
		name := &huma.Schema{Type: huma.TypeString}
		s.Properties["role"] = &huma.Schema{OneOf: []*huma.Schema{name, {Type: huma.TypeArray, Items: name}}}
	}
}
