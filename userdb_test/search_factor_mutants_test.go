package userdb_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/internal/store/session"
)

// A factorMutant is the store without one safeguard: a script is replaced, or an operation gets
// other replies or sends other arguments.
type factorMutant struct {
	name      string
	scenario  factorScenario
	operation string // prefix of the operations that lack the safeguard
	script    redisx.Script
	old, new  string // texts in the script
	read      func(d *factorExecution, who *actor, entry map[string]string)
	write     func(d *factorExecution, args []any)
	violation string // part of what the search must find
}

// tamper returns the tamper that removes the mutant's safeguard. It returns nil if m is nil.
func (m *factorMutant) tamper(s *factorStore) *tamper {
	if m == nil {
		return nil
	}
	lacks := func(who *actor) bool {
		s.current.mu.Lock()
		defer s.current.mu.Unlock()
		return strings.HasPrefix(s.current.running[who.id], m.operation)
	}
	return &tamper{
		before: func(who *actor, cmd redis.Cmder) {
			args := cmd.Args()
			if !lacks(who) {
				return
			}
			if m.script.SHA != "" && args[0] == "evalsha" && args[1] == m.script.SHA {
				args[0], args[1] = "eval", strings.Replace(m.script.Source, m.old, m.new, 1)
			}
			if m.write != nil {
				m.write(s.current, args)
			}
		},
		after: func(who *actor, cmd redis.Cmder) {
			if fields, ok := cmd.(*redis.MapStringStringCmd); ok && m.read != nil && lacks(who) && cmd.Name() == "hgetall" {
				m.read(s.current, who, fields.Val())
			}
		},
	}
}

// hideFactors makes an operation read the entry as if it had no factors.
func hideFactors(_ *factorExecution, _ *actor, entry map[string]string) {
	if entry[factor.FieldMark] != "" {
		entry[store.FieldPassword] = entry[factor.FieldHash]
		delete(entry, factor.FieldMark)
		delete(entry, factor.FieldHash)
	}
}

// readFirst makes an operation read a field as it was at the beginning.
func readFirst(field string) func(*factorExecution, *actor, map[string]string) {
	return func(d *factorExecution, _ *actor, entry map[string]string) {
		entry[field] = d.history[0].entry.Fields[field]
	}
}

// readOnce makes an operation read the entry as it was when it began.
func readOnce(d *factorExecution, who *actor, entry map[string]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(entry)
	maps.Copy(entry, d.history[d.began[who.id]].entry.Fields)
}

// keepGeneration makes a change keep the generation of the entry.
func keepGeneration(d *factorExecution, args []any) {
	for i, arg := range args {
		for _, field := range []string{session.FieldEpoch, store.FieldChanged} {
			if text, ok := arg.(*string); ok && *text == field && i+1 < len(args) {
				*args[i+1].(*string) = d.history[len(d.history)-1].entry.Fields[field]
			}
		}
	}
}

// keepRecord makes a change keep the record of factors.
func keepRecord(d *factorExecution, args []any) {
	key, err := factor.Key(d.account.read.Key())
	must(d.t, err)
	for i, arg := range args {
		if text, ok := arg.(*string); ok && *text == key.String() {
			*text = "~/factor/{user/uid:nobody}"
		} else if arg == key.String() {
			args[i] = "~/factor/{user/uid:nobody}"
		}
	}
}

// expectAnyRev makes a change expect the current rev.
func expectAnyRev(d *factorExecution, args []any) {
	now := store.Rev(d.history[len(d.history)-1].entry.Fields[store.FieldRev])
	for _, arg := range args {
		text, ok := arg.(*string)
		for _, s := range d.history {
			if ok && *text != "" && *text == store.Rev(s.entry.Fields[store.FieldRev]) {
				*text = now
			}
		}
	}
}

// beginLevel2 makes a session begin with level 2.
func beginLevel2(_ *factorExecution, args []any) {
	for i, arg := range args {
		if text, ok := arg.(*string); ok && *text == "begin" && args[1] == onekey.SessionScript.SHA {
			*args[i+9].(*string) = "2"
		}
	}
}

