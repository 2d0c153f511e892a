package scim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// An Error is what a request is answered in place of what it asked for (RFC 7644, 3.12).
type Error struct {
	Status int
	Type   string // scimType; "": none
	Detail string
}

func (e *Error) Error() string { return e.Detail }

// ErrorCode returns the code that goes with the status: [userdb.CodeUsage] for what no other code
// is about, such as a filter that cannot be read.
func (e *Error) ErrorCode() userdb.Code {
	for _, code := range []userdb.Code{userdb.CodeNotFound, userdb.CodeDuplicate, userdb.CodeOther} {
		if status, _ := code.SCIM(); status == e.Status {
			return code
		}
	}
	return userdb.CodeUsage
}

// Write answers a request with an error. Other headers are set already.
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
	_ = json.NewEncoder(w).Encode(body) // a client that is gone is told nothing
}

func refuse(scimType, format string, args ...any) error {
	return &Error{http.StatusBadRequest, scimType, fmt.Sprintf(format, args...)}
}

// The values of scimType that are used.
const (
	invalidFilter = "invalidFilter"
	invalidPath   = "invalidPath"
	invalidSyntax = "invalidSyntax"
	invalidValue  = "invalidValue"
	mutability    = "mutability"
	noTarget      = "noTarget"
	uniqueness    = "uniqueness"
)

// ErrPartly is in an error of a request that was cut off when a part of it may have been done.
var ErrPartly = errors.New("a part is done")

// partly is an error of what comes after a change that was made.
func partly(err error) error {
	if err == nil || absent(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrPartly, err)
}

var errNotFound = &Error{http.StatusNotFound, "", "there is no such resource"}

// absent reports whether an error of a lookup says that there is nothing: also of a value that nothing can have.
func absent(err error) bool {
	return errors.Is(err, userdb.ErrNotFound) || errors.Is(err, hints.ErrHint) || errors.Is(err, recordkey.ErrSyntax) || errors.Is(err, userdb.ErrInvalid)
}

// onID is an error of what was asked for by its id.
func onID(err error) error {
	if err != nil && !errors.Is(err, userdb.ErrInvalid) && absent(err) {
		return errNotFound
	}
	return err
}

// public returns an error of the library in words of SCIM, if it has some. All others are for the
// service to put.
func public(err error) error {
	_, own := errors.AsType[*Error](err)
	status, scimType := userdb.CodeOf(err).SCIM()
	switch {
	case err == nil || own:
		return err
	case errors.Is(err, ErrOptions): // it names the type, or its fields
		return &Error{http.StatusInternalServerError, "", err.Error()}
	case scimType == uniqueness:
		return &Error{status, scimType, err.Error() + ": another resource has this value"}
	case scimType != "":
		return &Error{status, scimType, err.Error()}
	}
	return err
}
