package console

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/userdb"
)

// resetPurpose is the purpose of links for a new password.
const resetPurpose = "reset"

// A why tells whether and why the owner of an account cannot sign in.
type why struct {
	Can      bool
	Sentence string   // that they can, or all reasons why not
	Notes    []string // what else people ask support about: links, the last login
}

// whyOf reads what Login checks from the store, and who caused it and when from the history.
func whyOf(ctx context.Context, db *userdb.DB, t *userdb.Type, e userdb.Entry) (why, error) {
	hint := hints.Key(e.Key())
	standing, err := t.Standing(ctx, hint)
	if err != nil {
		return why{}, err
	}
	history, err := t.History(ctx, hint)
	if err != nil {
		return why{}, err
	}
	origins := 0
	if standing.Wait > 0 {
		origins = guessing(ctx, db, e)
	}
	return explain(standing, history, origins, time.Now()), nil
}

// explain puts a standing into words. origins is the number of origins that wrong passwords came
// from, or 0 if unknown.
func explain(s userdb.Standing, history []userdb.HistoryEvent, origins int, now time.Time) why {
	var reasons []string
	if s.Disabled {
		reasons = append(reasons, "the account is disabled"+by(history, "disable"))
	}
	switch s.Password {
	case userdb.PasswordNone:
		reasons = append(reasons, "the account has no password")
	case userdb.PasswordUnusable:
		reasons = append(reasons, "its password is stored in a form that cannot be checked here, so a new one is needed")
	}
	if s.Wait > 0 {
		text := "they have to wait until " + clock(minuteAfter(now.Add(s.Wait)), now) + " after " + counted(s.Failures, "wrong guess") + ifAny(" from ", originWords(origins))
		if familiar := ownBudgets(s); familiar > 0 {
			text += " (except at " + counted(familiar, "place") + " where they have signed in before)"
		}
		reasons = append(reasons, text)
	}
	if s.Identifiers == 0 {
		reasons = append(reasons, "the account has no name or address to sign in with")
	}
	w := why{Can: len(reasons) == 0, Sentence: "They can sign in with the right password."}
	if !w.Can {
		w.Sentence = "They cannot sign in: " + strings.Join(reasons, "; ") + "."
	}
	if link := linkWords(s, history, now); link != "" {
		w.Notes = append(w.Notes, link)
	}
	if s.LastLogin.IsZero() {
		w.Notes = append(w.Notes, "There is no record of a sign-in in the last 90 days.")
	} else {
		w.Notes = append(w.Notes, "They last signed in at "+clock(s.LastLogin, now)+".")
	}
	return w
}

// clock formats a time, without the date if that is today.
func clock(at, now time.Time) string {
	at, now = at.UTC(), now.UTC()
	if at.YearDay() == now.YearDay() && at.Year() == now.Year() {
		return at.Format("15:04 UTC")
	}
	return at.Format("2 January 2006 15:04 UTC")
}

// minuteAfter rounds a time up to a full minute, so that whatever ends at that time has ended by
// then.
func minuteAfter(at time.Time) time.Time { return at.Add(time.Minute - 1).Truncate(time.Minute) }

// by returns who caused the last event of a kind and when, or "" if no history tells.
func by(history []userdb.HistoryEvent, kind userdb.EventKind) string {
	for _, e := range history {
		if e.Kind == kind {
			return ", by " + inSentence(whoOf(e)) + " at " + e.At.UTC().Format("2 January 2006 15:04 UTC")
		}
	}
	return ""
}

// inSentence returns text with its first letter in lower case, for use within a sentence.
func inSentence(text string) string {
	first, n := utf8.DecodeRuneInString(text)
	if n == 0 || first == utf8.RuneError {
		return text
	}
	return string(unicode.ToLower(first)) + text[n:]
}

func originWords(n int) string {
	if n == 0 {
		return ""
	}
	return counted(n, "origin")
}

// ownBudgets returns the number of familiar origins that have attempts left, whatever strangers do.
func ownBudgets(s userdb.Standing) (n int) {
	for _, f := range s.Familiar {
		if f.Left > 0 {
			n++
		}
	}
	return n
}

// mostGuesses limits how many of the latest logins are searched for the origins of guesses.
const mostGuesses = 1000

// guessing returns from how many origins somebody tried passwords of an account since its last
// login.
func guessing(ctx context.Context, db *userdb.DB, e userdb.Entry) int {
	page, err := db.Events(ctx, userdb.EventQuery{Latest: true, Kinds: []userdb.EventKind{userdb.EventLogin, userdb.EventLoginFailed}, Key: e.Key(), Limit: mostGuesses})
	if err != nil {
		return 0 // the page leaves it out
	}
	origins := map[string]bool{}
	for _, event := range page.Events {
		if event.Kind == "login" {
			break
		}
		if event.Origin != "" {
			origins[event.Origin] = true
		}
	}
	return len(origins)
}

// linkWords describes what became of the last link for a new password.
func linkWords(s userdb.Standing, history []userdb.HistoryEvent, now time.Time) string {
	at := slices.IndexFunc(history, func(e userdb.HistoryEvent) bool { return e.Kind == "issue" && e.Purpose == resetPurpose })
	if at < 0 {
		return ""
	}
	issued := history[at]
	text := "A reset link was issued at " + clock(issued.At, now) + "; it "
	for _, token := range s.Tokens {
		if token.Purpose == resetPurpose {
			return text + "is unused and valid until " + clock(token.Until, now) + "."
		}
	}
	for _, e := range slices.Backward(history[:at]) { // later events in order of time
		switch {
		case e.Kind == "redeem" && e.Purpose == resetPurpose:
			return text + "was used at " + clock(e.At, now) + "."
		case e.Kind == "password":
			return text + "became invalid when a password was set at " + clock(e.At, now) + "."
		case e.Kind == "disable":
			return text + "became invalid when the account was disabled at " + clock(e.At, now) + "."
		case e.Kind == "identifier" || e.Kind == "update":
			for _, field := range issued.Fields {
				if slices.Contains(e.Fields, field) {
					return text + "became invalid when " + field + " was changed at " + clock(e.At, now) + "."
				}
			}
		}
	}
	return text + "has expired."
}
