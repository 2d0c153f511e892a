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

// extraStatuses maps statuses to the IDs of the operations that may respond with them. It leaves
// out the statuses that all operations of a kind share.
var extraStatuses = map[int][]string{
	http.StatusConflict:             {"createEntry", "patchEntry", "addValue", "removeValue", "putValueFirst", "setPassword", "startSession", "login", "redeemToken", "resetPassword", "acceptInvitation", "exportEntries", "exportEntry", "importEntries", "loginFactor", "raiseSession", "confirmFactor", "removeFactor", "replaceRecoveryCodes", "loginPasskey"},
	http.StatusGone:                 {"createEntry"},
	http.StatusPreconditionFailed:   {"patchEntry", "deleteEntry", "addValue", "removeValue", "putValueFirst", "startSession"},
	http.StatusPreconditionRequired: {"patchEntry"},
	http.StatusUnprocessableEntity:  {"createEntry", "patchEntry", "addValue", "removeValue", "putValueFirst", "setPassword", "startSession", "login", "issueToken", "redeemToken", "resetPassword", "invite", "acceptInvitation", "addTag", "replaceTags", "removeTag", "loginFactor", "raiseSession", "enrolFactor", "confirmFactor", "removeFactor", "replaceRecoveryCodes", "challengePasskey", "loginPasskey", "challengeFactor", "challengeSession"},
	http.StatusNotFound:             {"peekToken", "redeemToken", "resetPassword"},
}

// problemStatuses returns all statuses with which an operation may respond with a problem.
func problemStatuses(path string, op *huma.Operation) []int {
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
	for status, ids := range extraStatuses {
		if slices.Contains(ids, op.OperationID) {
			all = append(all, status)
		}
	}
	return all
}

// completeDocument completes /openapi.json after all routes are registered. It adds what the types
// of inputs and outputs cannot express.
func (s *Service) completeDocument() {
	doc := s.api.OpenAPI()
	schemas := doc.Components.Schemas
	problem := schemas.Schema(reflect.TypeFor[Problem](), true, "Problem")
	doc.Servers = []*huma.Server{{URL: "/"}}
	doc.Components.Responses = map[string]*huma.Response{}
	inResponses, inRequests := map[string]bool{}, map[string]bool{}
	for path, item := range doc.Paths {
		for _, op := range operationsByMethod(item) {
			for _, status := range problemStatuses(path, op) {
				name := strconv.Itoa(status)
				doc.Components.Responses[name] = problemResponse(status, problem)
				op.Responses[name] = &huma.Response{Ref: "#/components/responses/" + name}
			}
			addSchemas(schemas, op, inRequests, inResponses)
		}
	}
	entry := doc.Paths[typePrefix+"/entries/{uid}"]
	entry.Get.Responses["304"] = &huma.Response{Description: "The entry has a revision that If-None-Match names.", Headers: entry.Get.Responses["200"].Headers}
	merge := entry.Patch.RequestBody.Content
	merge["application/json"] = merge["application/merge-patch+json"]
	for name, schema := range schemas.Map() {
		switch {
		case !inResponses[name] && !inRequests[name]:
			delete(schemas.Map(), name) // unused, such as huma's own errors, which become problems
		case inResponses[name]:
			adjustResponseSchema(schema, !inRequests[name])
		}
	}
}

// addSchemas adds the names of the schemas that an operation uses to inRequests and inResponses.
func addSchemas(schemas huma.Registry, op *huma.Operation, inRequests, inResponses map[string]bool) {
	for _, r := range op.Responses {
		for _, content := range r.Content {
			addReferenced(schemas, content.Schema, inResponses)
		}
	}
	for _, p := range op.Parameters {
		addReferenced(schemas, p.Schema, inRequests)
	}
	if op.RequestBody != nil {
		for _, content := range op.RequestBody.Content {
			addReferenced(schemas, content.Schema, inRequests)
		}
	}
}

// problemResponse describes the response to a request that fails with a status.
func problemResponse(status int, schema *huma.Schema) *huma.Response {
	text := func(about string) *huma.Param {
		return &huma.Param{Description: about, Schema: &huma.Schema{Type: "string"}}
	}
	headers := map[string]*huma.Param{"X-Request-Id": text("the request_id")}
	switch status {
	case http.StatusUnauthorized:
		headers["WWW-Authenticate"] = text("Bearer if the API key is wrong, otherwise Password")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusConflict:
		headers["Retry-After"] = text("seconds to wait before trying again")
	}
	return &huma.Response{Description: http.StatusText(status), Headers: headers, Content: map[string]*huma.MediaType{problemJSON: {Schema: schema}}}
}

// operationsByMethod returns the operations of a path by their methods.
func operationsByMethod(item *huma.PathItem) map[string]*huma.Operation {
	all := map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete}
	for method, op := range all {
		if op == nil {
			delete(all, method)
		}
	}
	return all
}

// addReferenced adds to seen the names of the schemas that a schema refers to, directly or through
// others.
func addReferenced(r huma.Registry, s *huma.Schema, seen map[string]bool) {
	walkSchema(s, func(s *huma.Schema) {
		name := strings.TrimPrefix(s.Ref, "#/components/schemas/")
		if s.Ref != "" && !seen[name] {
			seen[name] = true
			addReferenced(r, r.SchemaFromRef(s.Ref), seen)
		}
	})
}

// walkSchema calls visit with a schema and with every schema nested in it. It does not follow
// references.
func walkSchema(s *huma.Schema, visit func(*huma.Schema)) {
	if s == nil {
		return
	}
	visit(s)
	walkSchema(s.Items, visit)
	if more, ok := s.AdditionalProperties.(*huma.Schema); ok {
		walkSchema(more, visit)
	}
	for _, p := range s.Properties {
		walkSchema(p, visit)
	}
	for _, some := range [][]*huma.Schema{s.OneOf, s.AnyOf, s.AllOf} {
		for _, one := range some {
			walkSchema(one, visit)
		}
	}
}

// nullableList names the only list that may be null in a response. It is null if the namespaces
// could not be determined.
const nullableList = "namespaces"

// adjustResponseSchema adjusts a schema that responses use. Lists other than nullableList are never
// null. If extensible is set, objects may have members that the schema does not name, because later
// versions may add some. Requests, by contrast, may contain only the members that the schema names.
func adjustResponseSchema(s *huma.Schema, extensible bool) {
	walkSchema(s, func(s *huma.Schema) {
		if _, ok := s.AdditionalProperties.(bool); ok && extensible {
			s.AdditionalProperties = nil
		}
		for name, p := range s.Properties {
			if p.Type == huma.TypeArray && name != nullableList {
				p.Nullable = false
			}
		}
		if more, ok := s.AdditionalProperties.(*huma.Schema); ok && more.Type == huma.TypeArray {
			more.Nullable = false
		}
	})
	// This is a schema.Role, which marshals itself as a name or a list of names.
	if role := s.Properties["role"]; role != nil && role.Type == huma.TypeInteger {
		name := &huma.Schema{Type: huma.TypeString}
		s.Properties["role"] = &huma.Schema{OneOf: []*huma.Schema{name, {Type: huma.TypeArray, Items: name}}}
	}
}