// verifyNow makes a session that follows another one count as verified now.
func verifyNow(_ *factorExecution, args []any) {
	for i, arg := range args {
		if text, ok := arg.(*string); ok && *text == "begin" && args[1] == onekey.SessionScript.SHA {
			*args[i+11].(*string) = ""
		}
	}
}

func scenarioOf(start string, actors ...string) factorScenario {
	return factorScenario{start: start, actors: actors}
}

// withDelay returns a scenario in which a script may be delayed.
func withDelay(s factorScenario) factorScenario {
	s.delays = true
	return s
}

// factorMutants lists stores that lack one safeguard, with a scenario that reveals it.
var factorMutants = []factorMutant{
	{
		name:      "a ticket is not spent",
		scenario:  scenarioOf("one", "prove t1 a-", "prove t1 a"),
		script:    onekey.TicketScript,
		old:       "{name, '- ' .. ms(ends) .. ' ' .. bond .. ' ' .. attempt}",
		new:       "{name, text}",
		violation: "both used ticket",
	},
	{
		name:      "a spent ticket is not remembered",
		scenario:  withDelay(scenarioOf("one", "login P, prove own a-, prove own a")),
		script:    onekey.TicketScript,
		old:       "local left = redis",
		new:       "redis.call('HDEL', record, name)\n  local left = redis",
		violation: "both used ticket",
	},
	{
		name:      "a late command brings a spent ticket back",
		scenario:  withDelay(scenarioOf("one", "login P, prove own a-, prove own a")),
		script:    onekey.TicketScript,
		old:       "if known then return parse(known) and {name, known} or {} end",
		new:       "",
		violation: "both used ticket",
	},
	{
		name:      "any attempt counts as the one that spent the ticket",
		scenario:  scenarioOf("one", "prove t1 a-", "prove t1 a"),
		script:    onekey.TicketScript,
		old:       "spent_by == bond .. ' ' .. attempt",
		new:       "spent_by",
		violation: "both used ticket",
	},
	{
		name:      "an attempt that is sent again is not answered again",
		scenario:  withDelay(scenarioOf("one", "prove t1 a")),
		script:    onekey.TicketScript,
		old:       "spent_by == bond .. ' ' .. attempt",
		new:       "false",
		violation: "refused the owner",
	},
	{
		name:      "a ticket outlives its generation",
		scenario:  scenarioOf("one", "prove t1 a", "disable, enable"),
		script:    onekey.TicketScript,
		old:       "if not t or t.bond ~= bond then",
		new:       "if not t then",
		violation: "with an earlier ticket",
	},
	{
		name:      "a ticket never expires",
		scenario:  scenarioOf("one", "late t1"),
		script:    onekey.TicketScript,
		old:       "or tonumber(ends) <= now then",
		new:       "then",
		violation: "late t1 returned",
	},
	{
		name:      "the step of a code is not compared",
		scenario:  scenarioOf("one", "prove t1 a", "prove t2 a"),
		script:    onekey.TicketScript,
		old:       "if tonumber(number) <= (tonumber((string.match(accepted, '^(%d+):'))) or -1) then",
		new:       "if false then",
		violation: "both used code",
	},
	{
		name:      "used recovery codes are not compared",
		scenario:  scenarioOf("one", "prove t1 r0", "prove t2 r0"),
		script:    onekey.TicketScript,
		old:       "if string.find(',' .. accepted, ',' .. number .. ':', 1, true) then",
		new:       "if false then",
		violation: "both used code",
	},
	{
		name:      "a factor does not remember what it accepted",
		scenario:  scenarioOf("one", "prove t1 a", "prove t2 a"),
		script:    onekey.TicketScript,
		old:       "label, accepted, sealed}",
		new:       "label, '', sealed}",
		violation: "both used code",
	},
	{
		name:      "attempts with one ticket have no limit",
		scenario:  scenarioOf("guessed", "prove t1 y", "prove t1 y"),
		script:    onekey.TicketScript,
		old:       "if tries >= tonumber(ARGV[6]) then return {} end",
		new:       "",
		violation: "2 wrong codes were judged",
	},
	{
		name:      "wrong codes have no limit over all tickets",
		scenario:  scenarioOf("guessed", "prove t1 x", "prove t2 x"),
		script:    onekey.TicketScript,
		old:       "if count >= tonumber(ARGV[8]) then",
		new:       "if false then",
		violation: "2 wrong codes were judged",
	},
	{
		name:      "each unknown origin has attempts of its own",
		scenario:  scenarioOf("guessed", "prove t1 x A", "prove t2 x B"),
		script:    onekey.TicketScript,
		old:       "redis.call('HEXISTS', record, 'origin/' .. origin) == 1 then\n    budget",
		new:       "true then\n    budget",
		violation: "2 wrong codes were judged",
	},
	{
		name:      "an attempt that is sent again counts twice",
		scenario:  withDelay(scenarioOf("one", "prove t1 a")),
		script:    onekey.TicketScript,
		old:       "local counted = string.find(",
		new:       "local counted = verb == 'spend' and string.find(",
		violation: "wrong codes are counted",
	},
	{
		name:      "a right code stays counted as wrong",
		scenario:  scenarioOf("one", "prove t1 a"),
		script:    onekey.TicketScript,
		old:       "if count > 0 then",
		new:       "if false then",
		violation: "wrong codes are counted",
	},
	{
		name:      "a confirmation takes the factor of another one for its own",
		scenario:  scenarioOf("plain", "confirm b", "confirm b"),
		script:    onekey.EnrolScript,
		old:       "(stored == ARGV[5] or name == '')",
		new:       "stored",
		violation: "left no",
	},
	{
		name:      "an enrolment stays after its confirmation",
		scenario:  scenarioOf("one", "confirm b"),
		script:    onekey.EnrolScript,
		old:       "if name ~= '' then redis.call('HDEL', record, name) end",
		new:       "",
		violation: "can be confirmed again",
	},
	{
		name:      "a late command brings a confirmed enrolment back",
		scenario:  withDelay(scenarioOf("plain", "enrol")),
		script:    onekey.EnrolScript,
		old:       "if string.match(all[i], '/(.*)$') == string.sub(name, 9) then return {'ok'} end",
		new:       "",
		violation: "can be confirmed again",
	},
	{
		name:      "a confirmation needs no enrolment",
		scenario:  withDelay(scenarioOf("plain", "confirm b", "delete, create P")),
		script:    onekey.EnrolScript,
		old:       "if name ~= '' and (",
		new:       "if false and (",
		violation: "the new entry has totp",
	},
	{
		name:      "a factor is listed before it is stored",
		scenario:  scenarioOf("plain", "confirm b"),
		script:    onekey.EnrolScript,
		old:       "local writes = {}",
		new:       "if true then return {'ok'} end local writes = {}",
		violation: "left no",
	},
	{
		name:      "a confirmed factor expires as an enrolment does",
		scenario:  scenarioOf("plain", "confirm b"),
		script:    onekey.EnrolScript,
		old:       "redis.call('PERSIST', record)",
		new:       "",
		violation: "the record of the factors expires",
	},
	{
		name:      "an enrolment makes the other factors expire",
		scenario:  scenarioOf("one", "begin"),
		script:    onekey.EnrolScript,
		old:       "if not factors and left",
		new:       "if left",
		violation: "the record of the factors expires",
	},
	{
		name:      "a removed factor makes the others expire",
		scenario:  scenarioOf("two", "remove a"),
		script:    onekey.EnrolScript,
		old:       "if is_factor(member) then return {'ok'} end",
		new:       "",
		violation: "the record of the factors expires",
	},
	{
		name:      "the record stays forever after the last factor is removed",
		scenario:  scenarioOf("one", "remove a"),
		script:    onekey.EnrolScript,
		old:       "redis.call('PEXPIRE', record, '3600000')",
		new:       "",
		violation: "the record stays without a factor",
	},
	{
		name:      "removed factors stay in the record",
		scenario:  scenarioOf("one", "codes"),
		script:    onekey.EnrolScript,
		old:       "for i = 3, #ARGV do\n    local reply = redis.pcall('HDEL'",
		new:       "for i = 3, 0 do\n    local reply = redis.pcall('HDEL'",
		violation: "a factor is left",
	},
	{
		name:      "a rotation of keys forgets which code was used",
		scenario:  scenarioOf("one", "prove t1 a", "rotate"),
		script:    onekey.EnrolScript,
		old:       "if value ~= ARGV[4] then return {} end",
		new:       "",
		violation: "can be used again",
	},
	{
		name:      "the counter of a passkey is not compared",
		scenario:  scenarioOf("key", "prove t1 k5", "prove t2 k5"),
		script:    onekey.TicketScript,
		old:       "if last > 0 and tonumber(number) <= last then",
		new:       "if false then",
		violation: "both used code",
	},
	{
		name:      "the answer of a passkey signs in twice",
		scenario:  scenarioOf("key", "key c 0", "key c 0"),
		script:    onekey.AcceptScript,
		old:       "elseif all[i] == mark then",
		new:       "elseif false then",
		violation: "both used answer",
	},
	{
		name:      "an answer does not raise the counter",
		scenario:  scenarioOf("key", "key c 5", "key d 5"),
		script:    onekey.AcceptScript,
		old:       "counter .. ':' .. attempt",
		new:       "accepted",
		violation: "both used code",
	},
	{
		name:      "the counter of an answer is not compared",
		scenario:  scenarioOf("key", "key c 5", "key d 5"),
		script:    onekey.AcceptScript,
		old:       "last > 0 and tonumber(counter) <= last",
		new:       "false",
		violation: "both used code",
	},
	{
		name:      "an answer that is sent again is not accepted again",
		scenario:  withDelay(scenarioOf("key", "key c 0")),
		script:    onekey.AcceptScript,
		old:       "== attempt and 'ok' or 'used'",
		new:       "== '' and 'ok' or 'used'",
		violation: "refused the owner",
	},
	{
		name:      "a passkey does not read the entry again",
		scenario:  scenarioOf("key", "key c 0", "disable"),
		operation: "key",
		read:      readOnce,
		violation: "succeeded without the factor",
	},
	{
		name:      "a passkey signs in after its removal",
		scenario:  scenarioOf("key", "key c 0", "remove k"),
		operation: "key",
		read:      readOnce,
		violation: "succeeded without the factor",
	},
	{
		name:      "a session is raised with a code that was used",
		scenario:  scenarioOf("one", "raise a", "raise a"),
		script:    onekey.TicketScript,
		old:       "if tonumber(number) <= (tonumber((string.match(accepted, '^(%d+):'))) or -1) then",
		new:       "if false then",
		violation: "both used code",
	},
	{
		name:      "a removal verifies the session anew",
		scenario:  scenarioOf("two", "remove a"),
		operation: "remove",
		write:     verifyNow,
		violation: "remove a renewed level 2",
	},
	{
		name:      "a session begins in any epoch",
		scenario:  scenarioOf("one", "prove t1 a", "disable, enable"),
		script:    onekey.EpochScript,
		old:       "if not same then return {'conflict'} end",
		new:       "",
		violation: "although all sessions had ended since",
	},
	{
		name:      "a password renews level 2",
		scenario:  scenarioOf("one", "verify"),
		script:    onekey.SessionScript,
		old:       "s.verified = now\n",
		new:       "s.verified = now s.rest = (string.gsub(s.rest, '/%d+ ', '/' .. ms(now) .. ' ', 1))\n",
		violation: "renewed level 2",
	},
	{
		name:      "the old session stays beside the raised one",
		scenario:  scenarioOf("one", "raise a"),
		script:    onekey.SessionScript,
		old:       "local record, verb, hash, bond =",
		new:       "if ARGV[1] == 'end' then return {ARGV[3]} end\nlocal record, verb, hash, bond =",
		violation: "left the old session valid",
	},
	{
		name:      "one step begins a session of level 2",
		scenario:  scenarioOf("plain", "login P"),
		write:     beginLevel2,
		violation: "after only one step",
	},
	{
		name:      "a login does not look at the mark",
		scenario:  scenarioOf("one", "login P"),
		operation: "login",
		read:      hideFactors,
		violation: "login P succeeded after only one step",
	},
	{
		name:      "a link does not look at the mark",
		scenario:  scenarioOf("one", "link"),
		operation: "link",
		read:      hideFactors,
		violation: "link",
	},
	{
		name:      "a new password does not look at the mark",
		scenario:  scenarioOf("one", "change P Q"),
		operation: "change",
		read:      hideFactors,
		violation: "change P Q left the password hash",
	},
	{
		name:      "a proof does not read the entry again",
		scenario:  scenarioOf("one", "prove t1 a", "disable"),
		operation: "prove",
		read:      readOnce,
		violation: "succeeded without the factor",
	},
	{
		name:      "a proof counts factors that were removed",
		scenario:  scenarioOf("two", "login P, prove own b", "remove b"),
		operation: "prove",
		read:      readFirst(factor.FieldMark),
		violation: "succeeded without the factor",
	},
	{
		name:      "the first factor ends no sessions",
		scenario:  scenarioOf("plain", "confirm b"),
		operation: "confirm",
		write:     keepGeneration,
		violation: "left earlier sessions and tickets valid",
	},
	{
		name:      "a removed factor ends no sessions",
		scenario:  scenarioOf("two", "remove a"),
		operation: "remove",
		write:     keepGeneration,
		violation: "left earlier sessions and tickets valid",
	},
	{
		name:      "a reset of the factors ends no sessions",
		scenario:  scenarioOf("one", "reset"),
		operation: "reset",
		write:     keepGeneration,
		violation: "left earlier sessions and tickets valid",
	},
	{
		name:      "a new password ends no sessions",
		scenario:  scenarioOf("one", "set Q"),
		operation: "set",
		write:     keepGeneration,
		violation: "left earlier sessions and tickets valid",
	},
	{
		name:      "a new password by mail ends no sessions",
		scenario:  scenarioOf("one", "forgot Q"),
		operation: "forgot",
		write:     keepGeneration,
		violation: "left earlier sessions and tickets valid",
	},
	{
		name:      "neither Disable nor Enable ends sessions",
		scenario:  scenarioOf("one", "disable, enable"),
		write:     keepGeneration,
		violation: "left earlier sessions and tickets valid",
	},
	{
		name:      "a session that has ended removes a factor",
		scenario:  scenarioOf("one", "remove a", "disable, enable"),
		operation: "remove",
		read:      readFirst(session.FieldEpoch),
		violation: "in a session that had ended",
	},
	{
		name:      "a session that has ended changes the password",
		scenario:  scenarioOf("one", "replace P Q", "disable, enable"),
		operation: "replace",
		read:      readFirst(session.FieldEpoch),
		violation: "in a session that had ended",
	},
	{
		name:      "a session that has ended adds a factor",
		scenario:  scenarioOf("one", "confirm b", "disable, enable"),
		operation: "confirm",
		read:      readFirst(session.FieldEpoch),
		violation: "in a session that had ended",
	},
	{
		name:      "a password is set whatever the revision",
		scenario:  scenarioOf("plain", "set Q", "confirm b"),
		operation: "set",
		write:     expectAnyRev,
		violation: "left the password hash",
	},
	{
		name:      "a deleted entry leaves its factors",
		scenario:  scenarioOf("one", "delete, create P"),
		operation: "delete",
		write:     keepRecord,
		violation: "the new entry has",
	},
}

// TestFactorMutations runs each mutant, which lacks one safeguard. The search must find a
// violation.
func TestFactorMutations(t *testing.T) {
	for _, engine := range []string{"single", "cluster"} {
		for i, m := range factorMutants {
			if leftOut(engine, i) {
				continue
			}
			t.Run(engine+"/"+m.name, func(t *testing.T) {
				t.Parallel()
				if m.script.SHA != "" && !strings.Contains(m.script.Source, m.old) {
					t.Fatalf("the script has no %q", m.old)
				}
				violation := ""
				for preemptions := 0; preemptions <= 2 && violation == ""; preemptions++ {
					violation, _ = exploreFactors(t, engine, m.scenario, &m, preemptions)
				}
				if !strings.Contains(violation, m.violation) || violation == "" {
					t.Errorf("the search found %q, want %q", violation, m.violation)
				}
			})
		}
	}
}
