package scim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/coffeenode/userdb/internal/strictjson"
	"github.com/coffeenode/userdb/userdb"
)

const (
	defaultCount = 100 // resources on a page if the request has no count
	maxCount     = 200 // the maximum number of resources on a page

	maxAttributes = 1000 // names in a search: each is compared with each attribute of each resource
)

// A resource is a SCIM resource as a JSON object.
type resource = map[string]any

// meta returns the meta attribute of a resource.
func (c *call) meta(kind string, e userdb.Entry) map[string]any {
	m := map[string]any{"resourceType": kind, "location": c.url(kind+"s", e.UID())}
	if added, has := e.Get(addedField); has {
		m["created"] = added
	}
	return m
}

// respond returns the answer with a single entry, which toResource converts.
func (c *call) respond(status int, kind string, e userdb.Entry, toResource func(listParams, userdb.Entry) (resource, error)) (answer, error) {
	var s listParams
	s.readAttributes(c)
	out, err := toResource(s, e)
	// After a change, a response with too many members omits them.
	if err != nil && (c.reads || !errors.Is(err, errTooManyMembers)) {
		return answer{}, c.afterChange(err)
	}
	return answer{status: status, location: c.url(kind+"s", e.UID()), body: s.project(urnCore+kind, out)}, nil
}

// listParams holds the parameters of a list request.
type listParams struct {
	Filter                         *string
	StartIndex                     *int64
	Count                          *int64
	Attributes, ExcludedAttributes []string
}

// listParams reads the parameters of a list request from the query of a GET or the body of a POST.
func (c *call) listParams() (s listParams, err error) {
	if c.r.Method == http.MethodPost {
		err = c.decodeBody(&s)
	} else {
		err = s.readQuery(c)
	}
	if err == nil && len(s.Attributes)+len(s.ExcludedAttributes) > maxAttributes {
		err = badRequest(invalidValue, "the request names more than %d attributes", maxAttributes)
	}
	return s, err
}

func (s *listParams) readQuery(c *call) error {
	for _, param := range []struct {
		name string
		to   **int64
	}{{"startindex", &s.StartIndex}, {"count", &s.Count}} {
		if given := c.query[param.name]; len(given) > 0 {
			n, err := strconv.ParseInt(given[0], 10, 64)
			if err != nil || len(given) > 1 {
				return badRequest(invalidValue, "startIndex and count must each be one number")
			}
			*param.to = &n
		}
	}
	if given := c.query["filter"]; len(given) > 0 {
		if len(given) > 1 {
			return badRequest(invalidFilter, "there is more than one filter")
		}
		s.Filter = &given[0]
	}
	s.readAttributes(c)
	return nil
}

// readAttributes reads from the query the attributes to return and those to leave out.
func (s *listParams) readAttributes(c *call) {
	for _, param := range []struct {
		name string
		to   *[]string
	}{{"attributes", &s.Attributes}, {"excludedattributes", &s.ExcludedAttributes}} {
		for _, list := range c.query[param.name] {
			*param.to = append(*param.to, strings.Split(list, ",")...)
		}
	}
}

// wants reports whether the response should contain the attribute.
func (s listParams) wants(urn, name string) bool {
	denotes := func(given string) bool {
		given = strings.TrimSpace(given)
		if prefix := urn + ":"; len(given) > len(prefix) && strings.EqualFold(given[:len(prefix)], prefix) {
			given = given[len(prefix):]
		}
		top, _, _ := strings.Cut(given, ".")
		return strings.EqualFold(top, name)
	}
	switch {
	case name == "id" || name == "schemas":
		return true
	case len(s.Attributes) > 0:
		return slices.ContainsFunc(s.Attributes, denotes)
	}
	return !slices.ContainsFunc(s.ExcludedAttributes, func(given string) bool {
		return denotes(given) && !strings.Contains(given[strings.LastIndex(given, ":")+1:], ".")
	})
}

// project removes the unwanted attributes from a resource, and returns it.
func (s listParams) project(urn string, all resource) resource {
	for name := range all {
		if !s.wants(urn, name) {
			delete(all, name)
		}
	}
	return all
}

