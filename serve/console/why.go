package console

import (
	"context"
	"errors"
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

// An explanation tells operators that the owner of an account can sign in, or why not.
type explanation struct {
	Can      bool
	Sentence string   // that they can, or all reasons why not
	Notes    []string // what else people ask support about: links, the last login
}

// A loginReport holds the login status of an account, an explanation of it, and the history, which
// says who caused it and when.
type loginReport struct {
	why     explanation
	status  userdb.LoginStatus
	history []userdb.HistoryEvent
}

// reportLogin reads the login status and the history of an account, and explains them.
func reportLogin(ctx context.Context, db *userdb.DB, t *userdb.Type, e userdb.Entry) (r loginReport, err error) {
	hint := hints.Key(e.Key())
	if r.status, err = t.LoginStatus(ctx, hint); err != nil {
		return r, err
	}
	if r.history, err = t.History(ctx, hint); err != nil && !errors.Is(err, userdb.ErrNoHistory) {
		return r, err
	}
	var origins []string
	if r.status.Failures > 0 {
		origins = guessOrigins(ctx, db, e)
	}
	r.why = explain(r.status, r.history, origins, time.Now())
	if e.Unproven() {
		r.why.Notes = append(r.why.Notes, unprovenNote)
	}
	return r, nil
}

const unprovenNote = "Somebody registered this account without showing that its address is theirs. If that address is replaced or removed before it is verified, the account loses its tags."

// explain puts a login status into words. origins are those that wrong passwords came from, as far
// as is known, the latest first.
func explain(s userdb.LoginStatus, history []userdb.HistoryEvent, origins []string, now time.Time) explanation {
	var reasons []string // why not with a password
	switch s.Password {
	case userdb.PasswordNone:
		reasons = append(reasons, "the account has no password")
	case userdb.PasswordUnusable:
		reasons = append(reasons, "its password is stored in a form that cannot be checked here, so a new one is needed")
	}
	if s.Wait > 0 {
		text := "they have to wait until " + formatClock(roundUpToMinute(now.Add(s.Wait)), now)
		if familiar := countFamiliar(s); familiar > 0 {
			text += ", except at " + pluralize(familiar, "place") + " where they have signed in before,"
		}
		reasons = append(reasons, text+" after "+pluralize(s.Failures, "wrong guess")+prefixIfAny(" from ", originsText(len(origins))))
	}
	if s.Identifiers == 0 {
		reasons = append(reasons, "the account has no name or address to sign in with")
	}
	second, cannot := explainSecondStep(s.SecondStep, now)
	if cannot {
		reasons = append(reasons, second...)
	}
	passkey := slices.Contains(s.SecondStep.Usable, "passkey")
	w := explanation{Can: !s.Disabled && (passkey || len(reasons) == 0)}
	if s.Disabled {
		reasons = slices.Insert(reasons, 0, "the account is disabled"+byWhom(history, "disable"))
	}
	switch why := strings.Join(reasons, "; ") + "."; {
	case !w.Can:
		w.Sentence = "They cannot sign in: " + why
	case len(reasons) > 0:
		w.Sentence = "They can sign in with a passkey, but not with a password: " + why
	case passkey:
		w.Sentence = "They can sign in with a passkey, or with the right password and a second step."
	case len(s.SecondStep.Methods) > 0:
		w.Sentence = "They can sign in with the right password and a second step."
	default:
		w.Sentence = "They can sign in with the right password."
	}
	if !cannot {
		w.Notes = second
	}
	if s.Failures > 0 {
		w.Notes = append(w.Notes, guessesText(s.Failures, origins))
	}
	if link := resetLinkText(s, history, now); link != "" {
		w.Notes = append(w.Notes, link)
	}
	if last := lastSignIn(s, history); last.IsZero() {
		w.Notes = append(w.Notes, "There is no record of a sign-in in the last 90 days.")
	} else {
		w.Notes = append(w.Notes, "They last signed in at "+formatClock(last, now)+".")
	}
	return w
}

// lastSignIn returns the time of the last login or start of a session that is recorded, or the zero
// time. A login status knows only logins with an origin.
func lastSignIn(s userdb.LoginStatus, history []userdb.HistoryEvent) time.Time {
	last := s.LastLogin
	for _, e := range history {
		if e.Kind == userdb.EventSessionStart && e.Time.After(last) {
			last = e.Time
		}
	}
	return last
}

// explainSecondStep says what keeps the owner of an account from taking the second step. If they
// cannot take it at all, cannot is true and the texts are reasons; otherwise the texts are
// sentences.
func explainSecondStep(s userdb.SecondStep, now time.Time) (texts []string, cannot bool) {
	app, codes, passkey := slices.Contains(s.Usable, "totp"), s.RecoveryCodes > 0, slices.Contains(s.Usable, "passkey")
	switch {
	case s.Damaged && !app && !codes && !passkey:
		return []string{"the account’s data for the second step is missing or cannot be read here, so no code or passkey is accepted; the Check page says what is wrong"}, true
	case s.Wait > 0 && !codes && !passkey:
		return []string{"after " + pluralize(s.WrongCodes, "wrong code") + " no code of their app is checked until " + formatClock(roundUpToMinute(now.Add(s.Wait)), now) + ", except where they have signed in before, and no recovery code is left"}, true
	}
	if s.Damaged {
		texts = append(texts, "Some of the account’s data for the second step is missing or cannot be read here. "+otherWay(codes, passkey)+" still works.")
	}
	if s.Wait > 0 {
		texts = append(texts, "After "+pluralize(s.WrongCodes, "wrong code")+", no code of their app is checked until "+formatClock(roundUpToMinute(now.Add(s.Wait)), now)+", except where they have signed in before. "+otherWay(codes, passkey)+" works. Somebody else may know the password.")
	} else if s.WrongCodes > 0 {
		texts = append(texts, "There were "+pluralize(s.WrongCodes, "wrong code")+" within a day from places where they have not signed in before.")
	}
	if (app || passkey) && !codes && !s.Damaged {
		texts = append(texts, "They have no recovery codes left.")
	}
	return texts, false
}

// otherWay names a method that works for the second step, preferably not the code of an app.
func otherWay(codes, passkey bool) string {
	switch {
	case passkey:
		return "A passkey"
	case codes:
		return "A recovery code"
	}
	return "A code of their app"
}

// formatClock formats a time, without the date if that is today.
func formatClock(at, now time.Time) string {
	at, now = at.UTC(), now.UTC()
	if at.YearDay() == now.YearDay() && at.Year() == now.Year() {
		return at.Format("15:04 UTC")
	}
	return at.Format("2 January 2006 15:04 UTC")
}

// roundUpToMinute rounds a time up to a full minute, so that a wait is over at the time that is
// shown.
func roundUpToMinute(at time.Time) time.Time { return at.Add(time.Minute - 1).Truncate(time.Minute) }

// byWhom returns who caused the last event of a kind and when, or "" if the history does not say.
func byWhom(history []userdb.HistoryEvent, kind userdb.EventKind) string {
	for _, e := range history {
		if e.Kind == kind {
			return ", by " + lowerFirst(actorText(e)) + " at " + e.Time.UTC().Format("2 January 2006 15:04 UTC")
		}
	}
	return ""
}

// lowerFirst returns text with its first letter in lower case, for use within a sentence.
func lowerFirst(text string) string {
	first, n := utf8.DecodeRuneInString(text)
	if n == 0 || first == utf8.RuneError {
		return text
	}
	return string(unicode.ToLower(first)) + text[n:]
}

// maxOriginsShown is how many origins of wrong guesses a page names.
const maxOriginsShown = 3

// guessesText says how many guesses were wrong, and where they came from.
func guessesText(n int, origins []string) string {
	text := capitalize(pluralize(n, "wrong guess"))
	if len(origins) == 0 {
		return text + " lately."
	}
	text += " lately, from " + pluralize(len(origins), "address") + ": " + strings.Join(origins[:min(len(origins), maxOriginsShown)], ", ")
	if len(origins) > maxOriginsShown {
		text += " and others"
	}
	return text + "."
}

// capitalize returns text with its first letter in upper case.
func capitalize(text string) string {
	first, n := utf8.DecodeRuneInString(text)
	if n == 0 || first == utf8.RuneError {
		return text
	}
	return string(unicode.ToUpper(first)) + text[n:]
}

func originsText(n int) string {
	if n == 0 {
		return ""
	}
	return pluralize(n, "origin")
}

// countFamiliar returns the number of familiar origins that have attempts left, which other origins
// cannot use up.
func countFamiliar(s userdb.LoginStatus) (n int) {
	for _, f := range s.Familiar {
		if f.Remaining > 0 {
			n++
		}
	}
	return n
}

// maxSignIns limits how many of the latest sign-ins a page reads, for the tab that lists them and
// to find the origins of guesses.
const maxSignIns = 1000

// guessOrigins returns the origins from which somebody has tried passwords of an account since its
// last login, the latest first.
func guessOrigins(ctx context.Context, db *userdb.DB, e userdb.Entry) (origins []string) {
	page, err := db.Events(ctx, userdb.EventQuery{Latest: true, Kinds: []userdb.EventKind{userdb.EventLogin, userdb.EventLoginFailed}, Key: e.Key(), Limit: maxSignIns})
	if err != nil {
		return nil // the page leaves them out
	}
	for _, event := range page.Events {
		if event.Kind == "login" {
			break
		}
		if event.Origin != "" && !slices.Contains(origins, event.Origin) {
			origins = append(origins, event.Origin)
		}
	}
	return origins
}

// resetLinkText describes what became of the last link for a new password.
func resetLinkText(s userdb.LoginStatus, history []userdb.HistoryEvent, now time.Time) string {
	at := slices.IndexFunc(history, func(e userdb.HistoryEvent) bool { return e.Kind == "issue" && e.Purpose == resetPurpose })
	if at < 0 {
		return ""
	}
	issued := history[at]
	text := "A reset link was issued at " + formatClock(issued.Time, now) + "; it "
	for _, token := range s.Tokens {
		if token.Purpose == resetPurpose {
			return text + "is unused and valid until " + formatClock(token.Expires, now) + "."
		}
	}
	for _, e := range slices.Backward(history[:at]) { // later events in order of time
		switch {
		case e.Kind == "redeem" && e.Purpose == resetPurpose:
			return text + "was used at " + formatClock(e.Time, now) + "."
		case e.Kind == "password":
			return text + "became invalid when a password was set at " + formatClock(e.Time, now) + "."
		case e.Kind == "disable":
			return text + "became invalid when the account was disabled at " + formatClock(e.Time, now) + "."
		case e.Kind == "identifier" || e.Kind == "update":
			for _, field := range issued.Fields {
				if slices.Contains(e.Fields, field) {
					return text + "became invalid when " + field + " was changed at " + formatClock(e.Time, now) + "."
				}
			}
		}
	}
	return text + "has expired."
}
