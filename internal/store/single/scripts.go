package single

import (
	_ "embed"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
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
	//go:embed scripts/discard.lua
	discardLua string
	//go:embed scripts/members.lua
	membersLua string
	//go:embed scripts/throttle.lua
	throttleLua string
)

var (
	changeScript   = newScript(store.TokensLua+guardLua+changeLua, store.IsVerdict)
	createScript   = newScript(createLua, store.IsNumber)
	updateScript   = newScript(updateLua, store.IsNumber)
	tertiaryScript = newScript(guardLua+tertiaryLua, store.IsVerdict)
	lookupScript   = newScript(lookupLua, store.IsList)
	followScript   = newScript(followLua, 0) // it is read into a map
	discardScript  = newScript(discardLua, store.IsVerdict)
	membersScript  = newScript(membersLua, store.IsList)
	throttleScript = newScript(throttleLua, store.IsList)
)

// A script is Lua source, the name under which a server keeps it, and of which kind its replies are.
type script struct {
	source, sha string
	reply       store.Shape
}

func newScript(source string, reply store.Shape) script {
	return script{source, redis.NewScript(source).Hash(), reply}
}
