package userdb

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

// Whatever prints or logs a value that holds a secret gets a description without it. What stands in an
// unexported field of somebody's struct is out of reach: fmt asks no method there.

// describe is a description as JSON, under the name of the type.
func describe(what string, v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return what
	}
	return what + string(text)
}

type optionsShown struct {
	Types       []string `json:"types,omitempty"`
	Namespace   string   `json:"namespace,omitempty"`
	HashWorkers int      `json:"hashWorkers,omitempty"`
	Peppers     int      `json:"peppers"` // how many
	Replicas    int      `json:"replicas,omitempty"`
	Cache       int      `json:"cache,omitempty"`
}

func (o Options) shown() optionsShown {
	return optionsShown{
		Types: slices.Sorted(maps.Keys(o.Schema.Types)), Namespace: o.Namespace.String(), HashWorkers: o.HashWorkers,
		Peppers: len(o.Peppers), Replicas: o.Replicas, Cache: o.Cache,
	}
}

// Format writes what the options are, without the peppers, whatever the verb.
func (o Options) Format(f fmt.State, _ rune) { fmt.Fprint(f, describe("userdb.Options", o.shown())) }

// LogValue is the same for a log.
func (o Options) LogValue() slog.Value {
	return slog.StringValue(describe("userdb.Options", o.shown()))
}

// MarshalJSON gives the number of the peppers in place of them.
func (o Options) MarshalJSON() ([]byte, error) { return json.Marshal(o.shown()) }

type newEntryShown struct {
	UID      string   `json:"uid,omitempty"`
	Fields   []string `json:"fields"` // facets are personal data
	Tags     []string `json:"tags,omitempty"`
	Password bool     `json:"password"` // whether there is one
}

func (n NewEntry) shown() newEntryShown {
	return newEntryShown{UID: n.UID, Fields: slices.Sorted(maps.Keys(n.Facets)), Tags: n.Tags, Password: n.Password != ""}
}

// Format writes which fields the entry has, and not what is in them, whatever the verb.
func (n NewEntry) Format(f fmt.State, _ rune) { fmt.Fprint(f, describe("userdb.NewEntry", n.shown())) }

// LogValue is the same for a log.
func (n NewEntry) LogValue() slog.Value {
	return slog.StringValue(describe("userdb.NewEntry", n.shown()))
}

// MarshalJSON reports whether there is a password in place of it.
func (n NewEntry) MarshalJSON() ([]byte, error) { return json.Marshal(n.shown()) }

// GoString is String: what the store keeps besides the facets is nobody's business.
func (e Entry) GoString() string { return e.String() }
