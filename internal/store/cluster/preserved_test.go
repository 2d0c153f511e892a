package cluster

import (
	"context"
	"errors"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/recordkey"
)

// errTooMany is returned if an entry has too many fields.
var errTooMany = errors.New("the entry has too many fields")

// importHeld returns a verb that makes an entry hold a value of the field email, as an import does.
func importHeld(uid, value string) verb {
	return verb{name: "hold " + uid + " " + value, do: func(ctx context.Context, a *actor) error {
		prk, err := holding.PRK(uid)
		if err != nil {
			return err
		}
		h := store.Holding{Entry: prk, HeldValue: store.HeldValue{Field: "email", Canonical: value, Until: heldUntil}}
		h.SRK, _ = holding.SRK("email", value)
		for _, field := range holding.Rivals("email") {
			if srk, ok := holding.SRK(field, value); ok && field != "email" {
				h.Rivals = append(h.Rivals, srk)
			}
		}
		if err := store.CheckHold(ctx, a.engine, h); err != nil {
			return err
		}
		kept, err := store.Hold(ctx, a.engine, h)
		if err == nil && !kept {
			err = errTooMany
		}
		return err
	}}
}

// importRetired returns a verb that retires a UID, as an import does.
func importRetired(uid string) verb {
	return verb{name: "retire " + uid, do: func(ctx context.Context, a *actor) error {
		prk, err := people.PRK(uid)
		if err != nil {
			return err
		}
		retired, err := a.engine.Repair(ctx, store.Preserve{Entry: prk, Facet: store.Facet{Field: store.FieldRetired, Wire: "2026-11-28T20:00:00.000Z"}})
		if err == nil && !retired {
			err = store.DuplicateField("uid")
		}
		return err
	}}
}

// checkImported checks an import, by the first actor, that makes A hold the value x. If it was
// refused because x is taken, A must not hold x. If it succeeded, no other entry may have x, and A
// must have x or hold it until the end of the hold.
func checkImported(m state, s *simulation) string {
	errs, a := m.actors[0].at.errs, s.recordOf("user/uid:A")
	switch holds := a.Holds("email", "x", heldUntil.Add(-1)); {
	case len(errs) > 0 && errors.Is(errs[0], store.ErrDuplicate) && holds:
		return "I2: an import that was refused has left a held value"
	case len(errs) == 0 || errs[0] != nil:
		return ""
	}
	for _, key := range s.keys() {
		if k, _ := recordkey.Parse(key); k.Kind() != recordkey.KindPRK || k.Value() == "A" {
			continue
		}
		for _, owned := range ownedValues(s.recordOf(key)) {
			if owned.Canonical == "x" {
				return "I2: another entry has a value that is held: " + key
			}
		}
	}
	if a.Live() && a.HasValue("email", "x") {
		return ""
	}
	if !a.Holds("email", "x", heldUntil.Add(-1)) {
		return "I2: A does not hold the value as long as it should"
	}
	srk := s.world.at("user/email:x/~prk")
	switch {
	case srk == nil || store.Owner(srk.text) != "user/uid:A":
		return "I2: the SRK of a held value does not name the entry"
	case srk.ends != 0 && srk.ends < heldUntil.UnixMilli():
		return "I2: the SRK of a held value expires too early"
	}
	return ""
}

// checkImportedUID checks that a UID that the first actor has retired belongs to no entry.
func checkImportedUID(m state, s *simulation) string {
	errs := m.actors[0].at.errs
	a := s.world.at("user/uid:A")
	switch {
	case a.field("~retired") != nil && a.field("~isa") != nil && a.field("~isa") != "":
		return "I3: an entry has a retired UID"
	case len(errs) > 0 && errs[0] == nil && (a.field("~retired") == nil || a.ends != 0):
		return "I3: the UID is not retired"
	}
	return ""
}

