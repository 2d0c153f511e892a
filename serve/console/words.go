package console

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/mileusna/useragent"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

var templateFuncs = template.FuncMap{
	"time":     formatTime,
	"moment":   formatMoment,
	"path":     accountPath,
	"typePath": typePath,
	"action":   actionText,
	"device":   describeDevice,
	"actor":    func(who string) string { return lowerFirst(actorText(userdb.HistoryEvent{Actor: who})) },
	"shown":    shownName,
	"add":      addName,
	"rows":     rowsName,
	"link":     linkText,
	"kind":     func(kind userdb.EventKind) string { return kindTexts[kind] },
	"who":      actorText,
	"number":   formatNumber[int64],
	"int":      formatNumber[int],
	"count":    func(done float64) string { return formatNumber(int64(done)) },
	"words":    func(all ...string) []string { return all },
	"args":     func(all ...any) []any { return all },
	"join":     func(words []string) string { return strings.Join(words, ", ") },
}

// formatTime returns a time element with the date or, for a time in the last 24 hours, how long ago
// that was. formatMoment adds the time of day to the date. Both treat midnight in UTC as a date
// without a time of day, and return "never" for the zero time. The title of the element has the
// exact time. console.js shows times in the reader's time zone.
func formatTime(at time.Time) template.HTML { return timeElement(at, time.Now(), "2 Jan 2006", "") }

func formatMoment(at time.Time) template.HTML {
	return timeElement(at, time.Now(), "2 Jan 2006 15:04", " data-clock")
}

func timeElement(at, now time.Time, layout, mark string) template.HTML {
	if at.IsZero() {
		return "never"
	}
	at = at.UTC()
	text := at.Format(layout)
	switch age := now.Sub(at); {
	case at.Truncate(24 * time.Hour).Equal(at): // a date, which is the same in all time zones
		text, mark = at.Format("2 Jan 2006"), " data-date"
	case age < 0, age >= 24*time.Hour:
	case age < time.Minute:
		text = "just now"
	case age < time.Hour:
		text = fmt.Sprintf("%d min ago", int(age.Minutes()))
	default:
		text = fmt.Sprintf("%d h ago", int(age.Hours()))
	}
	// Nothing needs escaping: formatted times consist of letters, digits and harmless punctuation.
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s"%s>%s</time>`, at.Format(time.RFC3339), at.Format("2 Jan 2006 15:04:05 UTC"), mark, text)) //nolint:gosec
}

// formatNumber formats n with a comma between groups of three digits.
func formatNumber[N int | int64](n N) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// pluralize returns n with a noun in the singular or plural, and writes small numbers as words.
func pluralize(n int, noun string) string {
	words := []string{"no", "one", "two", "three", "four", "five"}
	count := formatNumber(n)
	if n < len(words) {
		count = words[n]
	}
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "s"):
		noun += "es"
	default:
		noun += "s"
	}
	return count + " " + noun
}

// describeDevice describes a browser in words that its owner knows, such as Safari on iPhone.
func describeDevice(agent string) string {
	ua := useragent.Parse(agent)
	on := cmp.Or(ua.Device, ua.OS)
	if ua.IsUnknown() || on == "" {
		return "An unknown device"
	}
	return ua.Name + " on " + on
}

// accountLabel returns the name that pages show for an account: its first identifier in the order
// of labelFields, or else its UID.
func accountLabel(e userdb.Entry, t schema.Type) string {
	for _, field := range labelFields(t) {
		if text := e.Text(field); text != "" {
			return text
		}
	}
	return e.UID()
}

// labelFields returns the identifying fields in the order in which they serve as labels: names,
// then addresses, then others.
func labelFields(t schema.Type) []string {
	rank := map[string]int{"nickname": 3, "username": 2, "email": 1}
	all := t.Secondary()
	slices.SortStableFunc(all, func(a, b string) int { return rank[t.Fields[b].Kind] - rank[t.Fields[a].Kind] })
	return all
}

// An event holds an event of a history and the label of its account.
type event struct {
	userdb.HistoryEvent
	Path, Label string // of the account, or "" if the event has none
	Count       int    // how many events that differ only in their time this one stands for
}

