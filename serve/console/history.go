package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// eventsPerPage is the number of events on a page.
const eventsPerPage = 50

// A historyPage holds events, the newest first.
type historyPage struct {
	Events []event
	Kinds  []userdb.EventKind // the kinds to choose from
	Kind   userdb.EventKind   // the chosen kind, or "" for all
	Newest string             // path of the newest page
	Older  string             // path of the page with older events, or ""
	Since  string             // position to ask for newer events from; "" unless on the newest page
}

func (c *Console) history(w http.ResponseWriter, r *http.Request) {
	db, err := c.view(r.Context())
	if err != nil {
		c.fail(w, r, err)
		return
	}
	q := userdb.EventQuery{Limit: eventsPerPage, After: r.FormValue("after"), Latest: true}
	kind := userdb.EventKind(r.FormValue("kind"))
	only := url.Values{}
	if slices.Contains(eventKinds, kind) {
		q.Kinds = []userdb.EventKind{kind}
		only.Set("kind", string(kind))
	}
	since := r.FormValue("since")
	if since != "" {
		q.After, q.Latest = since, false
	}
	found, err := db.Events(r.Context(), q)
	if isAny(err, userdb.ErrCursor) {
		http.Redirect(w, r, "/console/history", http.StatusSeeOther)
		return
	}
	if err != nil {
		c.fail(w, r, err)
		return
	}
	p := historyPage{Events: withLabels(r.Context(), db, found.Events), Kinds: eventKinds, Kind: kind, Newest: "/console/history?" + only.Encode()}
	if since != "" {
		slices.Reverse(p.Events)
		p.Since = found.Next
		c.show(w, r, http.StatusOK, page{Name: "news", Data: p})
		return
	}
	if found.Next != "" {
		only.Set("after", found.Next)
		p.Older = "/console/history?" + only.Encode()
	}
	if r.FormValue("after") == "" {
		p.Since = found.End
	}
	c.show(w, r, http.StatusOK, page{Name: "history", Title: "History", Data: p})
}

// eventKinds lists all kinds of events in the order of the form.
var eventKinds = []userdb.EventKind{
	userdb.EventCreate, userdb.EventUpdate, userdb.EventIdentifier, userdb.EventDelete, userdb.EventTags, userdb.EventPassword, userdb.EventDisable, userdb.EventEnable,
	userdb.EventSessionStart, userdb.EventSessionEnd, userdb.EventIssue, userdb.EventRedeem, userdb.EventRelease, userdb.EventFactors, userdb.EventFactorLock, userdb.EventLogin, userdb.EventLoginFailed, userdb.EventThrottle,
	userdb.EventThrottleReset, userdb.EventOperatorLogin, userdb.EventOperatorLoginFailed, userdb.EventOperatorAdd, userdb.EventOperatorDisable, userdb.EventOperatorEnable, userdb.EventOperatorPassword, userdb.EventOperatorLink, userdb.EventOperatorFactor, userdb.EventOperatorNoFactor, userdb.EventOperatorCodes,
	userdb.EventKeyCreate, userdb.EventKeyRevoke, userdb.EventImport, userdb.EventExport, userdb.EventRepair,
}

// labelBatch is the number of accounts that withLabels reads at a time: each may have 1 MiB.
const labelBatch = 16

// withLabels adds the current label of its account to each event. It makes one lookup for each
// type and labelBatch of its accounts.
func withLabels(ctx context.Context, db *userdb.DB, found []userdb.HistoryEvent) []event {
	keys := map[string][]recordkey.Key{}
	for _, e := range found {
		if e.Key.IsValid() && !slices.Contains(keys[e.Key.Type()], e.Key) {
			keys[e.Key.Type()] = append(keys[e.Key.Type()], e.Key)
		}
	}
	labels := map[recordkey.Key]string{}
	for name, some := range keys {
		t, err := db.Type(name)
		if err != nil {
			continue // the schema no longer has the type
		}
		all := make([]hints.Hint, len(some))
		for i, key := range some {
			all[i] = hints.Key(key)
		}
		for batch := range slices.Chunk(all, labelBatch) {
			for e, err := range t.FindAll(ctx, batch...) {
				if err == nil {
					labels[e.Key()] = accountLabel(e, db.Schema().Types[name])
				}
			}
		}
	}
	all := make([]event, len(found))
	for i, e := range found {
		all[i] = event{HistoryEvent: e, Label: labels[e.Key]}
		switch {
		case all[i].Label != "":
			all[i].Path = keyPath(e.Key)
		case e.Key.IsValid(): // the account does not exist any more
			all[i].Label = e.Key.Value()
		case e.Kind.IsOperator():
			all[i].Label = "This store"
		}
	}
	return all
}
