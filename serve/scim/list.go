package scim

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/coffeenode/userdb/internal/jsonline"
	"github.com/coffeenode/userdb/userdb"
)

const (
	usualCount = 100
	mostCount  = 200

	mostAttributes = 1000 // that a body names: each is compared for each attribute of each resource
)

// resource is one as JSON.
type resource = map[string]any

// meta is what every resource tells about itself.
func (c *call) meta(kind string, e userdb.Entry) map[string]any {
	m := map[string]any{"resourceType": kind, "location": c.url(kind+"s", e.UID())}
	if added, has := e.Get(addedField); has {
		m["created"] = added
	}
	return m
}

// told answers with one resource, which as makes of an entry.
func (c *call) told(status int, kind string, e userdb.Entry, as func(search, userdb.Entry) (resource, error)) (answer, error) {
	var s search
	s.selected(c)
	out, err := as(s, e)
	if err != nil && c.r.Method != http.MethodGet {
		err = partly(err)
	}
	if err != nil {
		return answer{}, err
	}
	return answer{status: status, location: c.url(kind+"s", e.UID()), body: s.only(urnCore+kind, out)}, nil
}

// A search is what a listing asks for.
type search struct {
	Filter                         *string
	StartIndex                     *int64
	Count                          *int64
	Attributes, ExcludedAttributes []string
}

// search reads what a listing asks for, from the query or from the body.
func (c *call) search() (s search, err error) {
	if c.r.Method == http.MethodPost {
		if err := c.body(&s); err != nil || len(s.Attributes)+len(s.ExcludedAttributes) <= mostAttributes {
			return s, err
		}
		return s, refuse(invalidValue, "there are more than %d attributes", mostAttributes)
	}
	for _, of := range []struct {
		name string
		to   **int64
	}{{"startindex", &s.StartIndex}, {"count", &s.Count}} {
		if given := c.query[of.name]; len(given) > 0 {
			n, err := strconv.ParseInt(given[0], 10, 64)
			if err != nil || len(given) > 1 {
				return s, refuse(invalidValue, "startIndex and count are numbers")
			}
			*of.to = &n
		}
	}
	if given := c.query["filter"]; len(given) > 0 {
		if len(given) > 1 {
			return s, refuse(invalidFilter, "there are two filters")
		}
		s.Filter = &given[0]
	}
	s.selected(c)
	return s, nil
}

// selected reads which attributes are wanted.
func (s *search) selected(c *call) {
	for _, of := range []struct {
		name string
		to   *[]string
	}{{"attributes", &s.Attributes}, {"excludedattributes", &s.ExcludedAttributes}} {
		for _, list := range c.query[of.name] {
			*of.to = append(*of.to, strings.Split(list, ",")...)
		}
	}
}

// wants reports whether an attribute is wanted.
func (s search) wants(urn, name string) bool {
	is := func(given string) bool {
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
		return slices.ContainsFunc(s.Attributes, is)
	}
	return !slices.ContainsFunc(s.ExcludedAttributes, func(given string) bool {
		return is(given) && !strings.Contains(given[strings.LastIndex(given, ":")+1:], ".")
	})
}

// only is a resource with what is wanted of it.
func (s search) only(urn string, all resource) resource {
	for name := range all {
		if !s.wants(urn, name) {
			delete(all, name)
		}
	}
	return all
}

// window is where a page begins, from 0, and how many resources it has at most.
func (s search) window() (start, count int64) {
	count = usualCount
	if s.StartIndex != nil {
		start = min(max(*s.StartIndex, 1), math.MaxInt32) - 1
	}
	if s.Count != nil {
		count = min(max(*s.Count, 0), mostCount)
	}
	return start, count
}

// listed is a page of resources.
func listed(s search, total int64, page []resource) answer {
	start, _ := s.window()
	if page == nil {
		page = []resource{}
	}
	return answer{body: map[string]any{
		"schemas": []string{urnList}, "totalResults": total, "startIndex": start + 1, "itemsPerPage": len(page), "Resources": page,
	}}
}

// list answers with the entries of a type that a filter selects, or with all. find looks for those that may be selected; each is
// asked again for all of the terms.
func (c *call) list(urn string, t *userdb.Type, s search, find func([]term) ([]userdb.Entry, error), as func(search, userdb.Entry) (resource, error)) (answer, error) {
	start, count := s.window()
	var page []userdb.Entry
	var total int64
	if s.Filter != nil {
		all, err := parseFilter(urn, *s.Filter)
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
		one, err := as(s, e)
		if err != nil {
			return answer{}, err
		}
		out = append(out, s.only(urn, one))
	}
	return listed(s, total, out), nil
}

// distinct are entries, each once, by their UIDs.
func distinct(all []userdb.Entry) []userdb.Entry {
	slices.SortFunc(all, func(a, b userdb.Entry) int { return strings.Compare(a.UID(), b.UID()) })
	return slices.CompactFunc(all, func(a, b userdb.Entry) bool { return a.UID() == b.UID() })
}

// body reads the JSON of a request.
func (c *call) body(to any) error {
	if given := c.r.Header.Get("Content-Type"); given != "" {
		media, _, err := mime.ParseMediaType(given)
		if err != nil || media != mediaType && media != "application/json" {
			return &Error{http.StatusUnsupportedMediaType, "", "the body is not " + mediaType}
		}
	}
	text, err := io.ReadAll(c.r.Body)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return &Error{http.StatusRequestEntityTooLarge, "", "the body is too large"}
	}
	if err != nil {
		return refuse(invalidSyntax, "the body broke off")
	}
	if first := strings.TrimLeft(string(text), " \t\r\n"); !strings.HasPrefix(first, "{") || !jsonline.Whole(text) || json.Unmarshal(text, to) != nil || jsonline.Twice(text) {
		return refuse(invalidSyntax, "the body is not a JSON object of the form that is wanted here")
	}
	return nil
}
