package serve

import (
	"encoding/json"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// Either represents a boolean parameter that may be absent.
type Either struct{ is, set bool }

// Receiver implements [huma.ParamWrapper].
func (e *Either) Receiver() reflect.Value { return reflect.ValueOf(&e.is).Elem() }

// Schema implements [huma.SchemaProvider].
func (*Either) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Type: huma.TypeBoolean} }

// OnParamSet implements [huma.ParamReactor].
func (e *Either) OnParamSet(set bool, _ any) { e.set = set }

// Given holds text that may be absent. Empty text and null count as present, so that leaving a
// field of a form empty does not bypass a check.
type Given struct {
	text string
	is   bool
}

// UnmarshalJSON implements [json.Unmarshaler].
func (g *Given) UnmarshalJSON(text []byte) error {
	g.is = true
	return json.Unmarshal(text, &g.text)
}

// Schema implements [huma.SchemaProvider].
func (Given) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, MaxLength: ptr(4096)}
}
