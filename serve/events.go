package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// An Event describes something that was done in the store. It names the fields that it affected,
// but not their values.
type Event struct {
	ID      string   `json:"id,omitempty" doc:"unique in the feed; absent in a history"`
	Kind    string   `json:"kind"`
	At      string   `json:"at" format:"date-time"`
	Who     string   `json:"who" example:"key:web" doc:"key:NAME, operator:NAME, command or library"`
	UID     string   `json:"uid,omitempty" doc:"absent if no entry has the identifier"`
	Type    string   `json:"type,omitempty"`
	Fields  []string `json:"fields,omitempty" doc:"names of fields; the last one is … if there are more"`
	Purpose string   `json:"purpose,omitempty" doc:"the purpose of a token, or the name of what an operator changed"`
	Origin  string   `json:"origin,omitempty"`
}

// NewEvent returns an event in the form in which the service sends it.
func NewEvent(e userdb.HistoryEvent) Event {
	out := Event{ID: e.ID, Kind: string(e.Kind), Who: e.Actor, At: e.Time.UTC().Format("2006-01-02T15:04:05.000Z"), Fields: e.Fields, Purpose: e.Purpose, Origin: e.Origin}
	if e.Key.IsValid() {
		out.UID, out.Type = e.Key.Value(), e.Key.Type()
	}
	return out
}

const eventStream = "text/event-stream"

func (s *Service) registerEvents(mux *http.ServeMux) {
	handleType(s, route{id: "history", method: "GET", path: typePrefix + "/entries/{uid}/history", scopes: []string{admin.ScopeRead}, summary: "Get the history of an entry, latest first"}, getHistory)
	listen := route{id: "events", method: "GET", path: "/v1/events", scopes: []string{admin.ScopeAdmin}, summary: "Get events, oldest first; as " + eventStream + ", new events follow as they happen"}
	s.handleStream(mux, listen, listEvents,
		&huma.Param{Name: "after", In: "query", Description: "next from an earlier page, or end to skip all events so far", Schema: &huma.Schema{Type: "string"}},
		&huma.Param{Name: "kind", In: "query", Explode: ptr(true), Description: "only events of these kinds", Schema: &huma.Schema{Type: "array", Items: &huma.Schema{Type: "string", Enum: toAny(view.Kinds)}}},
		&huma.Param{Name: "limit", In: "query", Schema: &huma.Schema{Type: "integer", Minimum: ptr(1.0), Maximum: ptr(1000.0), Default: 100}},
		&huma.Param{Name: "Last-Event-ID", In: "header", Description: "the ID of the last event received; takes the place of after", Schema: &huma.Schema{Type: "string"}})
	op := s.api.OpenAPI().Paths["/v1/events"].Get
	op.Responses["200"] = &huma.Response{Description: "A page, or a stream.", Content: map[string]*huma.MediaType{
		"application/json": {Schema: s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[eventsPage](), true, "EventsPage")},
		eventStream:        {},
	}}
}

// toAny converts texts to the values of [huma.Schema.Enum].
func toAny[T ~string](texts []T) (all []any) {
	for _, text := range texts {
		all = append(all, string(text))
	}
	return all
}

type historyOutput struct {
	Body struct {
		Events []Event `json:"events"`
	}
}

func getHistory(ctx context.Context, c *call, t *userdb.Type, in *EntryPath) (*historyOutput, error) {
	all, err := t.History(ctx, in.hint())
	if err != nil && !errors.Is(err, userdb.ErrNoHistory) {
		return nil, asNotFound(err)
	}
	out := &historyOutput{}
	out.Body.Events = make([]Event, len(all))
	for i, e := range all {
		out.Body.Events[i] = NewEvent(e)
	}
	return out, nil
}

// An eventsPage holds a part of the feed.
type eventsPage struct {
	Events []Event `json:"events"`
	Next   string  `json:"next" doc:"after= for the events that follow, even if there are none yet"`
	Gap    bool    `json:"gap,omitempty" doc:"events around the position in after are missing, because they were trimmed or lost in a failover"`
}

// listEvents responds with a page of the feed, or with a stream if the request asks for one.
func listEvents(c *call, w http.ResponseWriter) error {
	q, streams, err := parseEventQuery(c.request)
	if err != nil {
		return err
	}
	if streams {
		return c.streamEvents(w, q)
	}
	ctx, cancel := withStoreTimeout(c.request.Context())
	defer cancel()
	if err := c.response.Reserve(ctx); err != nil {
		return err
	}
	page, err := c.db.Events(ctx, q)
	if err != nil {
		return queryError(err)
	}
	out := eventsPage{Events: []Event{}, Next: page.Next, Gap: page.Gap}
	for _, e := range page.Events {
		if c.mayReturn(e, nil) {
			out.Events = append(out.Events, NewEvent(e))
		}
	}
	if err := c.response.Charge(out); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // the client may have gone
	return nil
}

