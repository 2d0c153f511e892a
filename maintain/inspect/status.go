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

// A Status is an overview of a store for operators. Anything that could not be determined is left
// out. If it is about types or namespaces, a Warning says why.
type Status struct {
	// Store is memory, file, redis, sentinel or cluster.
	Store string `json:"store"`
	// File is the path of the store file, if there is one.
	File string `json:"file,omitempty"`
	// Servers are the masters of a cluster, or the one server.
	Servers []Server `json:"servers,omitempty"`
	// Types are ordered by name.
	Types []TypeStatus `json:"types"`
	// Namespaces are those inside the view's, ordered by path. It is nil if they could not be
	// counted.
	Namespaces []NamespaceStatus `json:"namespaces"`
	Warnings   []Warning         `json:"warnings"`
}

// A Server holds what a Redis server reports about itself. A field is empty or nil if the server
// does not report it, or if this user may not ask (CONFIG GET, for example, is forbidden at many
// providers).
type Server struct {
	// Name is the address of the server.
	Name string `json:"name"`
	// Version is the product and its version, such as "redis 7.0.15" or "valkey 8.0.1".
	Version string `json:"version,omitempty"`
	// Role is master or replica.
	Role string `json:"role,omitempty"`
	// Eviction must be noeviction: a server with another policy may drop records.
	Eviction string `json:"maxmemory_policy,omitempty"`
	// AppendOnly is yes or no.
	AppendOnly string `json:"appendonly,omitempty"`
	// AppendFsync is always, everysec or no.
	AppendFsync string `json:"appendfsync,omitempty"`
	// LastAppend is the result of the last write to the append-only file: ok or err.
	LastAppend string `json:"last_append,omitempty"`
	// Save says when the server makes snapshots, as in "3600 1 300 100", or never.
	Save string `json:"save,omitempty"`
	// LastSave is the result of the last snapshot: ok or err.
	LastSave string `json:"last_save,omitempty"`
	// MayLose describes the acknowledged changes that a crash may lose.
	MayLose string `json:"may_lose,omitempty"`
	// Replicas is the number of connected replicas.
	Replicas *int64 `json:"replicas,omitempty"`
	// MinReplicas is the number of replicas without which the server refuses writes.
	MinReplicas *int64 `json:"min_replicas_to_write,omitempty"`
	Clock       *Clock `json:"clock,omitempty"`
}

// A Clock holds the number of milliseconds by which a server's clock is ahead of this program's,
// with a tolerance of Within.
type Clock struct {
	Ahead  float64 `json:"ahead_ms"`
	Within float64 `json:"within_ms"`
}

// A TypeStatus describes one type of the schema in force: the stored type or, if it is not stored,
// the program's.
type TypeStatus struct {
	Type string `json:"type"`
	// Stored is false if the first write will store the type.
	Stored bool `json:"stored"`
	// Changing is set if a change of the type was started and not finished.
	Changing bool `json:"changing"`
	// Fields is the number of declared fields, without the primary one.
	Fields int `json:"fields"`
	// Canonical is the version of the canonical form of identifiers. It is empty for the fold
	// exact.
	Canonical string `json:"canonical,omitempty"`
	// Entries is the number of entries as counted by userdb.Type.Count, or nil if they could not be
	// counted.
	Entries *int64 `json:"entries,omitempty"`
	// Retired is the number of UIDs of deleted entries that no other entry may have. It is 0 if the
	// type does not have schema.Type.Retire, or if they could not be counted.
	Retired int64 `json:"retired,omitempty"`
}

// A NamespaceStatus counts the records of one namespace, without namespaces inside it.
type NamespaceStatus struct {
	Namespace string `json:"namespace"` // relative to the view's
	Entries   int64  `json:"entries"`
	Records   int64  `json:"records"`
}

// A Warning says what is wrong, what may be lost because of it, and how to fix it. Codes are
// evicts, replica, not_persistent, save_failed, append_failed, clocks, schema, schema_change,
// schema_building and not_learned.
type Warning struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// StatusOf asks the servers of a store about themselves and counts the records in the view, in a
// pass for each type and one for namespaces. A pass reads all keys, unless an index has the count.
// progress, which may be nil, is called with the number of passes done and the total. StatusOf
// returns an error only if the store does not answer; it leaves out what a server refuses to
// report.
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

// noteFailure adds a warning that something could not be determined. It returns err if the store no
// longer answers.
func (st *Status) noteFailure(ctx context.Context, db *userdb.DB, what string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil || db.Ping(ctx) != nil {
		return err
	}
	text := what + " could not be determined: " + err.Error()
	if errors.Is(err, userdb.ErrCorrupt) {
		text += "; 'userdb check' says how to fix it"
	}
	st.warn("not_learned", text)
	return nil
}

// loadTypes determines the schema in force and adds its types to st.
func (st *Status) loadTypes(ctx context.Context, db *userdb.DB) (map[string]schema.Type, error) {
	stored, err := migrate.StoredSchema(ctx, db)
	unfinished, pendingErr := migrate.PendingSchema(ctx, db)
	if err := st.noteFailure(ctx, db, "the stored schema", cmp.Or(err, pendingErr)); err != nil {
		return nil, err
	}
	own := db.Schema().Types
	inForce := maps.Clone(own)
	maps.Copy(inForce, stored.Types)
	for _, name := range slices.Sorted(maps.Keys(inForce)) {
		t := inForce[name]
		_, ok := stored.Types[name]
		_, changing := unfinished.Types[name]
		s := TypeStatus{Type: name, Stored: ok, Changing: changing, Fields: len(t.Fields)}
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
			st.warn("schema_building", fmt.Sprintf("type %s: entries are being converted to additions to the schema; queries that need the additions are not answered yet; "+
				"if the conversion was interrupted, 'userdb schema apply' continues it", name))
		}
		if mine, has := own[name]; has && ok {
			st.warnMismatch(name, mine, t)
		}
	}
	return inForce, nil
}

// warnMismatch adds a warning if a program with its own schema of a type could not write under the
// stored one.
func (st *Status) warnMismatch(name string, own, stored schema.Type) {
	relation, difference := own.Compare(stored)
	if own.HasOtherForm(stored) {
		relation, difference = schema.Differs, own.Difference(stored)
	}
	if relation >= schema.Builds {
		st.warn("schema", fmt.Sprintf("type %s: the program's schema is not the stored one, so its writes are refused: %s; "+
			"use the stored one, or convert the records with 'userdb schema apply'", name, difference))
	}
}

// countEntries counts the entries of a type and, if the type retires UIDs, its retired UIDs.
func (st *Status) countEntries(ctx context.Context, db *userdb.DB, s *TypeStatus, t schema.Type) error {
	var n userdb.Total
	retired := int64(0)
	in, err := db.With(schema.Schema{Types: map[string]schema.Type{s.Type: t}})
	if err == nil {
		var entries *userdb.Type
		if entries, err = in.Type(s.Type); err == nil {
			n, err = entries.Count(ctx, userdb.Query{})
		}
		if err == nil && t.Retire {
			retired, err = countRetired(ctx, entries)
		}
	}
	if err == nil {
		s.Entries, s.Retired = &n.Entries, retired
	}
	return st.noteFailure(ctx, db, "the entries of type "+s.Type, err)
}

func countRetired(ctx context.Context, t *userdb.Type) (n int64, err error) {
	for _, err := range t.RetiredUIDs(ctx) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// countNamespaces counts the records of each namespace.
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
