package single

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// refusalMutants lists edits of the scripts. Each removes a safeguard that keeps an account whole
// if the server refuses a write.
var refusalMutants = []struct{ name, old, new string }{
	{"tags are dropped before the entry is dead", "  refused = not again and write('HSET', entry, '~isa', '', '~rev', remember, unpack(set))", "  for _, d in ipairs(drops) do drop(d) end\n  refused = not again and write('HSET', entry, '~isa', '', '~rev', remember, unpack(set))"},
	{"a tombstone forgets that the UID is retired", ", ['~retired'] = true", ""},
	{"the tombstone of a retired UID expires", "if fields[i] == '~retired' then return life ~= -1 and redis.call('PERSIST', entry) end", ""},
	{"the SRK of a held value is released", "if giving_up[nrelease + i] then\n", "redis.call('UNLINK', KEYS[4 + nsrk + nrelease + i])\n  if false then\n"},
	{"an import does not notice that a hold is refused", "if type(reply) == 'table' then return redis.error_reply(reply.err) end\nend\nif not live", "end\nif not live"},
	{"an import does not notice that an SRK is refused", "if type(reply) == 'table' and reply.err then return redis.error_reply(reply.err) end\nreturn 1", "return 1"},
	{"the tombstone of a held value never expires", "if not live then end_tombstone(KEYS[1], ARGV[3]) end", ""},
	{"a create does not see that the UID is retired", "  if head[8] then return {'retired', past} end\n", ""},
	{"a claim does not see held values", "      if q[5] and ms_until(q[5]) > 0 then return {'held', n} end\n", ""},
	{"a claim does not see further values", "== value or q[4]) then return {'duplicate', n} end", "== value) then return {'duplicate', n} end"},
	{"a new entry inherits what a delete left", "if verb == 'create' and head[1] then strip(entry) end", ""},
	{"a new entry keeps the time to live of a tombstone", "    redis.call('PERSIST', entry)\n", ""},
	{"tags are replaced without a stage", "stage = KEYS[k + 2]", "stage = KEYS[k + 1]"},
	{"the right to remove facets is not tried", "if unset > 7 or head[5] then", "if false then"},
	{"a change is recorded before it is made", "refused = not again and (permission_error() or store_schema())", "refused = not again and (note(verb, head[6]) or store_schema())"},
	{"an update is recorded before it is made", "  if refused then return refused end\nend\n-- SRKs that the entry takes", "  note('', head[5])\nend\n-- SRKs that the entry takes"},
	{"a tag is recorded before it is added", "  local refused = due and permission_error()\n", "  local refused = due and note_beside(entry, head[6])\n  due = false\n"},
	{"a create is recorded before it is made", "local claimed, reply = ", "if note then pcall('XADD', KEYS[#KEYS], '*', 'e', ARGV[2] .. ' - ' .. line) end\nlocal claimed, reply = "},
	{"a session is recorded before it starts", "  found = put(", "  note_begun()\n  about = ''\n  found = put("},
	{"a token is recorded before it is issued", "local ends = string.format('%.0f', now + ARGV[7])", "note_beside(KEYS[1], head[4])\nabout = ''\nlocal ends = string.format('%.0f', now + ARGV[7])"},
	{"a token is valid before it is stored", "  local first, put, swept = ", "  redis.call('HSET', KEYS[1], '~tokens', first_word)\n  local first, put, swept = "},
	{"a delete does not drop what belongs to the entry", "  for _, d in ipairs(drops) do drop(d) end\n  redis.call('UNLINK', KEYS[4])", "  redis.call('UNLINK', KEYS[4])"},
	{"a create does not drop what is there", "for _, d in ipairs(drops) do drop(d) end\n  if tombstone", "if tombstone"},
}

// TestRefusedMutants checks that TestForbidden or TestRefusedInTheMiddle would notice each of these
// edits.
func TestRefusedMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("runs every call with every command refused, for each mutant")
	}
	srv := redistest.Start(t)
	for _, m := range refusalMutants {
		t.Run(m.name, func(t *testing.T) {
			if !slices.ContainsFunc(allScripts, func(s redisx.Script) bool { return strings.Contains(s.Source, m.old) }) {
				t.Fatalf("no script contains the text to replace: %s", m.old)
			}
			found := ""
			report := func(format string, args ...any) { found = fmt.Sprintf(format, args...) }
			mutate := func(source string) string { return strings.Replace(source, m.old, m.new, 1) }
			for name := range refusedCalls {
				for command := range strings.FieldsSeq(writes) {
					runRefused(t, srv, &refuser{command: command, mutate: mutate, report: report}, name)
				}
				at := 1
				for found == "" && runRefused(t, srv, &refuser{at: at, mutate: mutate, report: report}, name) {
					at++
				}
				if found != "" {
					t.Log(name, found)
					return
				}
			}
			t.Error("no test noticed the edit")
		})
	}
}
