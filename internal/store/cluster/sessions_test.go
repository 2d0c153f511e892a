package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/internal/store/session"
)

const (
	sessionsOfA  = "~/session/{user/uid:A}"
	acknowledged = "~/acknowledged" // has a field for each session whose end was acknowledged
)

// epochNamed returns an epoch that begins with the name of the verb or session that set it.
func epochNamed(by string) string { return (by + "____________")[:store.RevLen] }

// withEpoch returns a start in which A had sessions before.
func withEpoch(start func() map[string]*cell) func() map[string]*cell {
	return func() map[string]*cell {
		cells := start()
		cells["user/uid:A"].hash[session.FieldEpoch] = epochNamed("E")
		return cells
	}
}

// sessionStart returns a request for a session, by a login that saw these fields. The session's
// origin is the job that the entry had then, which every verb that ends all sessions changes.
func sessionStart(id string, seen map[string]string) session.Start {
	prk, _ := people.PRK("A")
	return session.Start{
		PRK: prk, Seen: store.Record{Fields: seen}.ForSessions(), FirstEpoch: "-" + epochNamed(id)[1:], ID: id, Life: time.Hour, Idle: time.Hour, Origin: seen["job"],
	}
}

// logIn returns a verb that reads the entry and starts a session, which are the last steps of a
// login.
func logIn(id string) verb {
	return verb{name: "log in " + id, do: func(ctx context.Context, a *actor) error {
		prk, _ := people.PRK("A")
		found, err := a.engine.Find(ctx, []store.Lookup{{PRK: prk}})
		if err == nil {
			err = found[0].Err
		}
		if err == nil && found[0].Record.Fields[store.FieldDisabled] != "" {
			err = store.ErrNotFound
		}
		if err == nil {
			start := sessionStart(id, found[0].Record.Fields)
			start.Note = a.line("session_start")
			_, err = a.engine.StartSession(ctx, start)
		}
		return err
	}}
}

// lateStart returns a verb that sends the scripts of a session start as if they arrived late. They
// belong to a login that read the entry before all other verbs began.
func lateStart(id string, seen map[string]string) verb {
	return verb{name: "late start " + id, do: func(ctx context.Context, a *actor) error {
		s := sessionStart(id, seen)
		if _, err := a.engine.StartSession(ctx, s); err == nil {
			return nil
		}
		generation := store.Record{Fields: seen}.ForSessions().Generation()
		if seen[session.FieldEpoch] == "" {
			generation = session.Entry{Epoch: s.FirstEpoch}.Generation()
		}
		_, _, err := a.engine.run(ctx, onekey.SessionScript, []string{sessionsOfA}, "begin", "", s.ID, generation,
			"3600000", "3600000", s.Origin, "", "100", "")
		return err
	}}
}

// endSession returns a verb that ends a session and acknowledges it.
func endSession(id string) verb {
	return verb{name: "end " + id, do: func(ctx context.Context, a *actor) error {
		prk, _ := people.PRK("A")
		done, err := a.engine.EndSession(ctx, prk, id, a.line("session_end"), time.Time{})
		if err == nil && done {
			_, err = a.engine.do(ctx, redisx.IsNumber, "hset", acknowledged, id, "1")
		}
		return err
	}}
}

// endAllSessions returns a verb that ends all sessions by a change, and clears the record of
// earlier ones. own holds further fields to set.
func endAllSessions(name string, own map[string]string) verb {
	return verb{name: name, do: func(ctx context.Context, a *actor) error {
		before := ""
		err := rewriteEntry(ctx, a, "A", func(r store.Record) (store.Change, bool, error) {
			before = r.ForSessions().Generation()
			facets := change.Facets(r)
			facets["job"] = name
			set := map[string]string{session.FieldEpoch: epochNamed(name)}
			for field, text := range own {
				set[field] = text
			}
			return people.Update(r, facets, set)
		})
		if err == nil {
			prk, _ := people.PRK("A")
			_ = a.engine.ClearSessions(ctx, prk, before, time.Time{})
		}
		return err
	}}
}

// checkSessions returns what is wrong with the sessions of A at this moment, or "".
func (s *simulation) checkSessions() string {
	e, sessions, acked := s.recordOf("user/uid:A"), s.world.at(sessionsOfA), s.world.at(acknowledged)
	for _, id := range sessions.names() {
		text, _ := sessions.field(id).(string)
		words := strings.Split(text, " ")
		// A session has eight words, of which words[5] is its generation and words[6] its origin.
		if len(words) != 8 || !e.Live() || !(session.Session{Generation: words[5]}).ValidFor(e.ForSessions()) {
			continue
		}
		if job := e.Fields["job"]; words[6] != job {
			return fmt.Sprintf("sessions: one from the time of job=%s is valid in that of job=%s", words[6], job)
		}
		if acked.field(id) != nil {
			return "sessions: one is valid after its end"
		}
	}
	return ""
}

// sessionScenarios returns scenarios in which sessions begin and end. In those named "first", the
// entry has had no session before.
func sessionScenarios() []scenario {
	withoutSessions := entries(someRev, "A email=a job=old")
	hadSessions := withEpoch(withoutSessions)
	seen := func(start func() map[string]*cell) map[string]string { return start()["user/uid:A"].hash }
	end, password := endAllSessions("end", nil), endAllSessions("set", map[string]string{store.FieldChanged: "later"})
	disabled, enabled := endAllSessions("disable", map[string]string{store.FieldDisabled: "now"}), endAllSessions("enable", map[string]string{store.FieldDisabled: ""})
	recreate := sequence(remove("A"), create("A", "email=n job=new"))
	var all []scenario
	for i, start := range []func() map[string]*cell{withoutSessions, hadSessions} {
		name := []string{"first", "another"}[i]
		for _, s := range []struct {
			name        string
			left, right []verb
		}{
			{"log in | end all", sequence(logIn("h1")), sequence(end)},
			{"log in | set password", sequence(logIn("h1")), sequence(password)},
			{"log in | disable, enable", sequence(logIn("h1")), sequence(disabled, enabled)},
			{"log in | delete, create", sequence(logIn("h1")), recreate},
			{"log in | log in", sequence(logIn("h1")), sequence(logIn("h2"))},
			{"log in, end | late start", sequence(logIn("h1"), endSession("h1")), sequence(lateStart("h1", seen(start)))},
			{"log in, end all | late start", sequence(logIn("h1"), end), sequence(lateStart("h1", seen(start)))},
			{"log in | end all, log in", sequence(logIn("h1")), sequence(end, logIn("h2"))},
			{"late start | delete, create, log in", sequence(lateStart("h1", seen(start))), append(recreate[:2:2], logIn("h2"))},
		} {
			all = append(all, scenario{name: "sessions: " + name + ": " + s.name, start: start, actors: [][]verb{s.left, s.right}})
		}
	}
	return all
}
