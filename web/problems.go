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
	Field string      // the facet, or a word such as "password" or "code"; "" for the whole form
	// Rule is the rule of the *userdb.FieldError or *password.PolicyError, or one of "taken",
	// "login", "factor", "verify", "unproven", "wait", "busy", "conflict", "gone", "denied",
	// "unknown" and "unavailable". It is "required" for a missing password, and "date", "number" or
	// "boolean" for a value that the field's codec refuses.
	Rule string
	// Params holds values for the text: "reason", in English; "min" for the rule "min", how many
	// characters a password needs; and "seconds" for the rules "wait" and "busy".
	Params map[string]string
	Text   string // for the visitor, from Texts; see Catalogue.Text for other languages
}

// Problems returns everything that an error says is wrong with a form, and nil for a nil error. Any
// other error, such as a fault of the store, becomes a problem with the rule "unavailable" that
// quotes none of its text.
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
		if policy.Rule == "min" && policy.Min > 1 {
			p.Params["min"] = fmt.Sprint(policy.Min)
		} else if policy.Rule == "min" {
			p.Rule = "required"
		}
	case code == userdb.CodeInvalid && ofField:
		p.Field, p.Rule, p.Params["reason"] = field.Field, field.Rule, field.Reason
		if codec, of := strings.CutPrefix(field.Reason, "not a value of codec "); of && Texts[codec] != "" {
			p.Rule = codec
		}
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
	case code == userdb.CodeNotFound, errors.Is(err, userdb.ErrCursor):
		p.Rule = "gone"
	case code == userdb.CodeScope:
		p.Rule = "denied"
	}
	if _, is := errors.AsType[passkeyError](err); is {
		p.Field = "passkey"
	}
	if own, is := errors.AsType[ownPasswordError](err); is {
		p.Field = own.input
	}
	p.Text = Texts.Text(p)
	return p
}

// seconds formats d in whole seconds, rounded up.
func seconds(d time.Duration) string { return fmt.Sprint(int64((d + time.Second - 1) / time.Second)) }

// problemsIn returns the problems of an error with texts in a language.
func problemsIn(language string, err error) []Problem {
	all := Problems(err)
	for i := range all {
		all[i].Text = catalogueOf(language).Text(all[i])
	}
	return all
}
