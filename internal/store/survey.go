package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Survey describes the servers or the file that an engine was opened on.
type Survey struct {
	Store   string   // InMemory, InFile, OnServer, BySentinel or OnCluster
	File    string   // the path of an embedded store that is kept in a file
	Servers []Server // the masters of a cluster, or the one server; empty for an embedded store
	// MultiStep reports whether a change is made in several steps, between which records look
	// damaged.
	MultiStep bool
	// SerialBulks reports whether an import should end each bulk before it begins the next one. It
	// is true for an embedded store, which saves a bulk when it ends, and for a cluster. A single
	// server can take several bulks at a time.
	SerialBulks bool
}

// ReplIDs returns a checksum of the replication IDs of all servers. It changes when a server
// restarts or when a replica takes over, which may lose acknowledged writes. It also changes when a
// master joins or leaves, and may change when a server gets its first replica. ReplIDs returns ""
// if a server does not report its ID, and for an embedded store.
func (s Survey) ReplIDs() string {
	ids := make([]string, 0, len(s.Servers))
	for _, server := range s.Servers {
		if server.ReplID == "" {
			return ""
		}
		ids = append(ids, server.ReplID)
	}
	if len(ids) == 0 {
		return ""
	}
	slices.Sort(ids)
	sum := sha256.Sum256([]byte(strings.Join(ids, " ")))
	return hex.EncodeToString(sum[:])
}

// Where an engine keeps the records.
const (
	InMemory   = "memory"
	InFile     = "file"
	OnServer   = "redis"
	BySentinel = "sentinel" // on the server that Sentinels name
	OnCluster  = "cluster"
)

// A Server holds information that a Redis server reports about itself. A field is "" or nil if the
// server does not report it, or does not let this user ask.
type Server struct {
	Name        string // its address
	Version     string // "redis 7.0.15", "valkey 8.0.1"
	Role        string // RoleMaster or RoleReplica
	Eviction    string // its maxmemory-policy
	AppendOnly  string // yes or no
	AppendFsync string // always, everysec or no
	Save        string // when it makes snapshots, as in "3600 1 300 100", or NoSave
	LastSave    string // result of the last snapshot: ok or err
	LastAppend  string // result of the last write to the append-only file: ok or err
	Replicas    *int64 // number of connected replicas
	MinReplicas *int64 // fewer connected replicas make it refuse writes
	ReplID      string // its replication ID; see Survey.ReplIDs
	Clock       *Clock
}

// Values that a server reports.
const (
	RoleMaster  = "master"
	RoleReplica = "replica"
	NoSave      = "never"
)

// A Clock says how far a server's clock is ahead of this program's, give or take Within.
type Clock struct{ Ahead, Within time.Duration }

// ClockOf returns the clock of a server that reported a time at some moment between before and
// after.
func ClockOf(reported, before, after time.Time) Clock {
	half := after.Sub(before) / 2
	return Clock{Ahead: reported.Sub(before.Add(half)), Within: half}
}

// MayLose describes the acknowledged changes that a crash may lose. It returns "" if the server
// does not report enough.
func (s Server) MayLose() string {
	switch {
	case s.AppendOnly == "yes" && s.AppendFsync == "always":
		return "nothing"
	case s.AppendOnly == "yes" && s.AppendFsync == "everysec":
		return "the last second"
	case s.AppendOnly == "yes" && s.AppendFsync == "no":
		return "what the operating system has not written yet, about 30 s"
	case s.AppendOnly == "no" && s.Save == NoSave:
		return "everything"
	case s.AppendOnly == "no" && s.Save != "":
		return "everything since the last snapshot"
	}
	return ""
}

// A Warning describes a setting or a state of a server that may lose data, and how to fix it.
type Warning struct {
	Code          string
	Text          string
	BreaksPromise bool // it breaks the promise that one identifier means one entry
}

// Warnings returns the problems of servers.
func Warnings(servers []Server) (all []Warning) {
	for _, s := range servers {
		for _, w := range []struct {
			due bool
			Warning
		}{
			{s.Eviction != "" && s.Eviction != "noeviction", Warning{"evicts", "has maxmemory-policy " + s.Eviction +
				": it may remove records, so that one identifier could mean two people; set maxmemory-policy noeviction", true}},
			{s.Role == RoleReplica, Warning{"replica", "is a replica: it may be behind and takes no writes; open its master", true}},
			{s.AppendOnly == "no" && s.Save == NoSave, Warning{
				"not_persistent",
				"keeps nothing on disk: all records are lost when it stops; set appendonly yes", false,
			}},
			{s.LastSave == "err", Warning{"save_failed", "could not make its last snapshot: later changes are in no snapshot, and it may refuse writes; " +
				"its log has the reason, such as a full disk (see its settings dir and stop-writes-on-bgsave-error)", false}},
			{s.LastAppend == "err", Warning{"append_failed", "could not write to its append-only file: a crash loses what is not in it, " +
				"and it refuses writes; its log has the reason, such as a full disk (see its setting appenddirname)", false}},
		} {
			if w.due {
				w.Text = "the server " + s.Name + " " + w.Text
				all = append(all, w.Warning)
			}
		}
		all = append(all, s.offsetWarning()...)
	}
	return append(all, skewWarning(servers)...)
}

// maxClockOffset is the maximum difference between the clocks of a server and of this machine. If
// the server's clock is wrong by more than 30 s, some or all codes of authenticator apps are
// refused.
const maxClockOffset = 15 * time.Second

// offsetWarning returns a warning if the server's clock and that of this machine certainly differ
// by more than maxClockOffset.
func (s Server) offsetWarning() []Warning {
	if s.Clock == nil || s.Clock.Ahead.Abs()-s.Clock.Within <= maxClockOffset {
		return nil
	}
	where := "ahead of"
	if s.Clock.Ahead < 0 {
		where = "behind"
	}
	text := fmt.Sprintf("the clock of the server %s is %v %s this machine's: if it is wrong, codes of authenticator apps are refused, and sessions, "+
		"tokens and held values expire too early or too late; set the clocks, and keep them right with NTP", s.Name, s.Clock.Ahead.Abs().Round(time.Second), where)
	return []Warning{{"clocks", text, false}}
}

// MaxClockSkew is the maximum difference between the clocks of a cluster's nodes.
const MaxClockSkew = 2 * time.Second

// skewWarning returns a warning about the two clocks that differ most, if they differ by more than
// MaxClockSkew even after the uncertainty of both measurements is subtracted.
func skewWarning(servers []Server) []Warning {
	var most time.Duration
	var a, b string
	for _, fast := range servers {
		for _, slow := range servers {
			if fast.Clock == nil || slow.Clock == nil {
				continue
			}
			if d := fast.Clock.Ahead - slow.Clock.Ahead - fast.Clock.Within - slow.Clock.Within; d > most {
				most, a, b = d, fast.Name, slow.Name
			}
		}
	}
	if most <= MaxClockSkew {
		return nil
	}
	text := fmt.Sprintf("the clock of the server %s is ahead of that of %s by %v or more, and they must not differ by more than %v: writes are refused, or "+
		"made under a schema that has just changed; set the clocks, and keep them right with NTP", a, b, most.Round(time.Millisecond), MaxClockSkew)
	return []Warning{{"clocks", text, false}}
}
