package web

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/userdb"
)

// A Problem describes one thing that is wrong with a form.
type Problem struct {
	Code  userdb.Code // the code of the error; its HTTPStatus is the status to answer with
	Field string      // the facet, or "password", "code" or "passkey", or "" for the whole form
	// Rule is the rule of the *userdb.FieldError or *password.PolicyError, or one of "taken",
	// "login", "factor", "unproven", "verify", "wait", "busy", "conflict", "gone", "unknown" and
	// "unavailable".
	Rule string
	// Params holds values for the text: "reason", in English, and "seconds" for "wait" and "busy".
	Params map[string]string
	Text   string // for the visitor, from Texts
}

// A Catalogue holds the texts of problems. Its keys are a field and a rule ("email taken"), a rule,
// or "", and the first of these that exists is used. A text contains the names of parameters in
// {braces}.
type Catalogue map[string]string

// Texts holds the texts that Problems uses. Change it, or parts of it, before serving. An
// application in several languages has a Catalogue for each and calls its Text method.
var Texts = Catalogue{
	"taken":               "Somebody has this already. Choose another one.",
	"required":            "This is needed.",
	"non-empty":           "This is needed.",
	"email":               "This is not an e-mail address.",
	"size":                "This is too long.",
	"key":                 "This is too long or contains characters that are not allowed.",
	"password min":        "This is too short: {reason}.",
	"password max":        "This is too long.",
	"password blocklist":  "This is one of the most common passwords, which are tried first.",
	"password identifier": "This is your own name or address, which is tried first.",
	"login":               "Wrong name or password.",
	"code login":          "This is not the right code, or it was used before.",
	"code wait":           "There were too many wrong codes. Use a recovery code, or try again tomorrow.",
	"code gone":           "This is no longer valid. Sign in again.",
	"passkey login":       "This passkey was not accepted. Try again, or go on without it.",
	"passkey taken":       "This passkey is in use already.",
	"passkey gone":        "This is no longer valid. Sign in again.",
	"factor number":       "You have as many passkeys and apps as are allowed. Remove one first.",
	"factor last":         "You could not sign in any more. Set a password or add another passkey first.",
	"unproven":            "Confirm your address first.",
	"factor schema":       "Second factors cannot be added here.",
	"factor key":          "Second factors cannot be added here.",
	"factor":              "This account has a second factor, which cannot be entered here.",
	"verify":              "Prove again that it is you, then repeat this.",
	"wait":                "Too many attempts. Try again in {seconds} seconds.",
	"busy":                "Too many people are signing in. Try again in {seconds} seconds.",
	"conflict":            "This was changed in the meantime. Check it and send it again.",
	"gone":                "This is no longer valid.",
	"unavailable":         "The service is not responding. Try again in a moment.",
	"unknown":             "The service is not responding. Check whether this was done before you try again.",
	"provider":            "The other provider did not sign you in. Try again, or sign in here.",
	"linked":              "This is linked to another account here, so it was not linked to yours.",
	"unlinked":            "What you have there is not linked to an account here.",
	"last":                "You could not sign in any more. Set a password or link another account first.",
	"":                    "This is not allowed: {reason}.",
}

// Problems returns everything that an error says is wrong with a form, and nil for a nil error. An
// error that the visitor did not cause becomes a problem with the rule "unavailable" that quotes
// none of its text.
func Problems(err error) []Problem {
	if err == nil {
		return nil
	}
	code := userdb.CodeOf(err)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || code != userdb.CodeInvalid && code != userdb.CodeDuplicate {
		return []Problem{problem(code, err)}
	}
	var all []Problem
	for _, e := range joined.Unwrap() {
		all = append(all, Problems(e)...)
	}
	return all
}

// problem returns the problem for an error that reports one thing.
func problem(code userdb.Code, err error) Problem {
	p := Problem{Code: code, Rule: "unavailable", Params: map[string]string{}}
	field, ofField := errors.AsType[*userdb.FieldError](err)
	policy, ofPolicy := errors.AsType[*password.PolicyError](err)
	wait, throttled := errors.AsType[*userdb.WaitError](err)
	busy, isBusy := errors.AsType[*userdb.BusyError](err)
	if _, ofCode := errors.AsType[codeError](err); ofCode {
		p.Field = "code"
	}
	switch {
	case code == userdb.CodeInvalid && ofPolicy:
		p.Field, p.Rule, p.Params["reason"] = "password", policy.Rule, policy.Reason
	case code == userdb.CodeInvalid && ofField:
		p.Field, p.Rule, p.Params["reason"] = field.Field, field.Rule, field.Reason
	case code == userdb.CodeDuplicate && ofField:
		p.Field, p.Rule = field.Field, "taken"
	case code == userdb.CodeThrottled && throttled:
		p.Rule, p.Params["seconds"] = "wait", seconds(wait.Wait)
	case code == userdb.CodeUnavailable && isBusy:
		p.Rule, p.Params["seconds"] = "busy", seconds(max(busy.Wait, time.Second))
	case errors.Is(err, userdb.ErrOutcomeUnknown), errors.Is(err, userdb.ErrUnconfirmed):
		// The change may have been made, or was made.
		p.Rule = "unknown"
	case code == userdb.CodeLogin:
		p.Rule = "login"
	case code == userdb.CodeFactor:
		p.Rule = "factor"
	case code == userdb.CodeUnproven:
		p.Field, p.Rule = "", "unproven"
	case code == userdb.CodeNotVerified:
		p.Rule = "verify"
	case code == userdb.CodeConflict:
		p.Rule = "conflict"
	case code == userdb.CodeNotFound:
		p.Rule = "gone"
	}
	if _, is := errors.AsType[passkeyError](err); is {
		p.Field = "passkey"
	}
	p.Text = Texts.Text(p)
	return p
}

// seconds formats d in whole seconds, rounded up.
func seconds(d time.Duration) string { return fmt.Sprint(int64((d + time.Second - 1) / time.Second)) }

// Text returns the catalogue's text for a problem.
func (c Catalogue) Text(p Problem) string {
	text, has := c[strings.TrimSpace(p.Field+" "+p.Rule)]
	if !has {
		text, has = c[p.Rule]
	}
	if !has {
		text = c[""]
	}
	for name, value := range p.Params {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return text
}
