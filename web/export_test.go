package web

import (
	"net/url"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// PageOf returns a page of a visitor whose entries are declared as in t.
func PageOf(me userdb.Entry, t schema.Type, form url.Values) Page {
	return Page{Me: me, Form: form, declared: t.Fields}
}
