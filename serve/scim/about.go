package scim

import "strings"

// providerConfig returns the features of SCIM that the service supports.
func providerConfig(c *call) (answer, error) {
	no := map[string]any{"supported": false}
	return answer{body: resource{
		"schemas": []string{urnCore + "ServiceProviderConfig"},
		"patch":   map[string]any{"supported": true},
		"bulk":    map[string]any{"supported": false, "maxOperations": 0, "maxPayloadSize": 0},
		"filter":  map[string]any{"supported": true, "maxResults": maxCount},
		"sort":    no, "etag": no, "changePassword": no,
		"authenticationSchemes": []any{map[string]any{
			"type": "oauthbearertoken", "name": "API key", "description": "Authorization: Bearer, with an API key that has the scope scim", "primary": true,
		}},
		"meta": map[string]any{"resourceType": "ServiceProviderConfig", "location": c.locationOf("ServiceProviderConfig")},
	}}, nil
}

func (c *call) locationOf(path string) string { return strings.TrimSuffix(c.url(path, ""), "/") }

func (c *call) resourceTypes() []resource {
	var all []resource
	for _, t := range []struct{ name, endpoint, urn, description string }{
		{"User", "/Users", urnUser, "accounts"}, {"Group", "/Groups", urnGroup, "groups, whose members carry a tag"},
	} {
		all = append(all, resource{
			"schemas": []string{urnCore + "ResourceType"}, "id": t.name, "name": t.name, "endpoint": t.endpoint,
			"description": t.description, "schema": t.urn,
			"meta": map[string]any{"resourceType": "ResourceType", "location": c.url("ResourceTypes", t.name)},
		})
	}
	return all
}

// newAttribute returns an attribute of a schema. more holds pairs of names and values that override
// the defaults.
func newAttribute(name, kind string, more ...any) map[string]any {
	a := map[string]any{
		"name": name, "type": kind, "multiValued": false, "description": name, "required": false, "caseExact": false,
		"mutability": "readWrite", "returned": "default", "uniqueness": "none",
	}
	for i := 0; i < len(more); i += 2 {
		a[more[i].(string)] = more[i+1]
	}
	return a
}

// schemas returns the schemas of users, with the stored attributes, and of groups.
func (c *call) schemas() []resource {
	id := newAttribute("id", "string", "caseExact", true, "mutability", "readOnly", "returned", "always", "uniqueness", "server")
	external := newAttribute("externalId", "string", "caseExact", true)
	user := []any{id, external, newAttribute("userName", "string", "required", true, "uniqueness", "server"), newAttribute("active", "boolean")}
	if c.fields["displayname"] != "" {
		user = append(user, newAttribute("displayName", "string"))
	}
	var parts []any
	for i, part := range lowerNameParts {
		if c.fields["name."+part] != "" {
			parts = append(parts, newAttribute(nameParts[i], "string"))
		}
	}
	if len(parts) > 0 {
		user = append(user, newAttribute("name", "complex", "subAttributes", parts))
	}
	if c.fields["emails"] != "" {
		kinds, uniqueness := []string{workKind}, "none"
		if c.showsSeveral() {
			kinds, uniqueness = []string{workKind, "home", "other"}, "server"
		}
		kind := newAttribute("type", "string", "canonicalValues", kinds)
		parts := []any{newAttribute("value", "string", "uniqueness", uniqueness), kind, newAttribute("primary", "boolean")}
		mutability := "readWrite"
		if !c.h.options.mapsEmails() {
			mutability = "readOnly"
		}
		user = append(user, newAttribute("emails", "complex", "multiValued", true, "mutability", mutability, "subAttributes", parts))
	}
	value := newAttribute("value", "string", "mutability", "immutable", "caseExact", true)
	kind := newAttribute("type", "string", "mutability", "immutable", "canonicalValues", []string{"User"})
	ref := newAttribute("$ref", "reference", "mutability", "immutable", "caseExact", true, "referenceTypes", []string{"User"})
	group := []any{
		id, external, newAttribute("displayName", "string", "required", true, "uniqueness", "server"),
		newAttribute("members", "complex", "multiValued", true, "subAttributes", []any{value, ref, kind}),
	}
	var all []resource
	for _, s := range []struct {
		urn, name  string
		attributes []any
	}{{urnUser, "User", user}, {urnGroup, "Group", group}} {
		all = append(all, resource{
			"schemas": []string{urnCore + "Schema"}, "id": s.urn, "name": s.name, "description": s.name, "attributes": s.attributes,
			"meta": map[string]any{"resourceType": "Schema", "location": c.locationOf("Schemas") + "/" + s.urn},
		})
	}
	return all
}

func listTypes(c *call) (answer, error)   { return c.describe(c.resourceTypes()) }
func listSchemas(c *call) (answer, error) { return c.describe(c.schemas()) }
func getType(c *call) (answer, error)     { return c.byID(c.resourceTypes()) }
func getSchema(c *call) (answer, error)   { return c.byID(c.schemas()) }

// describe returns a list of the resources that describe the service. It refuses filters, which
// only users and groups support.
func (c *call) describe(all []resource) (answer, error) {
	if len(c.query["filter"]) > 0 {
		return answer{}, &Error{403, invalidFilter, "this endpoint does not support filters"}
	}
	return listResponse(listParams{}, int64(len(all)), all), nil
}

func (c *call) byID(all []resource) (answer, error) {
	for _, one := range all {
		if strings.EqualFold(one["id"].(string), c.id) {
			return answer{body: one}, nil
		}
	}
	return answer{}, errNotFound
}
