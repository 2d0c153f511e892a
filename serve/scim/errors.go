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
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// An Error is the body of a response to a request that failed (RFC 7644, section 3.12).
type Error struct {
	Status int
	Type   string // scimType, or ""
	Detail string
}

func (e *Error) Error() string { return e.Detail }

// ErrorCode returns the code for the status. It returns [userdb.CodeUsage] if no other code fits,
// as for a filter that cannot be parsed.
func (e *Error) ErrorCode() userdb.Code {
	for _, code := range []userdb.Code{userdb.CodeNotFound, userdb.CodeDuplicate, userdb.CodeOther} {
		if status, _ := code.SCIM(); status == e.Status {
			return code
		}
	}
	return userdb.CodeUsage
}

// Write writes the error as the response. It keeps headers that are already set.
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

// markPartial marks err with ErrPartial, because some changes, which done describes to the client,
// were made before it. It does not mark an error that says that the resource was not found: the
// changes were deleted with it.
func markPartial(done string, err error) error {
	if err == nil || errors.Is(err, userdb.ErrNotFound) || errors.Is(err, errNotFound) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrPartial, done, err)
}

var errNotFound = &Error{http.StatusNotFound, "", "there is no such resource"}

// isAbsent reports whether err means that a lookup found nothing. This includes values that no
// entry can have.
func isAbsent(err error) bool {
	return errors.Is(err, userdb.ErrNotFound) || errors.Is(err, hints.ErrHint) || errors.Is(err, recordkey.ErrSyntax) || errors.Is(err, userdb.ErrInvalid)
}

// idError returns errNotFound if err means that no resource has the id of the path. Otherwise it
// returns err.
func idError(err error) error {
	if err != nil && !errors.Is(err, userdb.ErrInvalid) && isAbsent(err) {
		return errNotFound
	}
	return err
}

// withAttribute returns an error about a field as one about the attribute that the field stores. It
// returns other errors unchanged.
func (c *call) withAttribute(err error) error {
	refused, is := errors.AsType[*userdb.FieldError](err)
	if !is || errors.Is(err, ErrPartial) {
		return err
	}
	named := *refused
	switch field := refused.Field; {
	case c.fields["username"] == field && c.writesSeveral() && has([]string{"many", "label"}, refused.Rule):
		named.Field = "emails"
	case c.fields["username"] == field && c.writesSeveral():
		named.Field = "userName or emails"
	case c.fields["username"] == field:
		named.Field = "userName"
	case field == admin.GroupName && strings.HasPrefix(strings.TrimPrefix(c.r.URL.Path, Prefix), "/Groups"):
		named.Field = "displayName"
	default:
		for attribute, stored := range c.fields {
			if stored == field {
				named.Field = attributeNames[attribute]
			}
		}
	}
	return &named
}

// attributeNames maps the attributes of a [Mapping], except userName, to their names in responses.
var attributeNames = func() map[string]string {
	names := map[string]string{"externalid": "externalId", "displayname": "displayName", "emails": "emails"}
	for i, part := range lowerNameParts {
		names["name."+part] = "name." + nameParts[i]
	}
	return names
}()

// whyTaken returns the reason why a value is taken. A directory may know that a value is held,
// because it manages all accounts of its type.
func whyTaken(err error) string {
	if refused, is := errors.AsType[*userdb.FieldError](err); is && refused.Rule == "held" {
		return "a resource that had this value holds it for a time"
	}
	return "another resource has this value"
}

// publicError returns the SCIM error for an error of the library. If there is none, it returns err.
func publicError(err error) error {
	_, own := errors.AsType[*Error](err)
	status, scimType := userdb.CodeOf(err).SCIM()
	switch {
	case err == nil || own:
		return err
	case errors.Is(err, ErrOptions): // its text reveals only the type and its fields
		return &Error{http.StatusInternalServerError, "", err.Error()}
	case scimType == uniqueness:
		return &Error{status, scimType, err.Error() + ": " + whyTaken(err)}
	case scimType != "":
		return &Error{status, scimType, strings.ReplaceAll(err.Error(), "\n", "; ")}
	}
	return err
}
