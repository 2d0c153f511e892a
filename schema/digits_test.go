package schema

import (
	"encoding/json"
	"testing"
)

// TestIntegersKeepDigits checks that whole numbers keep all their digits in every codec that holds
// them, and that LosesDigits finds those that JavaScript would change.
func TestIntegersKeepDigits(t *testing.T) {
	for _, tt := range []struct {
		codec      Codec
		text, want string
		loses      bool
	}{
		{CodecNumber, "175928847299117063", "175928847299117063", true},
		{CodecNumber, "-12345678901234567890123", "-12345678901234567890123", true},
		{CodecNumber, "9007199254740992", "9007199254740992", false},
		{CodecNumber, "9007199254740993", "9007199254740993", true},
		{CodecNumber, "1000000000000000000000", "1000000000000000000000", true},
		{CodecNumber, "-0", "0", false},
		{CodecNumber, "1.0", "1", false},
		{CodecNumber, "1e3", "1000", false},
		{CodecJSON, "175928847299117063", "175928847299117063", true},
		{CodecJSON, `{"b": 175928847299117063, "a": [1.0, 1e400e]}`, "", false},
		{CodecJSON, `{"b": 175928847299117063, "a": [1.0, -0]}`, `{"b":175928847299117063,"a":[1,0]}`, true},
		{CodecJSON, `{"a": "175928847299117063"}`, `{"a":"175928847299117063"}`, false},
		{CodecJSON, `1e400`, "", false},
	} {
		v, err := ParseJSON(tt.codec, json.RawMessage(tt.text))
		if (err != nil) != (tt.want == "") || v.Wire() != tt.want || LosesDigits(v) != tt.loses {
			t.Errorf("%s as %s: %q, %v, loses digits: %v; want %q and %v", tt.text, tt.codec, v.Wire(), err, LosesDigits(v), tt.want, tt.loses)
			continue
		}
		if tt.want == "" {
			continue
		}
		text, err := json.Marshal(v)
		if again, rereadErr := ParseJSON(tt.codec, text); err != nil || rereadErr != nil || again != v {
			t.Errorf("%s as %s: marshaled as %s, %v, and read as %q, %v; want %q", tt.text, tt.codec, text, err, again.Wire(), rereadErr, tt.want)
		}
		if read, err := Decode(tt.codec, v.Wire()); err != nil || read != v {
			t.Errorf("%s as %s: decoded as %q, %v; want %q", tt.text, tt.codec, read.Wire(), err, tt.want)
		}
	}
}
