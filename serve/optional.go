package serve

import (
	"encoding/json"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// OptionalBool represents a boolean parameter that may be absent.
type OptionalBool struct{ value, set bool }

// Receiver implements [huma.ParamWrapper].
func (o *OptionalBool) Receiver() reflect.Value { return reflect.ValueOf(&o.value).Elem() }

// Schema implements [huma.SchemaProvider].
func (*OptionalBool) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Type: huma.TypeBoolean} }

// OnParamSet implements [huma.ParamReactor].
func (o *OptionalBool) OnParamSet(set bool, _ any) { o.set = set }

// OptionalText holds text that may be absent. Empty text and null count as present, so that leaving
// a field of a form empty does not bypass a check.
type OptionalText struct {
	text    string
	present bool
}

// UnmarshalJSON implements [json.Unmarshaler].
func (o *OptionalText) UnmarshalJSON(text []byte) error {
	o.present = true
	return json.Unmarshal(text, &o.text)
}

// Schema implements [huma.SchemaProvider].
func (OptionalText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, MaxLength: ptr(4096)}
}
