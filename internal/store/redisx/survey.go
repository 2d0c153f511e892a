package redisx

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
)

// Survey asks a server about itself in one round trip. If closely is true, it also asks for the
// clock, and for settings that an application's least privileges do not cover. It leaves out
// whatever the server forbids it to ask. name is the server's address; if it is "" and closely is
// true, Survey asks for the address as well. The error is ErrUnsuitable if the server is a
// Sentinel.
func Survey(ctx context.Context, c redis.Cmdable, name string, closely bool) (store.Server, error) {
	const nameless = "that Sentinels name"
	if !closely {
		info, err := c.Info(ctx).Result()
		if err != nil && !IsServerReply(err) {
			return store.Server{}, Fail(err)
		}
		return parseInfo(cmp.Or(name, nameless), info), refuseSentinel(info)
	}
	pipe := c.Pipeline()
	info, clock, self := pipe.Info(ctx), pipe.Time(ctx), pipe.Do(ctx, "client", "info")
	fsync, save, replicas := pipe.ConfigGet(ctx, "appendfsync"), pipe.ConfigGet(ctx, "save"), pipe.ConfigGet(ctx, "min-replicas-to-write")
	before := time.Now()
	cmds, err := pipe.Exec(ctx)
	after := time.Now()
	if Unanswered(cmds, err) {
		return store.Server{}, Fail(err)
	}
	if err := refuseSentinel(info.Val()); err != nil {
		return store.Server{}, err
	}
	if at, _ := self.Text(); name == "" {
		_, at, _ = strings.Cut(at, " laddr=")
		name, _, _ = strings.Cut(at, " ")
	}
	s := parseInfo(cmp.Or(name, nameless), info.Val())
	s.AppendFsync, s.MinReplicas = fsync.Val()["appendfsync"], parseNumber(replicas.Val()["min-replicas-to-write"])
	if points, ok := save.Val()["save"]; ok {
		s.Save = cmp.Or(points, store.NoSave)
	}
	if now, err := clock.Result(); err == nil {
		reading := store.ClockOf(now, before, after)
		s.Clock = &reading
	}
	return s, nil
}

// refuseSentinel returns an error if a server's reply to INFO says that it is a Sentinel.
func refuseSentinel(info string) error {
	if infoField(info, "redis_mode") != "sentinel" {
		return nil
	}
	return fmt.Errorf("%w: the server is a Sentinel, which holds no records; "+
		"write redis+sentinel://HOST:PORT?master_name=NAME in place of redis://HOST:PORT", store.ErrUnsuitable)
}

// parseInfo parses the reply to INFO.
func parseInfo(name, info string) store.Server {
	s := store.Server{
		Name: name, Eviction: infoField(info, "maxmemory_policy"), Replicas: parseNumber(infoField(info, "connected_slaves")),
		LastSave: infoField(info, "rdb_last_bgsave_status"), LastAppend: infoField(info, "aof_last_write_status"),
		ReplID: infoField(info, "master_replid"),
	}
	// Other products also report the version of Redis that they correspond to.
	product := cmp.Or(infoField(info, "server_name"), "redis")
	if version := infoField(info, product+"_version"); version != "" {
		s.Version = product + " " + version
	}
	switch infoField(info, "role") {
	case "master":
		s.Role = store.RoleMaster
	case "slave":
		s.Role = store.RoleReplica
	}
	switch infoField(info, "aof_enabled") {
	case "1":
		s.AppendOnly = "yes"
	case "0":
		s.AppendOnly = "no"
	}
	return s
}

// parseNumber parses a number from a server, or returns nil.
func parseNumber(text string) *int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// infoField returns the value of a field in a reply to INFO, or "" if the field is missing.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
