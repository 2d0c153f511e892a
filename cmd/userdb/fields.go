package main

import (
	"errors"
	"strings"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// passwordField is where the original and we keep the hash.
const passwordField = "password"

// checkFields refuses what is no FIELD=VALUE before anything else happens.
func checkFields(texts []string) error {
	seen := map[string]bool{}
	for _, text := range texts {
		name, _, ok := strings.Cut(text, "=")
		switch {
		case !ok || name == "":
			return usagef("%s is not FIELD=VALUE", shown(text))
		case name == passwordField:
			return usagef("a password is no argument, for others could read it: leave it out to be asked, or use --password-stdin; 'userdb passwd' changes it")
		case seen[name]:
			return usagef("the field %s is given twice", shown(name))
		}
		seen[name] = true
	}
	return nil
}

// facets makes values of FIELD=VALUE, each by the codec of its field.
func facets(t schema.Type, texts []string) (schema.Facets, error) {
	fs := make(schema.Facets, len(texts))
	for _, text := range texts {
		name, value, _ := strings.Cut(text, "=")
		v, err := schema.ParseText(t.Codec(name), value)
		if err != nil {
			return nil, refused(name, err)
		}
		fs[name] = v
	}
	return fs, nil
}

// refused is an ErrInvalid that names the field, which a codec does not know.
func refused(name string, err error) error {
	reason := err.Error()
	var value *schema.ValueError
	if errors.As(err, &value) {
		reason = "no " + string(value.Codec) + ": " + value.Reason
	}
	return &userdb.FieldError{Err: userdb.ErrInvalid, Field: name, Rule: "codec", Reason: reason}
}
