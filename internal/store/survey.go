package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrUnsuitable is a server that the promise cannot be kept on, spoken to in this way.
var ErrUnsuitable = errors.New("unsuitable Redis server")

// A Surveyor looks at what it was opened over. The warnings are about what breaks the promise later; the error,
// ErrUnsuitable, is about what can never work. Servers that forbid the looking are passed over.
type Surveyor interface {
	Survey(ctx context.Context) (warnings []string, err error)
}

// OneSlot refuses a client of one server that speaks to a node of a cluster, or to an endpoint that
// spreads keys over several servers: no script could change all records of an entry there.
func OneSlot(ctx context.Context, c redis.Cmdable) error {
	err := c.Eval(ctx, "return 1", []string{"~/probe/1", "~/probe/2"}).Err()
	if hasPrefix(err, []string{"CROSSSLOT", "MOVED", "ASK", "CLUSTERDOWN"}) {
		return fmt.Errorf("%w: it spreads records over several servers; open a cluster by its own URL, redis+cluster://HOST:PORT, "+
			"or with a redis.ClusterClient: %w", ErrUnsuitable, err)
	}
	return nil
}

// Evicts warns of a server that removes records by itself when it is full, and of a replica.
func Evicts(ctx context.Context, c redis.Cmdable, name string) []string {
	var warnings []string
	if info, err := c.Info(ctx, "memory").Result(); err == nil {
		policy := field(info, "maxmemory_policy")
		if policy != "" && policy != "noeviction" {
			warnings = append(warnings, fmt.Sprintf("%s has maxmemory-policy %s: it may remove records, so that one identifier could mean two people; "+
				"set maxmemory-policy noeviction", name, policy))
		}
	}
	if info, err := c.Info(ctx, "replication").Result(); err == nil && field(info, "role") == "slave" {
		warnings = append(warnings, name+" is a replica: it may be behind and takes no writes; open its master")
	}
	return warnings
}

// field reads one line of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
