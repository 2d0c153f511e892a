package serve_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
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
	responses map[string]any
}

var pathParam = regexp.MustCompile(`\\\{[a-z]+\\\}`)

func parseDocument(text []byte) (*document, error) {
	var raw struct {
		Paths map[string]map[string]struct {
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
			d.paths = append(d.paths, operationSpec{strings.ToUpper(method), regexp.MustCompile("^" + pattern + "$"), op.Responses})
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

// validate returns what a response contains that the document does not describe: its status, a
// header, a member, or the type of a member.
func (d *document) validate(method, path string, r reply) []string {
	path, _, _ = strings.Cut(path, "?")
	i := slices.IndexFunc(d.paths, func(o operationSpec) bool { return o.method == method && o.path.MatchString(path) })
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

// validate validates a response against the document of the service.
func (c *client) validate(method, path string, r reply) {
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
}
