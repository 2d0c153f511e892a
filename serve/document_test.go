package serve_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A document is /openapi.json, against which these tests validate every response.
type document struct {
	paths   []operationSpec
	schemas map[string]any
	shared  map[string]any // responses to which operations refer
}

type operationSpec struct {
	method    string
	path      *regexp.Regexp
	body      map[string]any // its schema
	responses map[string]any
}

var pathParam = regexp.MustCompile(`\\\{[a-z]+\\\}`)

func parseDocument(text []byte) (*document, error) {
	var raw struct {
		Paths map[string]map[string]struct {
			RequestBody struct {
				Content map[string]struct {
					Schema map[string]any `json:"schema"`
				} `json:"content"`
			} `json:"requestBody"`
			Responses map[string]any `json:"responses"`
		} `json:"paths"`
		Components struct{ Schemas, Responses map[string]any } `json:"components"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, err
	}
	d := &document{schemas: raw.Components.Schemas, shared: raw.Components.Responses}
	for path, item := range raw.Paths {
		for method, op := range item {
			pattern := pathParam.ReplaceAllString(regexp.QuoteMeta(path), "[^/]+")
			o := operationSpec{strings.ToUpper(method), regexp.MustCompile("^" + pattern + "$"), nil, op.Responses}
			for _, content := range op.RequestBody.Content {
				o.body = content.Schema
			}
			d.paths = append(d.paths, o)
		}
	}
	// Literal paths come before those with a parameter in the same place.
	slices.SortFunc(d.paths, func(a, b operationSpec) int {
		return strings.Count(a.path.String(), "[^/]+") - strings.Count(b.path.String(), "[^/]+")
	})
	return d, nil
}

func lookup(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// find returns the index of the operation of a request, or -1.
func (d *document) find(method, path string) int {
	path, _, _ = strings.Cut(path, "?")
	return slices.IndexFunc(d.paths, func(o operationSpec) bool { return o.method == method && o.path.MatchString(path) })
}

// validate returns what a response contains that the document does not describe: its status, a
// header, a member, or the type of a member.
func (d *document) validate(method, path string, r reply) []string {
	i := d.find(method, path)
	if i < 0 || r.status == http.StatusTemporaryRedirect {
		return nil // needs no key, has no route, or has dots in its path
	}
	response, ok := d.paths[i].responses[fmt.Sprint(r.status)]
	if !ok {
		return []string{fmt.Sprintf("no status %d", r.status)}
	}
	if ref, ok := lookup(response, "$ref").(string); ok {
		response = d.shared[ref[strings.LastIndex(ref, "/")+1:]]
	}
	var wrong []string
	for _, name := range []string{"ETag", "Location", "Retry-After", "Userdb-Uid", "WWW-Authenticate"} {
		if r.header.Get(name) != "" && lookup(response, "headers", name) == nil {
			wrong = append(wrong, "no header "+name)
		}
	}
	content, _ := lookup(response, "content").(map[string]any)
	kind, _, _ := strings.Cut(r.header.Get("Content-Type"), ";")
	schema, ok := lookup(content, kind, "schema").(map[string]any)
	switch {
	case r.text == "" && len(content) == 0:
	case !ok:
		wrong = append(wrong, fmt.Sprintf("no body of %q", kind))
	case strings.HasSuffix(kind, "json") && kind != "application/x-ndjson":
		var v any
		if err := json.Unmarshal([]byte(r.text), &v); err != nil {
			return append(wrong, err.Error())
		}
		wrong = append(wrong, d.validateValue(schema, v, "")...)
	}
	return wrong
}

// validateValue returns where a value does not match a schema. Members that the schema does not
// name are errors as well.
func (d *document) validateValue(schema map[string]any, v any, at string) (wrong []string) {
	if ref, ok := schema["$ref"].(string); ok {
		schema, _ = d.schemas[ref[strings.LastIndex(ref, "/")+1:]].(map[string]any)
	}
	if schema != nil && len(schema) == 0 { // any value
		return nil
	}
	report := func(format string, args ...any) { wrong = append(wrong, at+": "+fmt.Sprintf(format, args...)) }
	if all, ok := schema["oneOf"].([]any); ok {
		fitting := 0
		for _, one := range all {
			if len(d.validateValue(one.(map[string]any), v, at)) == 0 {
				fitting++
			}
		}
		if fitting != 1 {
			report("%v matches %d schemas of oneOf, want 1", v, fitting)
		}
		return wrong
	}
	if kinds := fmt.Sprint(schema["type"]); schema["type"] != nil && !slices.Contains(strings.Fields(strings.Trim(kinds, "[]")), jsonType(v)) &&
		(kinds != "number" || jsonType(v) != "integer") {
		report("got the type %s, want %s", jsonType(v), kinds)
	}
	if all, ok := schema["enum"].([]any); ok && !slices.Contains(all, v) {
		report("%v is not one of %v", v, all)
	}
	switch v := v.(type) {
	case string:
		if _, err := time.Parse(time.RFC3339, v); schema["format"] == "date-time" && err != nil {
			report("%v", err)
		}
	case []any:
		items, _ := schema["items"].(map[string]any)
		for i, one := range v {
			wrong = append(wrong, d.validateValue(items, one, fmt.Sprint(at, "/", i))...)
		}
	case map[string]any:
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, has := v[name.(string)]; !has {
				report("the required member %s is missing", name)
			}
		}
		for name, one := range v {
			member, ok := lookup(schema, "properties", name).(map[string]any)
			if !ok {
				member, ok = schema["additionalProperties"].(map[string]any)
			}
			if !ok {
				report("the schema has no member %s", name)
			}
			wrong = append(wrong, d.validateValue(member, one, at+"/"+name)...)
		}
	}
	return wrong
}

func jsonType(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case float64:
		if v == float64(int64(v)) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

// documents holds the document of each client, by URL.
var documents sync.Map

// validate validates a response against the document of the service, and the pointers of a problem
// against the body of the request.
func (c *client) validate(method, path, body string, r reply) {
	c.t.Helper()
	d, has := documents.Load(c.url)
	if !has {
		res, err := http.Get(c.url + "/openapi.json")
		must(c.t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		must(c.t, err)
		d, err = parseDocument(text)
		must(c.t, err)
		documents.Store(c.url, d)
	}
	for _, wrong := range d.(*document).validate(method, path, r) {
		c.t.Errorf("%s %s: %d %s: does not match /openapi.json: %s", method, path, r.status, r.text, wrong)
	}
	for _, wrong := range d.(*document).strayPointers(method, path, body, r) {
		c.t.Errorf("%s %.100s %.300s: %d: points to %s, which the body does not have", method, path, body, r.status, wrong)
	}
}

// strayPointers returns the pointers of a problem to members that the body of its request cannot
// have, or to facets and values that this one does not have, unless they are required. Errors about
// the syntax of a body are not looked at.
func (d *document) strayPointers(method, path, body string, r reply) (stray []string) {
	errs, _ := r.body["errors"].([]any)
	for _, e := range errs {
		pointer, _ := lookup(e, "pointer").(string)
		rule := lookup(e, "rule")
		if !strings.HasPrefix(pointer, "/") || rule == "usage" {
			continue
		}
		names := strings.Split(pointer[1:], "/")
		members, _ := lookup(d.bodyOf(method, path), "properties", names[0]).(map[string]any)
		isMap := members["additionalProperties"] != nil
		if members == nil || isMap && len(names) > 1 && rule != "required" && !hasMember(body, pointer) {
			stray = append(stray, pointer)
		}
	}
	return stray
}

// bodyOf returns the schema of the body of a request.
func (d *document) bodyOf(method, path string) map[string]any {
	i := d.find(method, path)
	if i < 0 {
		return nil
	}
	body := d.paths[i].body
	if ref, ok := body["$ref"].(string); ok {
		body, _ = d.schemas[ref[strings.LastIndex(ref, "/")+1:]].(map[string]any)
	}
	return body
}

// hasMember reports whether a JSON pointer leads to a value of a JSON text.
func hasMember(text, pointer string) bool {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return false
	}
	for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		if list, ok := v.([]any); ok {
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(list) {
				return false
			}
			v = list[i]
			continue
		}
		m, _ := v.(map[string]any)
		var has bool
		if v, has = m[name]; !has {
			return false
		}
	}
	return true
}