// Times returns how often an event happened, or "" if it happened once.
func (e event) Times() string {
	if e.Count < 2 {
		return ""
	}
	return formatNumber(e.Count) + " times"
}

// group joins events in a row that differ only in their time. The first of them stays.
func group(all []event) (grouped []event) {
	for _, e := range all {
		e.Count = max(e.Count, 1)
		if n := len(grouped) - 1; n >= 0 && sameEvent(grouped[n].HistoryEvent, e.HistoryEvent) {
			grouped[n].Count += e.Count
			continue
		}
		grouped = append(grouped, e)
	}
	return grouped
}

func sameEvent(a, b userdb.HistoryEvent) bool {
	return a.Kind == b.Kind && a.Actor == b.Actor && a.Origin == b.Origin && a.Key == b.Key && a.Purpose == b.Purpose && slices.Equal(a.Fields, b.Fields)
}

// actorText returns the subject of a sentence about an event: who did it.
func actorText(e userdb.HistoryEvent) string {
	kind, name, named := strings.Cut(e.Actor, ":")
	switch {
	case e.Kind.IsLogin() && e.Kind != userdb.EventOperatorLogin:
		return "A visitor"
	case named && kind == "operator":
		return "Operator " + name
	case named && kind == "key":
		return "Key " + name
	case e.Actor == "command":
		return "The command line"
	case e.Actor == "library":
		return "The application"
	}
	return cmp.Or(e.Actor, "Somebody")
}

// actionText returns the predicate of a sentence about an event: what was done.
func actionText(e userdb.HistoryEvent) string {
	fields := strings.Join(e.Fields, ", ")
	switch e.Kind {
	case "create":
		return "created the account" + prefixIfAny(" with ", fields)
	case "update", "identifier":
		return "changed " + fields
	case "delete":
		return "deleted the account"
	case "tags":
		return "changed " + cmp.Or(fields, "tags")
	case "password":
		return "set the password"
	case "disable":
		return "disabled the account"
	case "enable":
		return "enabled the account"
	case "login":
		return "signed in" + throughKey(e)
	case "login_failed":
		return "failed to sign in" + throughKey(e)
	case "throttle":
		return "had to wait before trying to sign in again"
	case "passkey_clone":
		return "was refused with a passkey of which somebody has a copy"
	case "session_start":
		return "started a session"
	case "session_end":
		return "ended sessions"
	case userdb.EventFactors:
		return factorsText(e.Purpose)
	case userdb.EventFactorLock:
		return "entered too many wrong codes, so codes of the app are not checked for a day"
	case "release":
		return "let others take a former value of " + fields
	case "issue":
		return "issued " + linkText(e.Purpose) + prefixIfAny(" for ", fields)
	case "redeem":
		return "used " + linkText(e.Purpose)
	}
	return operatorActionText(e)
}

// throughKey names the API key with which a visitor signed in, if any.
func throughKey(e userdb.HistoryEvent) string {
	name, ok := strings.CutPrefix(e.Actor, "key:")
	if !ok {
		return ""
	}
	return " through API key " + name
}

// factorsText says which second step an account has after a change. methods lists its methods, with
// commas between them.
func factorsText(methods string) string {
	if methods == "" {
		return "removed the second step"
	}
	var ways []string
	for _, way := range [...]struct{ method, text string }{{"totp", "app"}, {"passkey", "passkey"}, {"recovery", "recovery code"}} {
		if slices.Contains(strings.Split(methods, ","), way.method) {
			ways = append(ways, way.text)
		}
	}
	return "changed the second step" + prefixIfAny(", which is now by ", strings.Join(ways, " or "))
}