// window returns the index of the first resource of the page, from 0, and the largest number of
// resources on it.
func (s listParams) window() (start, count int64) {
	count = defaultCount
	if s.StartIndex != nil {
		start = min(max(*s.StartIndex, 1), math.MaxInt32) - 1
	}
	if s.Count != nil {
		count = min(max(*s.Count, 0), maxCount)
	}
	return start, count
}

// listResponse returns a ListResponse with one page of resources.
func listResponse(s listParams, total int64, page []resource) answer {
	start, _ := s.window()
	if page == nil {
		page = []resource{}
	}
	return answer{body: map[string]any{
		"schemas": []string{urnList}, "totalResults": total, "startIndex": start + 1, "itemsPerPage": len(page), "Resources": page,
	}}
}

// list returns one page of the entries of a type that match the filter, or of all entries if there
// is no filter. find returns the entries that match all terms of the filter.
func (c *call) list(urn string, t *userdb.Type, s listParams, find func([]term) ([]userdb.Entry, error), toResource func(listParams, userdb.Entry) (resource, error)) (answer, error) {
	if err := c.meter.Reserve(c.ctx); err != nil {
		return answer{}, err
	}
	start, count := s.window()
	var page []userdb.Entry
	var total int64
	if s.Filter != nil {
		all, err := parseFilter(urn, *s.Filter, c.showsSeveral())
		if err != nil {
			return answer{}, err
		}
		found, err := find(all)
		if err != nil {
			return answer{}, err
		}
		total = int64(len(found))
		page = found[min(start, total):min(start+count, total)]
	} else {
		var err error
		if page, total, err = c.page(t, start, count); err != nil {
			return answer{}, err
		}
	}
	var out []resource
	for _, e := range page {
		one, err := toResource(s, e)
		if errors.Is(err, errTooManyMembers) && len(out) > 0 {
			break // the next page begins with this group
		}
		if err != nil {
			return answer{}, err
		}
		out = append(out, s.project(urn, one))
	}
	return listResponse(s, total, out), nil
}

// dedupe returns the entries sorted by UID, without duplicates.
func dedupe(all []userdb.Entry) []userdb.Entry {
	slices.SortFunc(all, func(a, b userdb.Entry) int { return strings.Compare(a.UID(), b.UID()) })
	return slices.CompactFunc(all, func(a, b userdb.Entry) bool { return a.UID() == b.UID() })
}

// maxDecoded limits about how many bytes a body may take when it is decoded. A list of members fits
// as long as the body is not too large.
const maxDecoded = 20 << 20

// decodeBody decodes the JSON body of a request. It refuses objects with two members whose names
// differ only in case, because they name the same attribute.
func (c *call) decodeBody(to any) error {
	if given := c.r.Header.Get("Content-Type"); given != "" {
		media, _, err := mime.ParseMediaType(given)
		if err != nil || media != mediaType && media != "application/json" {
			return &Error{http.StatusUnsupportedMediaType, "", "the body must be " + mediaType}
		}
	}
	text, err := io.ReadAll(c.r.Body)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return &Error{http.StatusRequestEntityTooLarge, "", "the body is too large"}
	}
	if err != nil {
		return badRequest(invalidSyntax, "the body is incomplete")
	}
	c.r.Body = io.NopCloser(bytes.NewReader(text)) // Serve may repeat the operation
	if strictjson.DecodedSize(text) > maxDecoded {
		return badRequest(invalidSyntax, "the body has too many values")
	}
	if first := strings.TrimLeft(string(text), " \t\r\n"); !strings.HasPrefix(first, "{") || !strictjson.ValidUnicode(text) || json.Unmarshal(text, to) != nil {
		return badRequest(invalidSyntax, "the body is not a JSON object of the expected form")
	}
	if strictjson.HasDuplicateNamesFold(text) {
		return badRequest(invalidSyntax, "a member appears twice; the case of names makes no difference")
	}
	return nil
}
