package single

import (
	_ "embed"

	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

var (
	//go:embed scripts/guard.lua
	guardLua string
	//go:embed scripts/change.lua
	changeLua string
	//go:embed scripts/create.lua
	createLua string
	//go:embed scripts/update.lua
	updateLua string
	//go:embed scripts/tertiary.lua
	tertiaryLua string
	//go:embed scripts/lookup.lua
	lookupLua string
	//go:embed scripts/follow.lua
	followLua string
)

var (
	changeScript   = redisx.NewScript(onekey.TokensLua+guardLua+changeLua, redisx.IsVerdict)
	createScript   = redisx.NewScript(createLua, redisx.IsNumber)
	updateScript   = redisx.NewScript(updateLua, redisx.IsNumber)
	tertiaryScript = redisx.NewScript(guardLua+tertiaryLua, redisx.IsVerdict)
	lookupScript   = redisx.NewScript(lookupLua, redisx.IsList)
	followScript   = redisx.NewScript(followLua, 0) // it is read into a map
)