// parseEventQuery returns the query in a request for events, and whether it asks for a stream.
func parseEventQuery(r *http.Request) (q userdb.EventQuery, streams bool, err error) {
	values, wrong := parseQuery(r, "after", "kind", "limit")
	q = userdb.EventQuery{After: values.Get("after"), Limit: 100}
	for _, kind := range values["kind"] {
		q.Kinds = append(q.Kinds, userdb.EventKind(kind))
		if !slices.Contains(view.Kinds, userdb.EventKind(kind)) {
			wrong = append(wrong, paramProblem("kind", "want one of %s", view.KindList()))
		}
	}
	if text := values.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > 1000 {
			wrong = append(wrong, paramProblem("limit", "want 1 to 1000"))
		}
	}
	if err := queryProblem(wrong); err != nil {
		return q, false, err
	}
	streams = r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), eventStream)
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		q.After = last
	}
	// An empty position means the beginning of the feed. But a stream for which the client gave no
	// position starts at the end.
	if _, again := r.Header["Last-Event-Id"]; streams && q.After == "" && !again && !values.Has("after") {
		q.After = userdb.EventsEnd
	}
	return q, streams, nil
}

// mayReturn reports whether an event is of one of kinds and the key may see it. No kinds means all
// of them.
func (c *call) mayReturn(e userdb.HistoryEvent, kinds []userdb.EventKind) bool {
	if len(kinds) > 0 && !slices.Contains(kinds, e.Kind) {
		return false
	}
	if !e.Key.IsValid() {
		return len(c.key.Types) == 0
	}
	return c.key.CanSee(e.Key.Type())
}

// pingInterval is the time between two pings, which a stream sends even if there are no events.
// keyCheckInterval is the time between two checks of the key of a stream. A stream ends within
// keyCheckInterval and admin.KeyMaxAge, together less than five seconds, after its key was revoked.
var (
	pingInterval     = 15 * time.Second
	keyCheckInterval = 500 * time.Millisecond
)

// streamEvents responds with the events since a position, and then with new events as they happen,
// until the client disconnects or is too slow, its key is revoked, or the service shuts down.
func (c *call) streamEvents(w http.ResponseWriter, q userdb.EventQuery) error {
	ctx := c.request.Context()
	releaseSlot, err := c.service.budgets.listeners.takeSlot(c.key.Name)
	if err != nil {
		return err
	}
	defer releaseSlot()
	endCatchUp, catchesUp := func() {}, q.After != userdb.EventsEnd
	if catchesUp {
		if endCatchUp, err = c.beginCatchUp(); err != nil {
			return err
		}
		defer endCatchUp()
	}
	f, leave, err := c.service.subscribe(ctx, c.db)
	if err != nil {
		return err
	}
	defer leave()
	c.leave() // the request may go on for days
	out := &listener{c: c, w: w, kinds: q.Kinds, control: http.NewResponseController(w), feed: f, received: map[string]bool{}}
	part, from := f.tail()
	q.Kinds, q.Limit, q.Until = nil, catchUpEvents, from
	var page userdb.EventPage
	if catchesUp {
		if page, err = out.readFirst(ctx, q); err != nil {
			return err
		}
	}
	w.Header().Set("Content-Type", eventStream)
	w.WriteHeader(http.StatusOK)
	if part = out.catchUp(ctx, q, page, part); part == nil {
		return nil
	}
	endCatchUp()
	out.follow(ctx, part)
	return nil
}

// catchUpEvents is how many events a listener receives at a time until it has caught up with the
// feed of the process.
const catchUpEvents = 200

// beginCatchUp takes a slot among the listeners that read the feed for themselves. end gives back
// the slot and the memory of the pages that were read.
func (c *call) beginCatchUp() (end func(), err error) {
	quota, client := c.service.budgets.catchUps, c.key.Name
	if err := quota.wait(c.request.Context(), client, 1); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { quota.give(client, 1); c.response.release() }), nil
}

// readEvents reads a page of the feed. It takes memory for the page until c.response is released.
func (c *call) readEvents(ctx context.Context, q userdb.EventQuery) (userdb.EventPage, error) {
	if err := c.response.Reserve(ctx); err != nil {
		return userdb.EventPage{}, err
	}
	page, err := c.db.Events(ctx, q)
	if err == nil {
		err = c.response.Charge(page)
	}
	return page, err
}

// A listener is a client that receives a stream of events.
type listener struct {
	c        *call
	w        http.ResponseWriter
	kinds    []userdb.EventKind
	control  *http.ResponseController
	feed     *feed
	received map[string]bool // IDs of events that the client has received already
}