// operatorActionText returns what an operator did, or what was done to one.
func operatorActionText(e userdb.HistoryEvent) string {
	name := "“" + e.Purpose + "”"
	switch e.Kind {
	case userdb.EventThrottleReset:
		return "reset the count of wrong guesses"
	case userdb.EventKeyCreate:
		return "created the API key " + name
	case userdb.EventKeyRevoke:
		return "revoked the API key " + name
	case userdb.EventImport:
		return "started an import of accounts" + prefixIfAny(" of type ", e.Purpose)
	case userdb.EventExport:
		return jobText("an export", e)
	case userdb.EventRepair:
		return jobText("a repair", e)
	case userdb.EventOperatorAdd:
		return "created the operator " + name
	case userdb.EventOperatorDisable:
		return "disabled the operator " + name
	case userdb.EventOperatorEnable:
		return "enabled the operator " + name
	case userdb.EventOperatorPassword:
		return "set the password of the operator " + name
	case userdb.EventOperatorLink:
		return "made a link for the second step of the operator " + name
	case userdb.EventOperatorFactor:
		return "added an authenticator app or a passkey for their own sign-in"
	case userdb.EventOperatorNoFactor:
		return "removed the second step of the operator " + name + ", or a part of it"
	case userdb.EventOperatorCodes:
		return "replaced their own recovery codes"
	case userdb.EventOperatorLogin:
		return "signed in to the console"
	case userdb.EventOperatorLoginFailed:
		return "failed to sign in to the console" + prefixIfAny(" as ", e.Purpose)
	}
	return string(e.Kind)
}

// jobText says that a job on one account, on the accounts of a type or on all accounts was started,
// or that a file of a job was downloaded.
func jobText(what string, e userdb.HistoryEvent) string {
	if job, file, ok := strings.Cut(e.Purpose, "/"); ok { // no type has such a name
		return "downloaded the file " + file + " of the job " + job
	}
	if e.Key.IsValid() {
		return "started " + what + " of the account"
	}
	return "started " + what + " of " + cmp.Or(prefixIfAny("accounts of type ", e.Purpose), "all accounts")
}

// kindTexts holds the words for event kinds in the filter of the history page.
var kindTexts = map[userdb.EventKind]string{
	"create": "accounts created", "update": "facets changed", "identifier": "identifiers changed", "delete": "accounts deleted", "tags": "tags changed",
	"password": "passwords set", "disable": "accounts disabled", "enable": "accounts enabled", "session_start": "sessions started", "session_end": "sessions ended",
	"issue": "links issued", "redeem": "links used", "release": "held values released", "login": "signed in", "login_failed": "failed to sign in", "throttle": "had to wait",
	"passkey_clone":     "copies of passkeys refused",
	userdb.EventFactors: "second steps changed", userdb.EventFactorLock: "too many wrong codes",
	userdb.EventThrottleReset: "counts of wrong guesses reset", userdb.EventKeyCreate: "API keys created", userdb.EventKeyRevoke: "API keys revoked", userdb.EventImport: "imports", userdb.EventExport: "exports",
	userdb.EventRepair: "repairs", userdb.EventOperatorAdd: "operators created", userdb.EventOperatorDisable: "operators disabled", userdb.EventOperatorEnable: "operators enabled",
	userdb.EventOperatorPassword: "operator passwords set", userdb.EventOperatorLink: "links for operators’ second steps", userdb.EventOperatorFactor: "operators’ second steps added",
	userdb.EventOperatorNoFactor: "operators’ second steps removed", userdb.EventOperatorCodes: "operators’ recovery codes replaced", userdb.EventOperatorLogin: "operators signed in", userdb.EventOperatorLoginFailed: "operators failed to sign in",
}

func prefixIfAny(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

// linkText returns the words for a token with the given purpose.
func linkText(purpose string) string {
	if purpose == resetPurpose {
		return "a reset link"
	}
	if field, adds := strings.CutPrefix(purpose, userdb.PurposeAdd); adds {
		return "a link that adds another " + field
	}
	if field, changes := strings.CutPrefix(purpose, userdb.PurposeChange); changes {
		return "a link that changes " + field
	}
	return "a link for “" + purpose + "”"
}

// keyPath returns the path of the page of the account with this key.
func keyPath(k recordkey.Key) string {
	if !k.IsValid() {
		return ""
	}
	return accountPath(k.Type(), k.Value())
}
