package own

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// OperatorName is the facet by which an operator signs in.
const OperatorName = "name"

// OperatorNamespace is the facet with the namespace that an operator was made in, and looks after.
const OperatorNamespace = "namespace"

// OperatorAdded is the facet with the time at which an operator was made.
const OperatorAdded = "added"

const operatorType = "operator"

// firstOperator is the UID of the first operator of a store, who is never deleted: of all who make a first operator at the same time,
// one gets it, and while it is taken there is no set-up.
const firstOperator = "first"

// setupLife is how long a set-up link is good, and purposeSetup what its token is for.
const (
	setupLife    = time.Hour
	purposeSetup = "setup"
)

var (
	// ErrSetUp says that there is an operator, so that no set-up link is made.
	ErrSetUp = coded.New(userdb.CodeConflict, "there is an operator")
	// ErrSetupPending says that a set-up link was made within the last hour. Only its maker has it.
	ErrSetupPending = coded.New(userdb.CodeConflict, "a set-up link was made within the hour")
)

func declareOperator() schema.Type {
	return schema.Type{Primary: "uid", Fold: schema.FoldCasefold, Fields: map[string]schema.Field{
		OperatorName:      {Role: schema.RoleSecondary | schema.RoleOrdered, Kind: "nickname", Required: true},
		OperatorNamespace: {},
		OperatorAdded:     {Codec: schema.CodecDate},
	}}
}

// Operators are those who may use the console of the store that a view is of. All verbs of a type are for them but Delete: histories
// name them, and the first one keeps set-up from beginning again.
func Operators(db *userdb.DB) (*userdb.Type, error) {
	own, err := Open(db)
	if err != nil {
		return nil, err
	}
	return own.Type(operatorType)
}

// AddOperator makes an operator. What is wrong with the name or the password is told as by [userdb.Type.Create].
func AddOperator(ctx context.Context, db *userdb.DB, name, password string) (userdb.Entry, error) {
	operators, err := Operators(db)
	if err != nil {
		return userdb.Entry{}, err
	}
	is, err := operators.Exists(ctx, hints.UID(firstOperator))
	if err != nil {
		return userdb.Entry{}, err
	}
	if !is {
		e, err := operators.Create(ctx, newOperator(db, firstOperator, name, password))
		if !takenUID(err) {
			return e, err
		}
	}
	return operators.Create(ctx, newOperator(db, "", name, password))
}

// newOperator returns an operator of the namespace of a view, with facets as they were typed. A password that was left empty is one
// that is too short.
func newOperator(db *userdb.DB, uid, name, password string) userdb.NewEntry {
	facets := schema.Texts(OperatorName, name)
	if ns := namespaceOf(db); ns != "" {
		facets[OperatorNamespace] = schema.Text(ns)
	}
	return userdb.NewEntry{UID: uid, Facets: facets, Password: password, Typed: true}
}

// takenUID reports whether another operator was the first.
func takenUID(err error) bool {
	field, is := errors.AsType[*userdb.FieldError](err)
	return is && errors.Is(field, userdb.ErrDuplicate) && field.Field == "uid"
}

// BeginSetup makes the token of a set-up link: 160 random bits, of which a hash is kept for an hour. ErrSetUp and ErrSetupPending say
// why there is none.
func BeginSetup(ctx context.Context, db *userdb.DB) (token string, err error) {
	operators, err := Operators(db)
	if err != nil {
		return "", err
	}
	is, err := operators.Exists(ctx, hints.UID(firstOperator))
	if err == nil && is {
		err = ErrSetUp
	}
	if err != nil {
		return "", err
	}
	var random [20]byte
	rand.Read(random[:]) // never fails, says its documentation
	token = base64.RawURLEncoding.EncodeToString(random[:])
	v, prk, err := setupAt(db)
	if err == nil {
		err = v.Engine.Invite(ctx, store.Invitation{
			Token: store.Token{Hash: Hash(token), Purpose: purposeSetup}, PRK: prk, Life: setupLife, Now: v.StoreTime(),
		})
	}
	if errors.Is(err, userdb.ErrDuplicate) {
		err = ErrSetupPending
	}
	if err != nil {
		return "", err
	}
	return token, nil
}

// setupAt is where the token of a set-up link lies: where those of the first operator will.
func setupAt(db *userdb.DB) (*view.View, recordkey.Key, error) {
	prk, err := recordkey.PRK(operatorType, "uid", firstOperator)
	return view.Of(db), prk.In(view.Reserved), err
}

// CheckSetup reports whether a set-up link is good. ErrNotFound: it is over, there is an operator, or it is made up.
func CheckSetup(ctx context.Context, db *userdb.DB, token string) error {
	operators, err := Operators(db)
	if err != nil {
		return err
	}
	v, prk, err := setupAt(db)
	if err == nil {
		_, _, err = v.Engine.Peek(ctx, prk, Hash(token), v.StoreTime())
	}
	if err != nil {
		return err
	}
	is, err := operators.Exists(ctx, hints.UID(firstOperator))
	if err == nil && is {
		err = userdb.ErrNotFound
	}
	return err
}

// SetUp makes the first operator, by a set-up link. ErrNotFound is as in CheckSetup; of two at the same time one gets it. A name or a
// password that is refused leaves the link good.
func SetUp(ctx context.Context, db *userdb.DB, token, name, password string) (userdb.Entry, error) {
	if err := CheckSetup(ctx, db, token); err != nil {
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
