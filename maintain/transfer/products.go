package transfer

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/schema"
)

// A product is another account store whose export can be read. Each account in the export is a JSON
// object.
type product struct {
	id string // the name of the ID, which every account must have unless mayLackID is set
	// mayLackID says that accounts may lack the ID, because the product assigns one when it imports
	// them. They get a generated UID.
	mayLackID bool
	keys      []string          // the names that accounts are recognized by
	names     map[string]string // default mapping of names to fields; empty for the primary field
	// clear is a member, in quotes, that every account with a clear password has. Empty means that
	// no account has one.
	clear string
	// check returns an error for an object that is not an account of a person. It moves the id and
	// other names to where keys and names expect them.
	check func(s *productUsers, a account) error
	// parse removes the password and everything else that is not a facet from an account. The names
	// that the options ignore were removed before, and those that remain are mapped to fields.
	parse func(s *productUsers, a account, r *reading) error
}

var productsByName = map[string]product{
	"auth0": {
		id: "user_id", keys: []string{"user_id"}, check: checkAuth0, parse: parseAuth0,
		names: map[string]string{"user_id": "", "email": "email", "email_verified": "verified:email", "username": "name", "created_at": "added"},
	},
	"django": {
		id: "pk", keys: []string{"pk", "model", "fields"}, check: checkDjango, parse: parseDjango,
		names: map[string]string{"pk": "", "email": "email", "username": "name", "date_joined": "added"},
	},
	"firebase": {
		id: "localId", keys: []string{"localId"}, parse: parseFirebase,
		names: map[string]string{"localId": "", "email": "email", "emailVerified": "verified:email", "createdAt": "added"},
	},
	"keycloak": {
		id: "id", mayLackID: true, clear: `"value"`, keys: []string{"id"}, check: checkKeycloak, parse: parseKeycloak,
		names: map[string]string{
			"id": "", "email": "email", "emailVerified": "verified:email", "username": "name", "createdTimestamp": "added",
		},
	},
}

// Products returns the names that ImportOptions.From takes, sorted.
func Products() []string { return slices.Sorted(maps.Keys(productsByName)) }

// parse parses an account: its strings, numbers and booleans become facets under the product's
// names, and product.parse reads its password.
func (s *productUsers) parse(l *line, r *reading) error {
	a, err := accountOf(l.raw)
	if err != nil {
		return err
	}
	if s.check != nil {
		err = s.check(s, a)
	}
	if err == nil && a.text(s.id) == "" && !s.mayLackID {
		err = fmt.Errorf("not an account of this product: it has no %s", s.id)
	}
	if err != nil {
		return err
	}
	for _, name := range s.columns.ignored {
		if _, has := a[name]; has {
			delete(s.columns.unused, name)
			delete(a, name)
		}
	}
	err = s.product.parse(s, a, r)
	for _, name := range slices.Sorted(maps.Keys(a)) {
		r.facets = append(r.facets, facet{name: name, text: a.text(name), parse: schema.ParseText, field: name})
	}
	return err
}

// An account holds the JSON values of an object by name.
type account map[string]string

// accountOf parses an object. Names must match exactly and appear once.
func accountOf(text string) (account, error) {
	a, j := account{}, scanner{text: text}
	j.object(func(name string) { a[name] = j.value() })
	if j.skipSpace(); j.err != nil || j.at < len(text) || !utf8.ValidString(text) {
		return nil, cmp.Or(malformed(text), j.err)
	}
	return a, nil
}

// text returns a string, number or boolean as text, or "" if the value is of another kind or
// missing.
func (a account) text(name string) string { return textOf(a[name]) }

// object returns an object inside the account, or an empty account if it is missing.
func (a account) object(name string) (account, error) {
	if a[name] == "" || a[name] == "null" {
		return account{}, nil
	}
	object, err := accountOf(a[name])
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return object, err
}

// hasAny reports whether the account has one of the names with a value that is not false or empty.
func (a account) hasAny(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		switch strings.Join(strings.Fields(a[name]), "") {
		case "", "null", "false", "[]", "{}", `""`:
			return false
		}
		return true
	})
}

// setText sets a value to a string.
func (a account) setText(name, text string) {
	quoted, _ := json.Marshal(text) // marshaling a string cannot fail
	a[name] = string(quoted)
}

