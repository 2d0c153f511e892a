package password

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/trustelem/zxcvbn"
)

const (
	maxExamined = 100 // code points to examine; 1,000 would take 22 seconds
	maxOwn      = 32  // identifiers to consider
)

// A Report says how hard a password is to guess for an attacker who has its hash and makes 10,000
// guesses a second. It has the fields of the report of CoffeeNode UserDB, the original of this
// store.
type Report struct {
	// Level is the unit of Time: 0 instant, 1 minutes, 2 hours, 3 days, 4 months, 5 years,
	// 6 centuries.
	Level int `json:"ttc.level"`

	// Time says in words how long guessing the password takes: "instant", "3 minutes", "centuries".
	Time string `json:"ttc"`

	// Seconds is the number of seconds until half of the guesses are tried.
	Seconds float64 `json:"ttc.seconds"`

	// Score is 0, 1, 2 or 3 if fewer than 10³, 10⁶, 10⁸ or 10¹⁰ guesses suffice, and 4 otherwise.
	Score int `json:"score"`

	// Entropy is the binary logarithm of the guesses.
	Entropy float64 `json:"entropy"`

	// Suggestions say how to improve the password. Scores 3 and 4 have none.
	Suggestions []string `json:"suggestions"`
}

// MarshalJSON adds the member ~isa, by which the original marks its reports.
func (r Report) MarshalJSON() ([]byte, error) {
	type fields Report
	r.Suggestions = append([]string{}, r.Suggestions...) // an empty list instead of null
	return json.Marshal(struct {
		Isa string `json:"~isa"`
		fields
	}{"USERDB/password-strength-report", fields(r)})
}

// Strength estimates how hard the first 100 code points of a password are to guess. own holds
// identifiers of its owner, which attackers guess early; Strength considers the first 32. Most
// passwords take a few milliseconds, but hostile text takes a second or two. Limit the number of
// concurrent calls, as for hashing.
func Strength(password string, own ...string) Report {
	replacements := standIns{}
	inputs := make([]string, 0, maxOwn)
	for _, id := range own[:min(len(own), maxOwn)] {
		inputs = append(inputs, replacements.replace(id))
	}
	found := zxcvbn.PasswordStrength(replacements.replace(password), inputs)
	r := Report{Score: found.Score, Entropy: round(math.Log2(max(found.Guesses, 1)))}
	r.Seconds = round(found.Guesses / 2 / 10_000)
	r.Level, r.Time = inWords(r.Seconds)
	if r.Score < 3 {
		r.Suggestions = suggest(found)
	}
	return r
}

// standIns maps every character beyond ASCII to a control character that replaces it. zxcvbn
// confuses bytes and code points: it would not see that "ääääääää" repeats one character.
type standIns map[rune]rune

// replace returns the part of text to examine, with its characters replaced.
func (s standIns) replace(text string) string {
	runes := []rune(text)
	runes = runes[:min(len(runes), maxExamined)]
	for i, r := range runes {
		if r < utf8.RuneSelf {
			continue
		}
		r = unicode.ToLower(r)
		if s[r] == 0 {
			s[r] = rune(1 + 7*len(s)%31) // too far from its neighbors to look like a sequence
		}
		runes[i] = s[r]
	}
	return string(runes)
}

func round(v float64) float64 { return math.Round(v*1000) / 1000 }

const (
	minute  = 60.0
	hour    = 60 * minute
	day     = 24 * hour
	month   = 31 * day
	year    = 12 * month
	century = 100 * year
)

// inWords returns a duration in the words of the original: the number of units, rounded up, plus
// one.
func inWords(seconds float64) (level int, text string) {
	units := []struct {
		below, unit float64
		name        string
	}{{hour, minute, "minutes"}, {day, hour, "hours"}, {month, day, "days"}, {year, month, "months"}, {century, year, "years"}}
	if seconds < minute {
		return 0, "instant"
	}
	for i, u := range units {
		if seconds < u.below {
			return i + 1, fmt.Sprintf("%d %s", 1+int(math.Ceil(seconds/u.unit)), u.name)
		}
	}
	return len(units) + 1, "centuries"
}

// advice maps the names of zxcvbn's patterns to advice against them.
var advice = []struct{ pattern, say string }{
	{"dictionary", "avoid common words, names and passwords, and your own names, in any spelling"},
	{"spatial", "avoid keys that are next to each other"},
	{"repeat", "avoid repeated characters and words"},
	{"sequence", "avoid sequences like abc or 4321"},
	{"date", "avoid dates"},
	{"regex", "avoid years"},
}

func suggest(found zxcvbn.Result) []string {
	all := []string{"add another word or two, preferably unusual"}
	for _, h := range advice {
		for _, m := range found.Sequence {
			if m.Pattern == h.pattern && !slices.Contains(all, h.say) {
				all = append(all, h.say)
			}
		}
	}
	return all
}
