package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A Status is what an operator wants to know of a store first. What could not be learned is left out, and a Warning says why.
type Status struct {
	Store      string            `json:"store"`             // memory, file, redis, sentinel or cluster
	File       string            `json:"file,omitempty"`    // of the store file
	Servers    []Server          `json:"servers,omitempty"` // the masters of a cluster, or the one server
	Types      []TypeStatus      `json:"types"`             // by name
	Namespaces []NamespaceStatus `json:"namespaces"`        // inside the view's, by path; nil: they could not be counted
	Warnings   []Warning         `json:"warnings"`
}

// A Server is what a Redis server tells of itself. What it does not tell, or does not let this user ask (CONFIG GET, as at many
// providers), is "" or nil.
type Server struct {
	Name        string `json:"name"`                            // its address
	Version     string `json:"version,omitempty"`               // "redis 7.0.15", "valkey 8.0.1"
	Role        string `json:"role,omitempty"`                  // master or replica
	Eviction    string `json:"maxmemory_policy,omitempty"`      // noeviction is right
	AppendOnly  string `json:"appendonly,omitempty"`            // yes or no
	AppendFsync string `json:"appendfsync,omitempty"`           // always, everysec or no
	LastAppend  string `json:"last_append,omitempty"`           // how the last write to the append-only file went: ok or err
	Save        string `json:"save,omitempty"`                  // when it makes snapshots, as in "3600 1 300 100", or never
	LastSave    string `json:"last_save,omitempty"`             // how the last snapshot went: ok or err
	MayLose     string `json:"may_lose,omitempty"`              // which acknowledged changes are gone after a crash, in words
	Replicas    *int64 `json:"replicas,omitempty"`              // that are connected
	MinReplicas *int64 `json:"min_replicas_to_write,omitempty"` // that must be connected, or it refuses to write
	Clock       *Clock `json:"clock,omitempty"`
}

// A Clock is how many milliseconds a server's clock is ahead of this program's, give or take Within.
type Clock struct {
	Ahead  float64 `json:"ahead_ms"`
	Within float64 `json:"within_ms"`
}

// A TypeStatus is about one type of the schema in force: the stored one and, of what is not stored, the program's.
type TypeStatus struct {
	Type      string `json:"type"`
	Stored    bool   `json:"stored"`              // false: the first write stores it
	Changing  bool   `json:"changing"`            // a change of it was begun, and not finished
	Fields    int    `json:"fields"`              // that are declared, besides the primary one
	Canonical string `json:"canonical,omitempty"` // version of the canonical form of identifiers; "" under the fold exact
	Entries   *int64 `json:"entries,omitempty"`   // as userdb.Type.Count counts them; nil: they could not be counted
}

// A NamespaceStatus counts what is in a namespace itself, without those inside it.
type NamespaceStatus struct {
	Namespace string `json:"namespace"` // relative to the view's
	Entries   int64  `json:"entries"`
	Records   int64  `json:"records"`
}

// A Warning says what is wrong, what may be lost by it, and what mends it. Codes: evicts, replica, not_persistent, save_failed,
// append_failed, clocks, schema, schema_change, not_learned.
type Warning struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// StatusOf asks the servers of a store about themselves, and counts what is in the view. It goes over all records once for each
// type and once for namespaces; progress, which may be nil, is told how many times of how many it has. An error is about a
// store that does not answer; what it refuses to tell is left out.
func StatusOf(ctx context.Context, db *userdb.DB, progress func(done, about int64)) (Status, error) {
	survey, err := view.Of(db).Engine.Survey(ctx, true)
	if err != nil {
		return Status{}, err
	}
	st := Status{Store: survey.Store, File: survey.File, Types: []TypeStatus{}, Warnings: []Warning{}}
	st.Servers = records.Map(survey.Servers, newServer)
	for _, w := range store.Warnings(survey.Servers) {
		st.warn(w.Code, w.Text)
	}
	inForce, err := st.loadTypes(ctx, db)
	if err != nil {
		return st, err
	}
	done, about := int64(0), int64(len(st.Types)+1)
	step := func() {
		if progress != nil {
			progress(done, about)
		}
		done++
	}
	for i := range st.Types {
		step()
		if err := st.countEntries(ctx, db, &st.Types[i], inForce[st.Types[i].Type]); err != nil {
			return st, err
		}
	}
	step()
	return st, st.countNamespaces(ctx, db)
}

