package admin

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"maps"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// OperatorName is the facet with which an operator signs in.
const OperatorName = "name"

// OperatorNamespace is the facet with the namespace in which an operator was made. The operator
// manages that namespace.
const OperatorNamespace = "namespace"

// OperatorAdded is the facet with the time at which an operator was made.
const OperatorAdded = "added"

const operatorType = "operator"

// firstOperator is the UID of the first operator of a store, who is never deleted. If several
// callers create a first operator at the same time, one of them gets this UID. Once it is taken, no
// set-up link is made or accepted.
const firstOperator = "first"

// setupLife is how long a set-up link is valid, and purposeSetup the purpose of its token.
const (
	setupLife    = time.Hour
	purposeSetup = "setup"
)

// ErrAlreadySetUp means that no set-up link is made, because there is already an operator.
var ErrAlreadySetUp = coded.New(userdb.CodeConflict, "there is an operator already")

func declareOperator() schema.Type {
	return schema.Type{Primary: "uid", Fold: schema.FoldCasefold, Factors: true, Fields: map[string]schema.Field{
		OperatorName:      {Role: schema.RoleSecondary | schema.RoleOrdered, Kind: "nickname", Required: true},
		OperatorNamespace: {},
		OperatorAdded:     {Codec: schema.CodecDate},
	}}
}

// PasskeyField is the field of operators for the digests of their passkeys. The stored schema has
// it if the first operator was made by a version that knows passkeys. In other stores
// [IssueEnrolLink] adds it, in a pass over the store.
const PasskeyField = "passkeys"

// withPasskeys returns a copy of the type of operators that has the field for passkeys.
func withPasskeys(t schema.Type) schema.Type {
	t.Fields = maps.Clone(t.Fields)
	t.Fields[PasskeyField] = schema.Field{Role: schema.RoleSecondary, Many: factor.Max, Typed: new(false)}
	return t
}

// Operators returns the type of the operators, who may use the console of db's store. Callers may
// use all methods of the type except Delete: histories name operators, and the first operator keeps
// set-up from starting again.
func Operators(db *userdb.DB) (*userdb.Type, error) {
	operatorDB, err := OpenOperators(db)
	if err != nil {
		return nil, err
	}
	return operatorDB.Type(operatorType)
}

// OpenOperators returns a view of db's store that has only the type of operators, under the stored
// schema if there is one.
func OpenOperators(db *userdb.DB) (*userdb.DB, error) {
	adminDB, err := Open(db)
	if err != nil {
		return nil, err
	}
	return view.Reconfigure(adminDB, func(c *view.Config) {
		c.Schema, c.Builtin = schema.Schema{Types: map[string]schema.Type{operatorType: withPasskeys(declareOperator())}}, true
	})
}

// ErrOperatorDisabled means that an operator was disabled, or was given another password, before
// the operator's request was done.
var ErrOperatorDisabled = coded.New(userdb.CodeLogin, "the operator has been disabled or has another password")

type passwordKey struct{}

// WithPassword returns a context for the requests of a signed-in operator whose password was set at
// the given time. With that context, Create of [Keys] and Issue of [Links] fail if the operator's
// password has changed since.
func WithPassword(ctx context.Context, changed time.Time) context.Context {
	return context.WithValue(ctx, passwordKey{}, changed)
}

// checkOperator returns ErrOperatorDisabled if the operator with a name is disabled, or if the
// operator's password has changed since the time of [WithPassword]. It returns nil for names that
// no operator has, because not only operators make jobs and keys.
//
// Call it after storing a new key, link or job, and remove that again if checkOperator fails. To
// disable an operator, first mark the operator as disabled and then search for the operator's keys,
// links and jobs. Then either checkOperator sees that the operator is disabled, or the search finds
// the new record.
func checkOperator(ctx context.Context, operators *userdb.Type, name string) error {
	changed, _ := ctx.Value(passwordKey{}).(time.Time)
	return checkOperatorSince(ctx, operators, name, changed)
}

// checkOperatorSince does the work of checkOperator with a given time. It returns
// ErrOperatorDisabled if the operator's password was not set at that time, unless the time is zero.
func checkOperatorSince(ctx context.Context, operators *userdb.Type, name string, passwordChanged time.Time) error {
	if name == "" {
		return nil
	}
	e, err := operators.Find(ctx, hints.Field(OperatorName, name))
	switch {
	case errors.Is(err, userdb.ErrNotFound):
		return nil
	case err == nil && e.Disabled(), err == nil && !passwordChanged.IsZero() && !e.PasswordChanged().Equal(passwordChanged):
		return ErrOperatorDisabled
	}
	return err
}

