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
	maxExamined = 100 // code points that are looked at: uncapped, 1,000 take 22 seconds
	maxOwn      = 32  // identifiers that are taken into account
)

// Report says how hard a password is to guess for somebody who has its hash and tries 10,000 a second, in the fields of
// the original's report.
type Report struct {
	Level       int      `json:"ttc.level"`   // 0 instant, 1 minutes, 2 hours, 3 days, 4 months, 5 years, 6 centuries
	Time        string   `json:"ttc"`         // the same in words: "instant", "3 minutes", "centuries"
	Seconds     float64  `json:"ttc.seconds"` // until half of the guesses are tried
	Score       int      `json:"score"`       // 0 to 4: below a thousand, a million, 10⁸, 10¹⁰ guesses, or more
	Entropy     float64  `json:"entropy"`     // bits: the logarithm of the guesses
	Suggestions []string `json:"suggestions"` // name would help; none at score 3 and 4
}

// MarshalJSON adds the original's name of its report.
func (r Report) MarshalJSON() ([]byte, error) {
	type fields Report
	r.Suggestions = append([]string{}, r.Suggestions...) // a list, if an empty one
	return json.Marshal(struct {
		Isa string `json:"~isa"`
		fields
	}{"USERDB/password-strength-report", fields(r)})
}

// Strength estimates how hard the first 100 code points of a password are to guess. own are identifiers of its owner,
// which are guessed early; up to 32 count. Most take a few milliseconds, but text made for it a second or two: run it
// where hashes run.
func Strength(password string, own ...string) Report {
	stand := standIns{}
	inputs := make([]string, 0, maxOwn)
	for _, id := range own[:min(len(own), maxOwn)] {
		inputs = append(inputs, stand.replace(id))
	}
	found := zxcvbn.PasswordStrength(stand.replace(password), inputs)
	r := Report{Score: found.Score, Entropy: round(math.Log2(max(found.Guesses, 1)))}
	r.Seconds = round(found.Guesses / 2 / 10_000)
	r.Level, r.Time = inWords(r.Seconds)
	if r.Score < 3 {
		r.Suggestions = suggest(found)
	}
	return r
}

// standIns gives every character that is not ASCII a control character to stand for it. The library mixes up bytes and
// code points: it would not see that "ääääääää" repeats one.
type standIns map[rune]rune

// replace is as much of text as is looked at.
func (s standIns) replace(text string) string {
	runes := []rune(text)
	runes = runes[:min(len(runes), maxExamined)]
	for i, r := range runes {
		if r < utf8.RuneSelf {
			continue
		}
		r = unicode.ToLower(r)
		if s[r] == 0 {
			s[r] = rune(1 + 7*len(s)%31) // neighbours lie too far apart for a sequence
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

// inWords is the original's way to say how long something takes: one more than it is, rounded up.
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

// advice are what to do about a pattern that a guesser would use, in zxcvbn's names.
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
