package scim

import (
	"errors"

	"github.com/coffeenode/userdb/userdb"
)

// Limits of one request. Tests lower them.
var (
	maxFound   = 1000   // entries that a filter selects
	maxMembers = 50_000 // members in the response

	// maxBytes limits the size of the entries and members kept for the response. The last read may
	// exceed it.
	maxBytes = 8 << 20

	// stepBytes is the size of entries at which one step of a listing ends. It does not depend on
	// earlier reads of the request, because a repeated step must read the same entries.
	stepBytes = 4 << 20
)

// A usage counts the entries and members that a request keeps for its response.
type usage struct{ entries, bytes, members, memberBytes int }

// add counts entries.
func (u *usage) add(all []userdb.Entry) {
	u.entries += len(all)
	for _, e := range all {
		for field, v := range e.Facets() {
			u.bytes += len(field) + len(v.Wire())
		}
		for field, texts := range e.Values() {
			for _, text := range texts[1:] { // the first is the facet
				u.bytes += len(field) + len(text)
			}
		}
	}
}

// memberOverhead is the size of a member besides its texts.
const memberOverhead = 48

// withMembers returns u with members counted.
func (u usage) withMembers(members []member) usage {
	u.members += len(members)
	for _, m := range members {
		u.memberBytes += memberOverhead + len(m.Value) + len(m.Ref)
	}
	return u
}

// tooManyMembers reports whether the response has too many members.
func (u usage) tooManyMembers() bool { return u.members > maxMembers || u.memberBytes > maxBytes }

var (
	errTooManyFound   = badRequest(tooMany, "the filter selects more than one request may read")
	errTooManyMembers = badRequest(tooMany, "the group has more members than one response may list; use excludedAttributes=members")
)

// collect returns all entries that a query selects, except damaged ones. It returns errTooManyFound
// if the request would exceed its limits.
func (c *call) collect(t *userdb.Type, q userdb.Query) (all []userdb.Entry, err error) {
	q.Limit, q.MaxBytes = maxCount, stepBytes
	for {
		p, err := t.Page(c.ctx, q)
		switch {
		case err == nil || errors.Is(err, userdb.ErrCorrupt):
		case isAbsent(err):
			return all, nil
		default:
			return nil, err
		}
		if all, err = c.keep(all, p.Entries...); err != nil || p.Next == "" {
			return all, err
		}
		q.After = p.Next
	}
}

// collectUsers returns what collect returns for the users, read by indexes that the stored schema
// has.
func (c *call) collectUsers(q userdb.Query) (all []userdb.Entry, err error) {
	err = c.underStoredSchema(func() (err error) {
		all, err = c.collect(c.users, q)
		return err
	})
	return all, err
}

// keep counts some entries that a filter has selected, and appends them to all. It returns
// errTooManyFound if the request would exceed its limits.
func (c *call) keep(all []userdb.Entry, some ...userdb.Entry) ([]userdb.Entry, error) {
	if c.used.add(some); c.used.entries > maxFound || c.used.bytes > maxBytes {
		return nil, errTooManyFound
	}
	return append(all, some...), nil
}
