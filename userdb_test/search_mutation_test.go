package userdb_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A mutation takes a safeguard out of a deed: what its reads of the entry answer, and what its writes say.
type mutation struct {
	name, deed string // the deed's first word
	tried      bool   // only once it has tried to write a hash
	read       func(now map[string]string, began standing) map[string]string
	write      func(d *drama, args []any)
	cast       []string
	kept       bool // a login that replaces no hash has the safeguard, too
	finds      string
}

func asItBegan(field string) func(map[string]string, standing) map[string]string {
	return func(now map[string]string, began standing) map[string]string {
		if now["~isa"] != "" {
			now[field] = began.fields[field]
		}
		return now
	}
}

func enabled(now map[string]string, _ standing) map[string]string {
	delete(now, "~disabled")
	return now
}

func wholeAsItBegan(_ map[string]string, began standing) map[string]string {
	return maps.Clone(began.fields)
}

var mutations = []mutation{
	{name: "no look behind the check", deed: "login", read: wholeAsItBegan, cast: []string{"login P", "disable"}, kept: true, finds: "login P succeeded"},
	{name: "no look behind the new hash", deed: "login", tried: true, read: wholeAsItBegan, cast: []string{"login P", "set Q"}, finds: "login P succeeded"},
	{name: "the look does not find it gone", deed: "login", read: wholeAsItBegan, cast: []string{"login P", "delete"}, kept: true, finds: "login P succeeded"},
	{name: "disabled is not looked at", deed: "login", read: enabled, cast: []string{"login P", "disable"}, kept: true, finds: "login P succeeded"},
	{name: "the identifier is not looked at", deed: "login", read: asItBegan("name"), cast: []string{"login P", "delete, create P another"}, kept: true, finds: "login P succeeded"},
	{name: "the hash is not looked at", deed: "login", read: asItBegan("password"), cast: []string{"login P", "set Q"}, kept: true, finds: "login P succeeded"},
	{name: "a new hash over any version", deed: "login", write: anyVersion, cast: []string{"login P", "set Q"}, finds: "login P left a hash"},
	{name: "a change from any hash", deed: "change", tried: true, read: asItBegan("password"), cast: []string{"change P Q", "set R"}, kept: true, finds: "change P Q was carried out"},
	{name: "a change of a disabled entry", deed: "change", tried: true, read: enabled, cast: []string{"change P Q", "disable"}, kept: true, finds: "change P Q was carried out"},
	{name: "a change over any version", deed: "change", write: anyVersion, cast: []string{"change P Q", "disable"}, kept: true, finds: "change P Q was carried out"},
}

// anyVersion has a script expect the version that there is.
func anyVersion(d *drama, args []any) {
	now := d.history[len(d.history)-1].rev
	for _, arg := range args {
		text, is := arg.(*string)
		for _, s := range d.history {
			if is && len(s.rev) >= 12 && *text == s.rev[:12] {
				*text = now[:min(12, len(now))]
			}
		}
	}
}

// tamper carries a mutation out.
func (m *mutation) tamper(s *stageOfLogins) *tamper {
	if m == nil {
		return nil
	}
	doing := func(d *drama, who *player) (standing, bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.began[who.id], strings.HasPrefix(string(d.doing[who.id]), m.deed) && (d.tried[who.id] || !m.tried)
	}
	return &tamper{
		before: func(who *player, cmd redis.Cmder) {
			d := s.now
			if _, is := doing(d, who); is && m.write != nil && strings.HasPrefix(cmd.Name(), "eval") {
				m.write(d, cmd.Args())
			}
			if strings.Contains(wordsOf(cmd), "password $2a$") {
				d.mu.Lock()
				d.tried[who.id] = true
				d.mu.Unlock()
			}
		},
		after: func(who *player, cmd redis.Cmder) {
			began, is := doing(s.now, who)
			if fields, reads := cmd.(*redis.MapStringStringCmd); reads && is && m.read != nil && cmd.Name() == "hgetall" {
				fields.SetVal(m.read(maps.Clone(fields.Val()), began))
			}
		},
	}
}

// TestLoginMutations takes one safeguard after the other out, and wants the search to notice.
func TestLoginMutations(t *testing.T) {
	for _, engine := range []string{"single", "cluster"} {
		for _, m := range mutations {
			for name, hash := range hashesOfP(t) {
				if name == "kept" && !m.kept {
					continue
				}
				t.Run(engine+"/"+name+"/"+m.name, func(t *testing.T) {
					t.Parallel()
					wrong, plays := searched(t, engine, hash, m.cast, &m, 4-len(m.cast))
					if !strings.HasPrefix(wrong, m.finds) {
						t.Errorf("after %d orders: %q, want %q", plays, wrong, m.finds)
					}
				})
			}
		}
	}
}
