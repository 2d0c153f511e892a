package scim

import "testing"

// TestEscapesInFilters checks the escapes of JSON in the text of a filter.
func TestEscapesInFilters(t *testing.T) {
	for text, want := range map[string]string{
		`k\u00e4the@example.com`: "käthe@example.com",
		`k\u00E4the@example.com`: "käthe@example.com",
		`\ud83d\uDe00`:           "😀",
		`\\u00e4`:                `\u00e4`,
		`\\\u00e4`:               `\ä`,
		`\"u00e4`:                `"u00e4`,
	} {
		for _, filter := range []string{`userName eq "` + text + `"`, `emails[value eq "` + text + `"]`} {
			all, err := parseFilter(urnUser, filter, true)
			if err != nil || len(all) != 1 || all[0].value != want {
				t.Errorf("%s: terms %v, error %v, want the value %q", filter, all, err, want)
			}
		}
	}
}

// TestLenientPaths checks paths with escapes in lower case and with spaces around them.
func TestLenientPaths(t *testing.T) {
	for text, want := range map[string]target{
		"displayName ":                      {name: "displayname"},
		" name.givenName\n":                 {name: "name", sub: "givenname"},
		`emails[type eq "wor\u006b"].value`: {name: "emails", sub: "value"},
		urnUser + " ":                       wholeResource,
	} {
		r := patchReader{urn: urnUser}
		at, _, err := r.parsePath(text)
		if err != nil || at.name != want.name || at.sub != want.sub {
			t.Errorf("the path %q denotes %s and %s, error %v; want %s and %s", text, at.name, at.sub, err, want.name, want.sub)
		}
	}
}
