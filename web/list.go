package web

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// maxList is the largest number of entries that ListQuery lets a visitor ask for.
const maxList = 100

// ListQuery returns the query that the parameters of a request describe, for a page that lists
// entries of a type: order, which names an ordered field or, after a "-", lists from the greatest
// down; prefix, after, before and limit, as in userdb.Query; tag, which may be repeated; names of
// fields with a value; and names of sets with a member, which may be repeated. allowed lists the
// fields and sets that visitors may use, and the word tag if they may use that. Other fields are
// ignored, so that no visitor finds people by private ones. Empty values are also ignored. The
// query reads a bounded number of entries.
func ListQuery(r *http.Request, users *userdb.Type, allowed ...string) (userdb.Query, error) {
	params := r.URL.Query()
	q := userdb.Query{After: params.Get("after"), Before: params.Get("before"), Limit: 20, MaxRead: 10_000}
	if n, err := strconv.Atoi(params.Get("limit")); err == nil && n > 0 {
		q.Limit = min(n, maxList)
	}
	if order, reverse := strings.CutPrefix(params.Get("order"), "-"); slices.Contains(allowed, order) {
		q.Order, q.Reverse = order, reverse
		q.Prefix = strings.ToLower(strings.TrimSpace(params.Get("prefix")))
	}
	var wrong []error
	for _, name := range allowed {
		values := slices.DeleteFunc(params[name], func(value string) bool { return value == "" })
		switch {
		case len(values) == 0:
		case name == "tag":
			q.Tags = values
		case users.Schema().Tertiary[name].Kind == "set":
			if q.Has == nil {
				q.Has = map[string][]string{}
			}
			q.Has[name] = values
		default:
			value, err := schema.Decode(users.Schema().Fields[name].Codec, values[0])
			if err != nil {
				wrong = append(wrong, notRead("codec", name, "not a value of the field"))
				continue
			}
			if q.Where == nil {
				q.Where = schema.Facets{}
			}
			q.Where[name] = value
		}
	}
	return q, errors.Join(wrong...)
}

// PageLinks returns the paths of the pages before and after the page that a query of ListQuery
// found, with the other parameters of the request. before and after are Prev and Next of the
// userdb.Page or userdb.PageOf. A path is "" if there is no such page.
func PageLinks(r *http.Request, before, after string) (prev, next string) {
	link := func(name, cursor string) string {
		if cursor == "" {
			return ""
		}
		params := r.URL.Query()
		params.Del("after")
		params.Del("before")
		params.Set(name, cursor)
		return r.URL.Path + "?" + params.Encode()
	}
	return link("before", before), link("after", after)
}

// EnsureTagged gives a tag to the entry that has a value in a field, such as the first
// administrator when a program starts. If the field holds mail addresses, the address must be
// verified, so that nobody becomes administrator by typing somebody's address. It reports whether
// there is such an entry.
func EnsureTagged(ctx context.Context, users *userdb.Type, field, value, tag string) (bool, error) {
	e, err := users.Find(ctx, hints.Field(field, value))
	switch {
	case errors.Is(err, userdb.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case users.Schema().Fields[field].HasAddresses() && !verifiedAddress(users, e, field, value):
		return false, nil
	}
	_, err = users.Tags(hints.Key(e.Key())).Add(ctx, tag)
	return err == nil, err
}

// EnsureTagged gives a tag, such as that of administrators, to the account that has verified an
// address. If nobody has, it mails an invitation to the address, with the tag as its value: New
// finds it in Invitation.Value. Call it when the program starts and after Register: on a new store
// nobody else can invite the first administrator. If an account has the address but has not
// verified it, the mail says that it has an account. The mail is in the first of Languages.
// EnsureTagged sends at most three mails in an hour. To invite, it needs SignUp and Paths.Welcome.
func (f *Flows) EnsureTagged(ctx context.Context, address, tag string) error {
	found, err := EnsureTagged(ctx, f.Users, f.Address, address, tag)
	if err != nil || found {
		return err
	}
	if err := f.canInvite(); err != nil {
		return err
	}
	if len(f.Languages) > 0 {
		ctx = context.WithValue(ctx, languageKey{}, f.Languages[0])
	}
	slots, err := f.Mail.reserve(1)
	if err != nil {
		return err
	}
	defer slots.leave(ctx)
	i, err := f.Users.Invite(ctx, f.Address, address, userdb.Token{Lifetime: invitationLifetime, Value: tag}, userdb.Attempt{})
	switch {
	case err == nil:
		f.mailInvitation(ctx, slots, i, MailInvited)
	case errors.Is(err, userdb.ErrTooManyAttempts):
		return nil
	}
	return err
}

// verifiedAddress reports whether an entry has verified an address, in any spelling.
func verifiedAddress(users *userdb.Type, e userdb.Entry, field, value string) bool {
	wanted, _ := users.Schema().Identifier(value)
	return slices.ContainsFunc(e.Texts(field), func(text string) bool {
		same, _ := users.Schema().Identifier(text)
		return same == wanted && e.VerifiedText(field, text)
	})
}