// preservedScenarios returns scenarios in which an import holds a value or retires a UID.
func preservedScenarios() []scenario {
	n := entries(someRev, "A name=n")
	longer := func() map[string]*cell { // A holds x already, and longer than an import says
		cells := withHeld(n, "x")()
		cells["user/uid:A"].hash[store.FieldHeld("email", "x")] = "1060001"
		return cells
	}
	return []scenario{
		{name: "hold: hold x | create email=x", start: noRecords, actors: [][]verb{sequence(importHeld("A", "x")), sequence(create("Q", "email=x"))}, answers: checkImported, wins: 1},
		{name: "hold: hold x | create name=x", start: noRecords, actors: [][]verb{sequence(importHeld("A", "x")), sequence(create("Q", "name=x"))}, answers: checkImported, wins: 1},
		{name: "hold: live: hold x | create name=x", start: n, actors: [][]verb{sequence(importHeld("A", "x")), sequence(create("Q", "name=x"))}, answers: checkImported, wins: 1},
		{name: "hold: live: hold x | update email x", start: entries(someRev, "A name=n", "B name=b"), actors: [][]verb{sequence(importHeld("A", "x")), sequence(update("B", "email=x"))}, answers: checkImported, wins: 1},
		{name: "hold: live: hold x | add x", start: entries(someRev, "A name=n", "B email=b"), actors: [][]verb{sequence(importHeld("A", "x")), sequence(add("B", "x"))}, answers: checkImported, wins: 1},
		{name: "hold: live: hold x | take x", start: n, actors: [][]verb{sequence(importHeld("A", "x")), sequence(rename("A", "email=x"))}},
		{name: "hold: live: hold x | delete, create name=x", start: n, actors: [][]verb{sequence(importHeld("A", "x")), sequence(removeHeld("A"), create("Q", "name=x"))}, answers: checkImported},
		{name: "hold: longer: hold x | create email=x", start: longer, actors: [][]verb{sequence(importHeld("A", "x")), sequence(create("Q", "email=x"))}, answers: checkImported, final: checkLonger, wins: 1},
		{name: "hold: hold x | create email=x | time", start: noRecords, actors: [][]verb{sequence(importHeld("A", "x")), sequence(create("Q", "email=x")), sequence(wait(30))}, answers: checkImported, late: true},
		{name: "hold: hold x | hold x", start: noRecords, actors: [][]verb{sequence(importHeld("A", "x")), sequence(importHeld("A", "x"))}, answers: checkImported, wins: 2},
		{name: "hold: garbage: hold x", start: with(noRecords, "user/email:x/~prk", text("user/uid:Q "+someRev)), actors: [][]verb{sequence(importHeld("A", "x"))}, answers: checkImported, wins: 1},
		{name: "hold: a claim: hold x", start: with(n, "user/email:x/~prk", text("user/uid:A "+someRev)), actors: [][]verb{sequence(importHeld("A", "x"))}, answers: checkImported, final: checkEndless, wins: 1},
		{name: "hold: taken: hold x", start: entries(someRev, "Q name=x"), actors: [][]verb{sequence(importHeld("A", "x"))}, answers: checkImported},
		{name: "retired: import A | create A", start: noRecords, actors: [][]verb{sequence(importRetired("A")), sequence(create("A", "email=x"))}, answers: checkImportedUID, wins: 1},
		{name: "retired: import A | delete, create A", start: n, actors: [][]verb{sequence(importRetired("A")), sequence(remove("A"), create("A", "email=x"))}, answers: checkImportedUID},
	}
}

// checkEndless checks that an SRK that already names the entry gets no time to live, because it may
// be the entry's claim.
func checkEndless(s *simulation) string {
	if srk := s.world.at("user/email:x/~prk"); srk == nil || srk.ends != 0 {
		return "I1: a claim of the entry will expire"
	}
	return ""
}

// checkLonger checks that an import has not shortened a hold.
func checkLonger(s *simulation) string {
	if end := s.recordOf("user/uid:A").Fields[store.FieldHeld("email", "x")]; end != "1060001" {
		return "I2: the value is free too early: " + end
	}
	return ""
}

// preservedMutants lack safeguards of imports of held values and retired UIDs.
var preservedMutants = []mutant{
	{name: "a hold fences nobody", finds: "I1", in: []string{"hold: hold x | create name", "hold: live: hold x | create"}, tamper: withoutFences},
	{name: "a hold does not look at other fields", finds: "I2", in: []string{"hold: hold x | create name", "hold: live: hold x | create"}, tamper: func(a *actor, args []string) ([]string, any) {
		if a.id == 0 && args[0] == "get" && args[1] == "user/name:x/~prk" {
			return nil, nil
		}
		return args, nil
	}},
	{name: "a hold stays although it is refused", finds: "I2: an import that was refused", in: []string{"hold: hold x | create name"}, tamper: func(_ *actor, args []string) ([]string, any) {
		if args[1] == onekey.MoveHoldScript.SHA {
			return nil, int64(1)
		}
		return args, nil
	}},
	{name: "a hold replaces an SRK of another entry", finds: "I1", in: []string{"hold: hold x | create email"}, rewrite: replace("if not seen then\n  reply = redis.pcall('SET'", "if seen ~= ARGV[1] then\n  reply = redis.pcall('SET'")},
	{name: "a claim gets a time to live", finds: "I1", in: []string{"hold: a claim"}, rewrite: replace("left >= 0 and left < life", "left < life")},
	{name: "the SRK of a held value lives by another clock", finds: "I2", in: []string{"hold: hold x | create email=x | time"}, rewrite: replace(
		"local life = math.max(1, ARGV[3] - time[1] * 1000 - math.floor(time[2] / 1000))", "local life = 1")},
	{name: "a shorter hold replaces a longer one", finds: "I2", in: []string{"hold: longer"}, rewrite: replace("(tonumber(head[2]) or 0) < tonumber(ARGV[2])", "true")},
	{name: "the tombstone of an imported held value never expires", finds: "a tombstone without an end", in: []string{"hold: hold x"}, rewrite: replace("if not live then end_tombstone(KEYS[1], ARGV[3]) end", "")},
	{name: "a UID in use is retired", finds: "I3", in: []string{"retired: import A"}, rewrite: replace("if live and not held or", "if")},
}
