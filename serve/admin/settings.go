package admin

import (
	"context"
	"errors"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A setting applies to all processes of a store. It is an entry of settingType with one facet.
const (
	settingType  = "setting"
	settingValue = "value"
)

// factorSetting is the UID of the setting that decides whether operators need a second factor.
const factorSetting = "operators-factor"

// The values of this setting.
const (
	required = "required"
	optional = "optional"
)

func declareSetting() schema.Type {
	return schema.Type{Primary: "uid", Fold: schema.FoldExact, Fields: map[string]schema.Field{settingValue: {}}}
}

// RequireFactors sets whether all consoles of db's store keep out operators who have no second
// factor. Such operators can then enrol one only with a link made on the command line.
func RequireFactors(ctx context.Context, db *userdb.DB, require bool) error {
	adminDB, err := Open(db)
	if err != nil {
		return err
	}
	settings, err := adminDB.Type(settingType)
	if err != nil {
		return err
	}
	value := optional
	if require {
		value = required
		_, err := settings.Create(ctx, userdb.NewEntry{UID: factorSetting, Facets: schema.Texts(settingValue, value)})
		if !takenUID(err) {
			return err
		}
	}
	_, err = settings.Update(ctx, hints.UID(factorSetting), func(e *userdb.Entry) error {
		e.Put(settingValue, schema.Text(value))
		return nil
	})
	if !require && errors.Is(err, userdb.ErrNotFound) {
		err = nil
	}
	return err
}

// FactorsRequired returns the value that RequireFactors last set, or false if it never set one.
func FactorsRequired(ctx context.Context, db *userdb.DB) (bool, error) {
	prk, err := recordkey.PRK(settingType, "uid", factorSetting)
	if err != nil {
		return false, err
	}
	r, err := view.Of(db).FindOne(ctx, store.Lookup{PRK: prk.In(view.Reserved)})
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return r.Fields[settingValue] == required, err
}
