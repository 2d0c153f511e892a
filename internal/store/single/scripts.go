package single

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
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
	//go:embed scripts/throttle.lua
	throttleLua string
)

var (
	changeScript   = newScript(guardLua + changeLua)
	createScript   = newScript(createLua)
	updateScript   = newScript(updateLua)
	tertiaryScript = newScript(guardLua + tertiaryLua)
	lookupScript   = newScript(lookupLua)
	followScript   = newScript(followLua)
	discardScript  = newScript(discardLua)
	throttleScript = newScript(throttleLua)
)

// A script is Lua source and the name under which a server keeps it.
type script struct{ source, sha string }

func newScript(source string) script {
	return script{source, redis.NewScript(source).Hash()}
}
