package structs_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/structs"
)

func TestParseTag(t *testing.T) {
	for text, want := range map[string]structs.Tag{
		"email":                            {Name: "email"},
		"email,secondary":                  {Name: "email", Options: []string{"secondary"}},
		"email,required,secondary,ordered": {Name: "email", Options: []string{"required", "secondary", "ordered"}},
		"email,kind=email,indexed":         {Name: "email", Options: []string{"indexed"}, Kind: "email"},
		"email,many=5,secondary":           {Name: "email", Options: []string{"secondary"}, Many: 5},
		"id,secondary,untyped":             {Name: "id", Options: []string{"secondary", "untyped"}},
		"uid,primary":                      {Name: "uid", Options: []string{"primary"}},
		"two words":                        {Name: "two words"},
		"~rev":                             {Name: "~rev"},
	} {
		if got, err := structs.ParseTag(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                        `tag "": the name is empty`,
		",secondary":              `tag ",secondary": the name is empty`,
		"str,omitempty":           `tag "str,omitempty": unknown option "omitempty"; want one of indexed, ordered, primary, required, secondary, set, untyped, kind=NAME, many=N`,
		"a,":                      `tag "a,": unknown option ""; want one of indexed, ordered, primary, required, secondary, set, untyped, kind=NAME, many=N`,
		"a, secondary":            `tag "a, secondary": unknown option " secondary"; want one of indexed, ordered, primary, required, secondary, set, untyped, kind=NAME, many=N`,
		"a,kind=":                 `tag "a,kind=": unknown option "kind="; want one of indexed, ordered, primary, required, secondary, set, untyped, kind=NAME, many=N`,
		"a,Secondary":             `tag "a,Secondary": unknown option "Secondary"; want one of indexed, ordered, primary, required, secondary, set, untyped, kind=NAME, many=N`,
		"a,ordered,ordered":       `tag "a,ordered,ordered": the option "ordered" appears twice`,
		"a,kind=email,kind=email": `tag "a,kind=email,kind=email": the option "kind=email" appears twice`,
		"a,kind=email,kind=url":   `tag "a,kind=email,kind=url": the option "kind=url" appears twice`,
		"a,many=2,many=3":         `tag "a,many=2,many=3": the option "many=3" appears twice`,
		"a,many=0":                `tag "a,many=0": unknown option "many=0"; want one of indexed, ordered, primary, required, secondary, set, untyped, kind=NAME, many=N`,
		"a,many=02":               `tag "a,many=02": unknown option "many=02"; want one of indexed, ordered, primary, required, secondary, set, untyped, kind=NAME, many=N`,
		"~prk":                    `tag "~prk": names that begin with ~ are reserved for the store; the only one for structs is ~rev`,
		"~rev,ordered":            `tag "~rev,ordered": ~rev has no options`,
		" a":                      `tag " a": white space around the name`,
		"\xff":                    `tag "\xff": the name is not UTF-8`,
	} {
		if got, err := structs.ParseTag(text); err == nil || err.Error() != want {
			t.Errorf("%q: got %+v, %v; want %s", text, got, err, want)
		}
	}
}

// FuzzParseTag checks that a parsed tag contains exactly what the text says.
func FuzzParseTag(f *testing.F) {
	for _, text := range []string{"email,secondary,kind=email,many=5", "uid,primary", "~rev", "~rev,", "a,,", "str,omitempty", ",", "a\x00,required"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tag, err := structs.ParseTag(text)
		if err != nil {
			return
		}
		parts := append([]string{tag.Name}, tag.Options...)
		if tag.Kind != "" {
			parts = append(parts, "kind="+tag.Kind)
		}
		if tag.Many > 0 {
			parts = append(parts, fmt.Sprint("many=", tag.Many))
		}
		written := strings.Split(text, ",")
		if slices.Sort(written[1:]); tag.Name == "" || !slices.Equal(written, append(parts[:1:1], slices.Sorted(slices.Values(parts[1:]))...)) {
			t.Errorf("%q is read as the name and options %q, want exactly those of the text", text, parts)
		}
		again, err := structs.ParseTag(strings.Join(parts, ","))
		if err != nil || !reflect.DeepEqual(again, tag) {
			t.Errorf("%q: got %+v, and read again %+v, %v; want the same", text, tag, again, err)
		}
	})
}