// readFirst reads the first events since q.After, before the response begins, so that it can still
// report an invalid position. q.Until is where the feed of this process begins.
func (l *listener) readFirst(ctx context.Context, q userdb.EventQuery) (userdb.EventPage, error) {
	page, err := l.c.readEvents(ctx, q)
	if err != nil {
		return page, queryError(err)
	}
	if q.Until == "" {
		// The store had no events when this process began to read, so nothing limited the page. The
		// first part of l.feed has the events.
		page.Events, page.Next = nil, ""
	}
	at := q.After
	if page.Gap { // the position is lost, so only the page counts as received
		at = page.Next
	}
	return page, l.markReceived(ctx, q.Until, at)
}

// catchUp sends page, which was read with q, and then the events up to a part of the feed, which it
// returns. It returns nil if the client has gone.
func (l *listener) catchUp(ctx context.Context, q userdb.EventQuery, page userdb.EventPage, part *feedPart) *feedPart {
	for {
		if l.send(page, encodeFrames(page)) != nil {
			return nil
		}
		l.c.response.release()
		if len(page.Events) == 0 {
			return part
		}
		q.After = page.Next
		part, q.Until = l.feed.keepUp(part, q.Until)
		var err error
		if page, err = l.c.readEvents(ctx, q); err != nil {
			infoOf(ctx).err = err       // for the log
			panic(http.ErrAbortHandler) // the client reconnects with the last ID that it received
		}
	}
}

// markReceived records the events from position from up to position after. The client has received
// them from another process, but this process, whose feed is at from, has yet to read them.
func (l *listener) markReceived(ctx context.Context, from, after string) error {
	q := userdb.EventQuery{After: from, Until: after, Limit: catchUpEvents}
	for after != "" {
		page, err := l.c.db.Events(ctx, q)
		if err != nil || len(page.Events) == 0 {
			return err
		}
		for _, e := range page.Events {
			l.received[e.ID] = true
		}
		q.After = page.Next
	}
	return nil
}

// follow sends each part of the feed, beginning with part, as soon as it has been read.
func (l *listener) follow(ctx context.Context, part *feedPart) {
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-l.c.service.closing:
			return
		case <-l.c.valid.Done():
			return
		case <-ping.C:
			err = l.write([]byte(": ping\n\n"))
		case <-part.ready:
			if last, _ := l.feed.tail(); part.next == nil || last.number-part.number > maxLag {
				// The feed has ended, or the client is too slow. The client reconnects with its
				// last ID.
				return
			}
			err = l.send(part.page, part.frames)
			part = part.next
		}
		if err != nil {
			return
		}
	}
}

// encodeFrames encodes the events of a page for an event stream.
func encodeFrames(page userdb.EventPage) [][]byte {
	all := make([][]byte, len(page.Events))
	for i, e := range page.Events {
		data, _ := json.Marshal(NewEvent(e)) // cannot fail, because it holds only text
		all[i] = fmt.Appendf(nil, "id: %s\nevent: %s\ndata: %s\n\n", e.Next, e.Kind, data)
	}
	return all
}

// maxFrames is about how many bytes of events a listener writes at a time. While its client does
// not receive them, it keeps no more than these.
const maxFrames = 64 << 10

// maxPageTime is how long a client may take to receive a page of events. Tests lower it.
var maxPageTime = stallTimeout

var errSlowListener = errors.New("the client receives events too slowly")

// send writes a page. A client that loses the connection meanwhile, or is too slow, resumes after
// the last ID that it received.
func (l *listener) send(page userdb.EventPage, frames [][]byte) error {
	var b bytes.Buffer
	sent, began := false, time.Now()
	if page.Gap {
		if len(page.Events) == 0 && page.Next != "" { // otherwise the ID of an event follows
			fmt.Fprintf(&b, "id: %s\n", page.Next)
		}
		b.WriteString("event: gap\ndata: {}\n\n")
	}
	for i, e := range page.Events {
		if l.c.mayReturn(e, l.kinds) && !l.received[e.ID] {
			b.Write(frames[i])
		}
		if b.Len() >= maxFrames {
			if err := l.write(b.Bytes()); err != nil {
				return err
			}
			if time.Since(began) >= maxPageTime {
				return errSlowListener
			}
			b.Reset()
			sent = true
		}
	}
	if b.Len() == 0 && sent {
		return nil
	}
	if b.Len() == 0 && len(page.Events) > 0 {
		fmt.Fprintf(&b, "id: %s\n\n", page.Next) // only the new position
	}
	return l.write(b.Bytes())
}

func (l *listener) write(text []byte) error {
	if _, err := l.w.Write(text); err != nil {
		return err
	}
	return l.control.Flush()
}