// AddOperator makes an operator. For a bad name or password, it returns the errors of
// [userdb.Type.Create].
func AddOperator(ctx context.Context, db *userdb.DB, name, password string) (userdb.Entry, error) {
	operators, err := Operators(db)
	if err != nil {
		return userdb.Entry{}, err
	}
	exists, err := operators.Exists(ctx, hints.UID(firstOperator))
	if err != nil {
		return userdb.Entry{}, err
	}
	if !exists {
		e, err := operators.Create(ctx, newOperator(db, firstOperator, name, password))
		if !takenUID(err) {
			return e, err
		}
	}
	return operators.Create(ctx, newOperator(db, "", name, password))
}

// newOperator returns a new operator of db's namespace, with the name as it was entered. Create
// refuses it if the password is empty.
func newOperator(db *userdb.DB, uid, name, password string) userdb.NewEntry {
	facets := schema.Texts(OperatorName, name)
	if ns := namespaceOf(db); ns != "" {
		facets[OperatorNamespace] = schema.Text(ns)
	}
	return userdb.NewEntry{UID: uid, Facets: facets, Password: password, RequirePassword: true}
}

// takenUID reports whether err means that another entry has the UID of a new one.
func takenUID(err error) bool {
	field, ok := errors.AsType[*userdb.FieldError](err)
	return ok && errors.Is(field, userdb.ErrDuplicate) && field.Field == "uid"
}

// BeginSetup returns the token of a new set-up link: 208 random bits, of which the store keeps a
// hash for an hour. The link is valid only in db's namespace. Links do not replace each other, so
// that each process can print one. The error is ErrAlreadySetUp if there is an operator.
func BeginSetup(ctx context.Context, db *userdb.DB) (secret string, err error) {
	operators, err := Operators(db)
	if err != nil {
		return "", err
	}
	exists, err := operators.Exists(ctx, hints.UID(firstOperator))
	if err == nil && exists {
		err = ErrAlreadySetUp
	}
	if err != nil {
		return "", err
	}
	var random [tokenBytes]byte
	rand.Read(random[:]) // never fails, according to its documentation
	secret = base64.RawURLEncoding.EncodeToString(random[:])
	v, prk, err := setupKey(db, secret)
	if err == nil {
		_, err = v.Engine.Invite(ctx, token.Invitation{
			Token: token.Token{Hash: Hash(secret), Purpose: purposeSetup, Value: namespaceOf(db)}, PRK: prk, Life: setupLife, Now: v.StoreTime(),
		})
	}
	if err != nil {
		return "", err
	}
	return secret, nil
}

// The token of a set-up link has tokenBytes random bytes. It is stored like a token of an entry
// whose UID consists of setupPrefix and the first linkIDLength characters of the token. No operator
// has such a UID. The other characters have 160 random bits.
const (
	tokenBytes   = 26
	setupPrefix  = "setup-"
	linkIDLength = 8
)

// setupKey returns the view and the primary key under which the token of a set-up link is stored.
// It returns ErrNotFound for a text that is not a token.
func setupKey(db *userdb.DB, secret string) (*view.View, recordkey.Key, error) {
	if random, err := base64.RawURLEncoding.Strict().DecodeString(secret); err != nil || len(random) != tokenBytes {
		return nil, recordkey.Key{}, userdb.ErrNotFound
	}
	prk, err := recordkey.PRK(operatorType, "uid", setupPrefix+secret[:linkIDLength])
	return view.Of(db), prk.In(view.Reserved), err
}

// CheckSetup checks that a set-up link is valid in db's namespace. It returns ErrNotFound if the
// link is for another namespace, has expired or never existed, or if there is already an operator.
func CheckSetup(ctx context.Context, db *userdb.DB, secret string) error {
	operators, err := Operators(db)
	if err != nil {
		return err
	}
	v, prk, err := setupKey(db, secret)
	var kept token.Token
	if err == nil {
		kept, _, err = v.Engine.Peek(ctx, prk, Hash(secret), v.StoreTime())
	}
	if err == nil && kept.Value != namespaceOf(db) {
		err = userdb.ErrNotFound
	}
	if err != nil {
		return err
	}
	exists, err := operators.Exists(ctx, hints.UID(firstOperator))
	if err == nil && exists {
		err = userdb.ErrNotFound
	}
	return err
}

// SetUp makes the first operator with a set-up link. It returns ErrNotFound in the same cases as
// CheckSetup, and if somebody else becomes the first operator at the same time. If the name or the
// password is refused, the link stays valid.
func SetUp(ctx context.Context, db *userdb.DB, secret, name, password string) (userdb.Entry, error) {
	if err := CheckSetup(ctx, db, secret); err != nil {
		return userdb.Entry{}, err
	}
	operators, err := Operators(db)
	if err != nil {
		return userdb.Entry{}, err
	}
	e, err := operators.Create(ctx, newOperator(db, firstOperator, name, password))
	if takenUID(err) {
		err = userdb.ErrNotFound
	}
	return e, err
}