// convertMillis converts milliseconds since 1970, up to the year 9999, into a date. Other values
// stay, and are refused as dates.
func (a account) convertMillis(name string) {
	n, err := strconv.ParseInt(a.text(name), 10, 64)
	if at := time.UnixMilli(n).UTC(); err == nil && at.Year() <= 9999 && at.Year() >= 0 {
		a.setText(name, schema.Date(at).Wire())
	}
}

// setChanged sets when the password was set, if date is a date.
func (r *reading) setChanged(date string) {
	if at, err := ownDate(date, nil); err == nil && !at.IsZero() {
		r.own[columnChanged] = date
	}
}

// setDisabled sets the special column that the flag under name stands for, columnDisabled or
// columnEnabled. If the options map the name, they decide what it means.
func (s *productUsers) setDisabled(a account, r *reading, name, column string) error {
	text := a.text(name)
	if _, mapped := s.columns.to[name]; mapped || text == "" {
		return nil
	}
	if _, isFlag := parseFlag(text); !isFlag {
		return fmt.Errorf("%s is neither true nor false", name)
	}
	r.own[column] = text
	return nil
}

// checkAuth0 sets the ID of an account. The prefix auth0| marks accounts with a password and is
// removed, unless IDs are kept; any other prefix is part of the ID.
func checkAuth0(s *productUsers, a account) error {
	id := cmp.Or(a.text("user_id"), a.text("alt_id"), a.text("_id"))
	if rest, found := strings.CutPrefix(id, "auth0|"); found && !s.keepIDs && !strings.Contains(rest, "|") {
		id = rest
	}
	if id != "" {
		a.setText("user_id", id)
	}
	return nil
}

// parseAuth0 parses an account as Auth0 exports it with its hash, or as Auth0's bulk import accepts
// it.
func parseAuth0(s *productUsers, a account, r *reading) error {
	var identifiers []struct {
		Type, Value string
		Verified    bool
	}
	if raw := a["identifiers"]; a.text("email") == "" && raw != "" {
		if json.Unmarshal([]byte(raw), &identifiers) != nil {
			return errors.New("its identifiers are not those of an export")
		}
		for _, i := range slices.Backward(identifiers) {
			if i.Type == "email" {
				a.setText("email", i.Value)
				a["email_verified"] = strconv.FormatBool(i.Verified)
			}
		}
	}
	custom, err := a.auth0Hash()
	r.hashErr, r.own[columnHash] = err, cmp.Or(custom, a.text("passwordHash"), a.text("password_hash"))
	r.secondFactor = a.hasAny("multifactor", "mfa_factors")
	delete(a, "passwordHash")
	delete(a, "password_hash")
	if date, err := a.object("password_set_date"); err == nil {
		r.setChanged(date.text("$date"))
	}
	return s.setDisabled(a, r, "blocked", columnDisabled)
}

// auth0Hash returns the hash of an account that Auth0 itself imported from elsewhere, or "" if
// there is none.
func (a account) auth0Hash() (string, error) {
	custom, err := a.object("custom_password_hash")
	if err != nil || len(custom) == 0 {
		return "", err
	}
	text, err := custom.object("hash")
	if err != nil {
		return "", err
	}
	how, err := custom.object("password")
	hash, encoding := text.text("value"), cmp.Or(how.text("encoding"), "utf8")
	switch algorithm := custom.text("algorithm"); {
	case err != nil:
		return "", err
	case !slices.Contains([]string{"argon2", "bcrypt", "pbkdf2"}, algorithm):
		return "", fmt.Errorf("its password has the unsupported algorithm %s", records.Quoted(algorithm))
	case hash == "" || encoding != "utf8" && encoding != "ascii":
		return "", fmt.Errorf("its password has no hash, or the unsupported encoding %s", records.Quoted(encoding))
	}
	return hash, nil
}

// checkDjango moves the fields of an account of dumpdata next to its key. Accounts of two models
// can have the same key without being the same account.
func checkDjango(s *productUsers, a account) error {
	fields, err := a.object("fields")
	if err != nil {
		return err
	}
	if _, has := fields["password"]; !has {
		return errors.New("not an account as dumpdata writes it: it has no password")
	}
	if *s.model = cmp.Or(*s.model, a.text("model")); *s.model != a.text("model") {
		return fmt.Errorf("it is of the model %s, but the accounts before it are of %s: import each model separately, into a type of its own",
			records.Quoted(a.text("model")), records.Quoted(*s.model))
	}
	delete(a, "fields")
	maps.Copy(a, fields)
	return nil
}