func newServer(s store.Server) Server {
	to := Server{
		Name: s.Name, Version: s.Version, Role: s.Role, Eviction: s.Eviction,
		AppendOnly: s.AppendOnly, AppendFsync: s.AppendFsync, LastAppend: s.LastAppend,
		Save: s.Save, LastSave: s.LastSave, MayLose: s.MayLose(), Replicas: s.Replicas, MinReplicas: s.MinReplicas,
	}
	if s.Clock != nil {
		to.Clock = &Clock{Ahead: float64(s.Clock.Ahead.Microseconds()) / 1000, Within: float64(s.Clock.Within.Microseconds()) / 1000}
	}
	return to
}

func (st *Status) warn(code, text string) { st.Warnings = append(st.Warnings, Warning{code, text}) }

// pass notes that something could not be learned. The error comes back where the store does not answer any more.
func (st *Status) noteFailure(ctx context.Context, db *userdb.DB, what string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil || db.Ping(ctx) != nil {
		return err
	}
	text := what + " cannot be told: " + err.Error()
	if errors.Is(err, userdb.ErrCorrupt) {
		text += "; 'userdb check' says what mends it"
	}
	st.warn("not_learned", text)
	return nil
}

// declared finds the schema in force.
func (st *Status) loadTypes(ctx context.Context, db *userdb.DB) (map[string]schema.Type, error) {
	stored, err := migrate.StoredSchema(ctx, db)
	begun, begunErr := migrate.BegunSchema(ctx, db)
	if err := st.noteFailure(ctx, db, "the stored schema", cmp.Or(err, begunErr)); err != nil {
		return nil, err
	}
	own := db.Schema().Types
	inForce := maps.Clone(own)
	maps.Copy(inForce, stored.Types)
	for _, name := range slices.Sorted(maps.Keys(inForce)) {
		t := inForce[name]
		_, is := stored.Types[name]
		_, changing := begun.Types[name]
		s := TypeStatus{Type: name, Stored: is, Changing: changing, Fields: len(t.Fields)}
		if t.Fold != schema.FoldExact {
			s.Canonical = cmp.Or(t.Form, schema.FormVersion())
		}
		st.Types = append(st.Types, s)
		if changing {
			st.warn("schema_change", fmt.Sprintf("type %s: a change of the schema is under way: nobody can write entries of the type "+
				"until 'userdb schema apply' has finished it", name))
			continue
		}
		if t.Building != nil {
			st.warn("schema_building", fmt.Sprintf("type %s: entries are being brought to what the schema has more: queries by that are not answered yet; "+
				"if nobody does it any more, 'userdb schema apply' goes on with it", name))
		}
		if mine, has := own[name]; has && is {
			st.warnMismatch(name, mine, t)
		}
	}
	return inForce, nil
}

// compare warns where a program with its own schema of a type could not write by the stored one.
func (st *Status) warnMismatch(name string, own, stored schema.Type) {
	relation, difference := own.Against(stored)
	if own.OtherForm(stored) {
		relation, difference = schema.Differs, own.Difference(stored)
	}
	if relation >= schema.Builds {
		st.warn("schema", fmt.Sprintf("type %s: the program's schema is not the stored one, so that its writes are refused: %s; "+
			"use the stored one, or bring the records over with 'userdb schema apply'", name, difference))
	}
}

// count counts the entries of a type.
func (st *Status) countEntries(ctx context.Context, db *userdb.DB, s *TypeStatus, t schema.Type) error {
	var n userdb.Total
	in, err := db.With(schema.Schema{Types: map[string]schema.Type{s.Type: t}})
	if err == nil {
		var entries *userdb.Type
		if entries, err = in.Type(s.Type); err == nil {
			n, err = entries.Count(ctx, userdb.Query{})
		}
	}
	if err == nil {
		s.Entries = &n.Entries
	}
	return st.noteFailure(ctx, db, "the entries of type "+s.Type, err)
}

// namespaces counts what is in each.
func (st *Status) countNamespaces(ctx context.Context, db *userdb.DB) error {
	found, err := migrate.Namespaces(ctx, db)
	if err == nil {
		outer := view.Of(db).NS.Path() + "/"
		st.Namespaces = records.Map(found, func(n migrate.NamespaceCount) NamespaceStatus {
			return NamespaceStatus{strings.TrimPrefix(n.Namespace.Path(), outer), n.Entries, n.Records}
		})
	}
	return st.noteFailure(ctx, db, "the namespaces", err)
}
