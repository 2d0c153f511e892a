package scim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// An Error is the body of a response to a request that failed (RFC 7644, section 3.12).
type Error struct {
	Status int
	Type   string // scimType, or ""
	Detail string
}

func (e *Error) Error() string { return e.Detail }

// ErrorCode returns the code for the status. It returns [userdb.CodeUsage] if there is no other, as
// for a filter that cannot be parsed.
func (e *Error) ErrorCode() userdb.Code {
	for _, code := range []userdb.Code{userdb.CodeNotFound, userdb.CodeDuplicate, userdb.CodeOther} {
		if status, _ := code.SCIM(); status == e.Status {
			return code
		}
	}
	return userdb.CodeUsage
}

// Write writes the error as the response. It keeps headers that are set already.
func (e *Error) Write(w http.ResponseWriter) {
	body := map[string]any{"schemas": []string{urnError}, "status": strconv.Itoa(e.Status), "detail": e.Detail}
	if e.Type != "" {
		body["scimType"] = e.Type
	}
	write(w, e.Status, body)
}

func write(w http.ResponseWriter, status int, body any) {
	if body == nil {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client is gone
}

func badRequest(scimType, format string, args ...any) error {
	return &Error{http.StatusBadRequest, scimType, fmt.Sprintf(format, args...)}
}

// The values of scimType.
const (
	invalidFilter = "invalidFilter"
	invalidPath   = "invalidPath"
	invalidSyntax = "invalidSyntax"
	invalidValue  = "invalidValue"
	mutability    = "mutability"
	noTarget      = "noTarget"
	tooMany       = "tooMany"
	uniqueness    = "uniqueness"
)

// ErrPartial reports that a request failed after some of its changes were made.
var ErrPartial = errors.New("only a part was done")

// markPartial marks err with ErrPartial, because some changes were made before it. done says which,
// for the client. It does not mark ErrNotFound: the resource was deleted, and the changes with it.
func markPartial(done string, err error) error {
	if err == nil || errors.Is(err, userdb.ErrNotFound) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrPartial, done, err)
}

var errNotFound = &Error{http.StatusNotFound, "", "there is no such resource"}

// isAbsent reports whether err says that a lookup found nothing. This includes values that no entry
// can have.
func isAbsent(err error) bool {
	return errors.Is(err, userdb.ErrNotFound) || errors.Is(err, hints.ErrHint) || errors.Is(err, recordkey.ErrSyntax) || errors.Is(err, userdb.ErrInvalid)
}

// idError returns errNotFound if err says that no resource has the id of the path, and err
// otherwise.
func idError(err error) error {
	if err != nil && !errors.Is(err, userdb.ErrInvalid) && isAbsent(err) {
		return errNotFound
	}
	return err
}

// publicError returns the SCIM error for an error of the library if there is one, and err
// otherwise.
func publicError(err error) error {
	_, own := errors.AsType[*Error](err)
	status, scimType := userdb.CodeOf(err).SCIM()
	switch {
	case err == nil || own:
		return err
	case errors.Is(err, ErrOptions): // its text reveals only the type and its fields
		return &Error{http.StatusInternalServerError, "", err.Error()}
	case scimType == uniqueness:
		return &Error{status, scimType, err.Error() + ": another resource has this value"}
	case scimType != "":
		return &Error{status, scimType, strings.ReplaceAll(err.Error(), "\n", "; ")}
	}
	return err
}