// parseDjango parses an account of dumpdata.
func parseDjango(s *productUsers, a account, r *reading) error {
	r.own[columnHash] = a.text("password")
	delete(a, "password")
	return s.setDisabled(a, r, "is_active", columnEnabled)
}

// parseFirebase parses an account of auth:export.
func parseFirebase(s *productUsers, a account, r *reading) error {
	hash, salt := a.text("passwordHash"), a.text("salt")
	delete(a, "passwordHash")
	delete(a, "salt")
	a.convertMillis("createdAt")
	a.convertMillis("passwordUpdatedAt")
	r.setChanged(a.text("passwordUpdatedAt"))
	r.secondFactor = a.hasAny("mfaInfo")
	switch {
	case hash == "":
	case strings.HasPrefix(hash, "fakeHash:"):
		r.hashErr = errors.New("its password comes from the emulator, which does not hash passwords")
	case s.firebase.SignerKey == "":
		r.hashErr = errors.New("its password can be verified only with the parameters of the project (userdb import --from-params)")
	case salt == "":
		r.hashErr = errors.New("its password has no salt")
	default:
		r.own[columnHash], r.hashErr = s.firebase.Stored(hash, salt)
	}
	return s.setDisabled(a, r, "disabled", columnDisabled)
}

// paramPattern matches one of Firebase's parameters, as its console shows them or in JSON.
var paramPattern = regexp.MustCompile(`"?\b(algorithm|base64_signer_key|base64_salt_separator|rounds|mem_cost)"?[ \t]*:[ \t]*"?([^\s",}]*)`)

func firebaseParams(text string) (p password.FirebaseScrypt, err error) {
	found := map[string]string{}
	for _, m := range paramPattern.FindAllStringSubmatch(text, -1) {
		if _, again := found[m[1]]; again {
			return p, fmt.Errorf("%s appears twice", m[1])
		}
		found[m[1]] = m[2]
	}
	for _, name := range []string{"base64_signer_key", "base64_salt_separator", "rounds", "mem_cost"} {
		if _, ok := found[name]; !ok || found[name] == "" && name != "base64_salt_separator" {
			return p, fmt.Errorf("%s is missing", name)
		}
	}
	if a := cmp.Or(found["algorithm"], "SCRYPT"); a != "SCRYPT" {
		return p, fmt.Errorf("the algorithm is %s, not SCRYPT", records.Quoted(a))
	}
	rounds, roundsErr := strconv.Atoi(found["rounds"])
	memory, memoryErr := strconv.Atoi(found["mem_cost"])
	if roundsErr != nil || memoryErr != nil {
		return p, errors.New("rounds and mem_cost must be whole numbers")
	}
	p = password.FirebaseScrypt{
		SignerKey: found["base64_signer_key"], SaltSeparator: found["base64_salt_separator"], Rounds: rounds, MemCost: memory,
	}
	if err := checkParams(p); err != nil {
		return p, err
	}
	_, err = p.Stored(p.SignerKey, "AAAAAAAAAAA=") // the key serves as a hash of the right length
	return p, err
}

// checkParams returns an error, in terms of the parameters, if no hash can be verified with them.
func checkParams(p password.FirebaseScrypt) error {
	key, keyErr := decodedLen(p.SignerKey)
	separator, separatorErr := decodedLen(p.SaltSeparator)
	switch {
	case keyErr != nil:
		return errors.New("base64_signer_key is not base64")
	case key < 16 || key > 128:
		return fmt.Errorf("base64_signer_key has %d bytes; want 16 to 128: is it complete?", key)
	case separatorErr != nil:
		return errors.New("base64_salt_separator is not base64")
	case separator > 120: // the separator is appended to a salt of 8 bytes
		return fmt.Errorf("base64_salt_separator has %d bytes; want at most 120", separator)
	case p.Rounds < 1 || p.Rounds > 32:
		return fmt.Errorf("rounds is %d; want 1 to 32", p.Rounds)
	case p.MemCost < 1 || p.MemCost > 20:
		return fmt.Errorf("mem_cost is %d; want 1 to 20", p.MemCost)
	case p.Rounds<<p.MemCost > 2<<20:
		return fmt.Errorf("mem_cost %d and rounds %d take %d MiB a login; want at most 256", p.MemCost, p.Rounds, p.Rounds<<p.MemCost>>13)
	}
	return nil
}

// decodedLen returns the number of bytes that text encodes in either alphabet of base64.
func decodedLen(text string) (int, error) {
	text = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
	raw, err := base64.RawStdEncoding.DecodeString(text)
	return len(raw), err
}
