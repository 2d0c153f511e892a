package transfer

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/schema"
)

// A keycloakCredential is a credential of an account. SecretData and CredentialData are JSON. The
// members after them are those of older versions, and of files that people write for an import:
// Value is a clear password.
type keycloakCredential struct {
	Type           string `json:"type"`
	CreatedDate    int64  `json:"createdDate"` // in milliseconds; 0 if unknown
	SecretData     string `json:"secretData"`
	CredentialData string `json:"credentialData"`

	Value             string `json:"value"`
	Temporary         bool   `json:"temporary"`         // the owner must set another one
	HashedSaltedValue string `json:"hashedSaltedValue"` // base64; of a second factor, any text
	Salt              string `json:"salt"`              // base64
	HashIterations    int    `json:"hashIterations"`
	Algorithm         string `json:"algorithm"`
}

// checkKeycloak returns an error for an object of a realm that is not the account of a person.
func checkKeycloak(_ *productUsers, a account) error {
	if a["realm"] != "" || a.text("username") == "" {
		return errors.New("not an account but a realm or a part of one: export it with --users same_file and --realm")
	}
	if client := a.text("serviceAccountClientId"); client != "" {
		return errors.New("it is the service account of a client, not of a person")
	}
	return nil
}

// parseKeycloak parses an account of a realm export.
func parseKeycloak(s *productUsers, a account, r *reading) error {
	a.convertMillis("createdTimestamp")
	r.secondFactor, r.requiredAction = a.hasAny("totp"), a.hasAny("requiredActions")
	var all []keycloakCredential
	if raw := a["credentials"]; raw != "" && json.Unmarshal([]byte(raw), &all) != nil {
		return errors.New("its credentials do not have the format of an export")
	}
	for _, c := range all {
		switch c.Type {
		case "password":
		case "password-history":
			continue
		default:
			r.secondFactor = true
			continue
		}
		r.requiredAction = r.requiredAction || c.Temporary
		if c.SecretData == "" && c.Value != "" {
			r.own[columnClear] = c.Value
		} else {
			r.own[columnHash], r.hashErr = c.hash()
		}
		if c.CreatedDate > 0 {
			r.setChanged(schema.Date(time.UnixMilli(c.CreatedDate)).Wire())
		}
	}
	return s.setDisabled(a, r, "enabled", columnEnabled)
}

// hash returns the password hash in a form that login can verify.
func (c keycloakCredential) hash() (string, error) {
	var secret struct{ Value, Salt string }
	var how struct {
		Algorithm            string
		HashIterations       int
		AdditionalParameters map[string][]string
	}
	if c.SecretData == "" && c.HashedSaltedValue != "" {
		secret.Value, secret.Salt, how.Algorithm, how.HashIterations = c.HashedSaltedValue, c.Salt, c.Algorithm, c.HashIterations
		if how.Algorithm == "" || how.Algorithm == "HmacSHA1" { // of the first versions
			how.Algorithm = "pbkdf2"
		}
	} else if json.Unmarshal([]byte(c.SecretData), &secret) != nil || json.Unmarshal([]byte(c.CredentialData), &how) != nil {
		return "", errNotExported
	}
	if how.Algorithm == "bcrypt" && strings.HasPrefix(secret.Value, "$2") { // of keycloak-bcrypt
		return secret.Value, nil
	}
	value, err := base64.StdEncoding.DecodeString(secret.Value)
	if err != nil {
		return "", errNotExported
	}
	salt, err := base64.StdEncoding.DecodeString(secret.Salt)
	if err != nil {
		return "", errNotExported
	}
	more := func(name string) string { return strings.Join(how.AdditionalParameters[name], "") }
	b64 := base64.RawStdEncoding
	switch name, known := keycloakPBKDF2[how.Algorithm]; {
	case known:
		key := value
		if how.Algorithm == "pbkdf2" {
			// The first of several blocks suffices to verify the password, and each block costs all
			// the iterations.
			key = key[:min(20, len(key))]
		}
		text := b64.EncodeToString(salt) + "$" + b64.EncodeToString(key)
		return fmt.Sprintf("$%s$%d$%s", name, how.HashIterations, strings.ReplaceAll(text, "+", ".")), nil
	case how.Algorithm == "argon2" && more("type") == "id" && more("version") == "1.3":
		return fmt.Sprintf("$argon2id$v=19$m=%s,t=%d,p=%s$%s$%s", more("memory"), how.HashIterations, more("parallelism"),
			b64.EncodeToString(salt), b64.EncodeToString(value)), nil
	}
	return "", fmt.Errorf("its password has an unsupported algorithm or parameters: %s", records.Quoted(how.Algorithm))
}

var errNotExported = errors.New("its password does not have the format of an export")

var keycloakPBKDF2 = map[string]string{"pbkdf2": "pbkdf2-sha1", "pbkdf2-sha256": "pbkdf2-sha256", "pbkdf2-sha512": "pbkdf2-sha512"}