// FuzzLookup compares Lookup with package reflect: Lookup must find the same value or, only if the
// tag contains the key, return an error.
func FuzzLookup(f *testing.F) {
	for _, tag := range []string{
		`userdb:"email"`, `json:"a,omitempty" userdb:"email,secondary"  xml:"b"`, `userdb:email`, `userdb: "email"`, `json:"x"userdb:"y"`,
		`userdb:"a" userdb:"b"`, `json:"userdb"`, `userdb`, `userdb:"\x41\""`, "userdb:`a`", `a:"b" :"c" userdb:"d"`, `userdb:"`, "userdb:'a'",
	} {
		f.Add(tag)
	}
	f.Fuzz(func(t *testing.T, tag string) {
		got, found, err := structs.Lookup(tag)
		want, has := reflect.StructTag(tag).Lookup(structs.Key)
		switch {
		case err != nil && !strings.Contains(tag, structs.Key):
			t.Errorf("%q: got %v, want no error, because the key does not occur", tag, err)
		case err == nil && (got != want || found != has):
			t.Errorf("%q: got %q, %t; want %q, %t as in reflect", tag, got, found, want, has)
		}
	})
}

type (
	address struct {
		City   string `userdb:"city"`
		Street string `userdb:"street"`
	}
	Contact struct {
		Mail string `userdb:"email"`
		*Deeper
	}
	Deeper struct {
		Mail  string `userdb:"email"`
		Phone string `userdb:"phone"`
		*Contact
	}
	Other struct {
		Mail string `userdb:"email"`
	}
	Twin  struct{ Other }
	Named struct {
		A string `userdb:"a"`
	}
	sealed struct {
		A string `userdb:"a"`
	}
)

func TestFields(t *testing.T) {
	for _, tt := range []struct {
		of   any
		want string
	}{
		{struct {
			B      string `json:"x" userdb:"b"`
			Left   string
			Out    string `userdb:"-"`
			hidden string
			A      int `userdb:"a,ordered"`
		}{}, "struct.B [0], struct.A [4]"},
		{struct {
			address
			*Contact
			time.Time
			io.Reader
			Out Other
		}{}, "struct.address.City [0 0], struct.address.Street [0 1], struct.Contact.Mail [1 0], struct.Contact.Deeper.Phone [1 1 1]"},
		{struct { // the least deeply embedded field hides the other
			Other
			Mail string `userdb:"email"`
		}{}, "struct.Mail [1]"},
		{struct {
			Contact `userdb:"contact"`
			Named   `userdb:"-"`
		}{}, "struct.Contact [0]"},
		{Contact{}, "Contact.Mail [0], Contact.Deeper.Phone [1 1]"},

		{struct{ A int }{}, "struct: no field has a tag userdb"},
		{42, "int: not a struct"},
		{&address{}, "*structs_test.address: not a struct"},
		{struct {
			A string `userdb:"a"`
			B string `userdb:"a"`
		}{}, `struct.B: has the name "a", like struct.A`},
		{struct {
			Contact
			Other
		}{}, `struct.Other.Mail: has the name "email", like struct.Contact.Mail`},
		{struct {
			Other
			Twin
			Named struct{ Other }
		}{}, "struct.Other.Mail [0 0]"},
		{struct {
			Twin
			T struct{ Twin } `userdb:"x"`
			*sealedTwice
		}{}, `struct.sealedTwice.Other.Mail: is embedded as an unexported pointer and cannot be set`},
		{struct {
			a string `userdb:"a"`
		}{}, "struct.a: is not exported and cannot be set"},
		{struct {
			address `userdb:"a"`
		}{}, "struct.address: is not exported and cannot be set"},
		{struct{ *sealed }{}, "struct.sealed.A: is embedded as an unexported pointer and cannot be set"},
		{struct {
			A string `userdb:"str,omitempty"`
		}{}, `struct.A: tag "str,omitempty": unknown option "omitempty"; want one of indexed, ordered, primary, required, secondary, set, untyped, kind=NAME, many=N`},
		{struct {
			A string `userdb:""`
		}{}, `struct.A: tag "": the name is empty`},
		{struct {
			Twin
			Twin2
		}{}, `struct.Twin2.Other.Mail: has the name "email", like struct.Twin.Other.Mail`},
		{tagged(`userdb:email`), "struct.A: tag `userdb:email` is not of the form `userdb:\"name,option\"`"},
		{tagged(`userdb:"a" json:"b" userdb:"c"`), "struct.A: tag `userdb:\"a\" json:\"b\" userdb:\"c\"` has the key userdb twice"},
		{tagged(`json:"a"userdb:"b"`), "struct.A [0]"},
		{tagged(`bad userdb:"b"`), "struct.A: tag `bad userdb:\"b\"` is not of the form `userdb:\"name,option\"`"},
	} {
		fields, bad := structs.Fields(reflect.TypeOf(tt.of))
		var found []string
		for _, f := range fields {
			text, _ := json.Marshal(f.Index)
			found = append(found, f.Path+" "+strings.ReplaceAll(string(text), ",", " "))
		}
		got := strings.Join(found, ", ")
		if bad != nil {
			got = bad.Path + ": " + bad.Reason
		}
		if got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
		again, _ := structs.Fields(reflect.TypeOf(tt.of))
		if len(again) > 0 && &again[0] != &fields[0] {
			t.Errorf("%s: the fields were computed twice", got)
		}
	}
}

