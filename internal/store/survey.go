package store

import (
	"fmt"
	"time"
)

// A Survey is what an engine was opened over.
type Survey struct {
	Store   string   // InMemory, InFile, OnServer, BySentinel or OnCluster
	File    string   // the path of an embedded store that is kept in one
	Servers []Server // the masters of a cluster, or the one server; none of an embedded store
	Steps   bool     // changes are made in several steps, between which records look damaged
	Bulks   bool     // it saves each bulk before the next begins; so does what makes changes one by one
}

// Where an engine keeps the records.
const (
	InMemory   = "memory"
	InFile     = "file"
	OnServer   = "redis"
	BySentinel = "sentinel" // on the server that Sentinels name
	OnCluster  = "cluster"
)

// A Server is what a Redis server tells of itself. What it does not tell, or does not let this user ask, is "" or nil.
type Server struct {
	Name        string // its address
	Version     string // "redis 7.0.15", "valkey 8.0.1"
	Role        string // RoleMaster or RoleReplica
	Eviction    string // its maxmemory-policy
	AppendOnly  string // yes or no
	AppendFsync string // always, everysec or no
	Save        string // when it makes snapshots, as in "3600 1 300 100", or NoSave
	LastSave    string // how the last snapshot went: ok or err
	LastAppend  string // likewise, the last write to the append-only file
	Replicas    *int64 // that are connected
	MinReplicas *int64 // that must be connected, or it refuses to write
	Clock       *Clock
}

// What a server tells.
const (
	RoleMaster  = "master"
	RoleReplica = "replica"
	NoSave      = "never"
)

// A Clock is how far a server's clock is ahead of this program's, give or take Within.
type Clock struct{ Ahead, Within time.Duration }

// ClockOf is the clock of a server that told the time at some moment between before and after.
func ClockOf(told, before, after time.Time) Clock {
	half := after.Sub(before) / 2
	return Clock{Ahead: told.Sub(before.Add(half)), Within: half}
}

// MayLose says which changes that the server has acknowledged are gone after a crash; "" where it does not tell.
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

// A Warning says what of a server's settings and state may lose what, and what mends it.
type Warning struct {
	Code   string
	Text   string
	Breaks bool // the promise that one identifier means one entry
}

// Warnings are what is wrong with servers.
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
				"keeps nothing on disk: all records are gone when it ends; set appendonly yes", false,
			}},
			{s.LastSave == "err", Warning{"save_failed", "could not make its last snapshot: later changes are in none, and it may refuse writes; " +
				"its log has the reason, as a full disk (see its settings dir and stop-writes-on-bgsave-error)", false}},
			{s.LastAppend == "err", Warning{"append_failed", "could not write to its append-only file: a crash loses what is not in it, " +
				"and it refuses writes; its log has the reason, as a full disk (see its setting appenddirname)", false}},
		} {
			if w.due {
				w.Text = "the server " + s.Name + " " + w.Text
				all = append(all, w.Warning)
			}
		}
	}
	return append(all, clockWarning(servers)...)
}

// Apart is how far the clocks of a cluster's nodes may be apart.
const Apart = 2 * time.Second

// clockWarning is about the two clocks that are furthest apart, if that is too far whatever the round trips took.
func clockWarning(servers []Server) []Warning {
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
	if most <= Apart {
		return nil
	}
	text := fmt.Sprintf("the clock of the server %s is ahead of that of %s by %v or more, and they may differ by %v: writes are refused, or "+
		"made by a schema that has just changed; set the clocks, and keep them by NTP", a, b, most.Round(time.Millisecond), Apart)
	return []Warning{{"clocks", text, false}}
}