type (
	sealedTwice struct{ Other }
	Twin2       struct{ Other }
)

// tagged returns a struct whose field has the given tag. go vet would refuse some of the tags.
func tagged(tag string) any {
	f := reflect.StructField{Name: "A", Type: reflect.TypeFor[string](), Tag: reflect.StructTag(tag)}
	return reflect.Zero(reflect.StructOf([]reflect.StructField{f})).Interface()
}

type (
	level    int
	onlyText struct{}
	onlyJSON struct{}
	list     struct {
		Next *list
		Skip chan int `json:"-"`
		Last *list    `json:",omitempty"`
	}
)

func (l level) MarshalText() ([]byte, error)  { return []byte{byte(l)}, nil }
func (l *level) UnmarshalText([]byte) error   { return nil }
func (onlyText) MarshalText() ([]byte, error) { return nil, nil }
func (*onlyJSON) UnmarshalJSON([]byte) error  { return nil }

func TestCodecs(t *testing.T) {
	for _, tt := range []struct {
		typ  reflect.Type
		want string
	}{
		{reflect.TypeFor[string](), "text identity json"},
		{reflect.TypeFor[*string](), "text identity json"},
		{reflect.TypeFor[**string](), "json"},
		{reflect.TypeFor[int8](), "number json"},
		{reflect.TypeFor[uint64](), "number json"},
		{reflect.TypeFor[float32](), "number json"},
		{reflect.TypeFor[bool](), "boolean json"},
		{reflect.TypeFor[time.Time](), "date text identity json"},
		{reflect.TypeFor[*time.Time](), "date text identity json"},
		{reflect.TypeFor[time.Duration](), "number json"},
		{reflect.TypeFor[netip.Addr](), "text identity json"},
		{reflect.TypeFor[*big.Int](), "text identity json"},
		{reflect.TypeFor[level](), "text identity number json"},
		{reflect.TypeFor[[]byte](), "json"},
		{reflect.TypeFor[json.RawMessage](), "json"},
		{reflect.TypeFor[map[int][]any](), "json"},
		{reflect.TypeFor[map[netip.Addr]string](), "json"},
		{reflect.TypeFor[list](), "json"},
		{reflect.TypeFor[any](), "json"},

		{reflect.TypeFor[chan int](), "no codec supports type chan int"},
		{reflect.TypeFor[func()](), "no codec supports type func()"},
		{reflect.TypeFor[complex64](), "no codec supports type complex64"},
		{reflect.TypeFor[[]*chan int](), "no codec supports type chan int"},
		{reflect.TypeFor[map[[2]int]string](), "no codec supports type map[[2]int]string: its keys are not text"},
		{reflect.TypeFor[struct{ A struct{ B func() } }](), "no codec supports type func() (field B) (field A)"},
		{reflect.TypeFor[io.Reader](), "no codec supports an interface with methods, such as io.Reader"},
		{reflect.TypeFor[onlyText](), "type structs_test.onlyText has only one of the methods of encoding.TextMarshaler and encoding.TextUnmarshaler"},
		{reflect.TypeFor[[]onlyJSON](), "type structs_test.onlyJSON has only one of the methods of json.Marshaler and json.Unmarshaler"},
	} {
		names, err := structs.Codecs(tt.typ)
		got := strings.Join(names, " ")
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: got %s; want %s", tt.typ, got, tt.want)
		}
	}
}
