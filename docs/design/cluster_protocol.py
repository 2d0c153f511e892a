#!/usr/bin/env python3
"""Executable model of the cross-slot uniqueness protocol (protocol.md).

The store is a set of cells, each changed only by commands that Redis runs atomically in one slot.
A verb is a generator that yields one such command at a time. Two searches:

  explore   every interleaving of the verbs of a scenario, any of which may stop for ever at any step
            (a crash) and may lose replies, after which its client sends the command again. The
            invariants are checked in every state. States are merged by (store, what each verb saw).
  walk      random scenarios of up to four verbs, with crashes, lost replies, and late duplicates: a
            command that was sent once more may run again at any later time.

    python3 cluster_protocol.py full [--lost N] [--attempts N] [--limit STATES]
    python3 cluster_protocol.py full --walks 300000 [--seed N]

Each mutant leaves out one safeguard, and the search finds the invariant of data.md that it breaks:

    nosibling    claims without looking at the same value in the other fields            I2
    settle       replaces `PRK token` by the plain PRK after the commit                  I1
    bluntrelease deletes an old SRK that names the entry, whatever its token             I1
    fencetoken   fence writes the verb's token instead of counting                       I1  (--lost 1)
    nofence      takes over a claim without fencing its owner                            I1
    notomb       a delete leaves nothing                                                 I1 or I2
    nopast       an entry remembers only its last committed token                        I7  (--lost 1)
    blindback    nopast, and gives a claim back without fencing its own entry            I1  (--lost 1)

Cells: ('srk', field, value) -> (prk, token); (prk, None) is plain, as one server writes it: here it
                                may be found, and replaced, but is never written, so no value recurs
       ('prk', P)            -> (facets, rev, fence, past); facets None: a tombstone
"""
import argparse
import random
import sys
from collections import deque

FIELDS = ("email", "name")
MUTANT = "full"
PAST = 4


def srk(f, v):
    return ("srk", f, v)


def prk(p):
    return ("prk", p)


def live(c):
    return c is not None and c[0] is not None


def has_value(c, f, v):
    return live(c) and dict(c[0]).get(f) == v


def version(c):
    return None if c is None else (c[1], c[2])


# ---- commands: each runs atomically on one cell ----------------------------------------------

def read(k):
    return lambda st: st.get(k)


def set_if_absent(k, val):
    def run(st):
        if st.setdefault(k, val) == val:
            return None
        return st[k]
    return run


def compare_and_set(k, old, new):
    def run(st):
        if k in st and st[k] == old:
            if new is None:
                del st[k]
            else:
                st[k] = new
            return True
        return new is not None and st.get(k) == new        # our own, delivered twice
    return run


def delete_if_names(k, p):
    def run(st):
        if k in st and st[k][0] == p:
            del st[k]
    return run


def look(p, f, v):
    return lambda st: has_value(st.get(prk(p)), f, v)


def fence(p, f, v, token):
    """Return True if p has the value. Otherwise keep everything prepared on p before now from committing."""
    def run(st):
        c = st.get(prk(p))
        if has_value(c, f, v):
            return True
        facets, rev, n, past = c or (None, None, 0, ())
        st[prk(p)] = (facets, rev, token if MUTANT == "fencetoken" else n + 1, past)
        return False
    return run


def commit(p, expect, facets, token, log):
    """Write facets, or delete p if they are None. If p remembers the token, only the reply was lost."""
    def run(st):
        c = st.get(prk(p))
        if c is not None and token in ((c[1],) if MUTANT in ("nopast", "blindback") else c[3]):
            return "ok"
        if version(c) != expect:
            return "conflict"
        if log:
            st[("log",)] = st.get(("log",), ()) + (token.split(".")[0],)
        past = ((token,) + (c[3] if c else ()))[:PAST]
        if facets is None and MUTANT == "notomb":
            del st[prk(p)]
        else:
            st[prk(p)] = (None if facets is None else tuple(sorted(facets.items())), token, 0, past)
        return "ok"
    return run


# ---- verbs -----------------------------------------------------------------------------------

def take(k, seen, new, tag):
    """Step 2: take over an SRK that is there, without the wait: 'in use' | 'taken' | 'again'."""
    f, v = k[1:]
    if MUTANT == "nofence":
        if (yield look(seen[0], f, v)):
            return "in use"
    elif (yield fence(seen[0], f, v, tag.split("/")[0])):
        return "in use"
    return "taken" if (yield compare_and_set(k, seen, new)) else "again"


def claim(p, op, f, v):
    """Steps 1 and 2: claim the value v of the field f for p."""
    n = 0
    while True:
        seen = yield set_if_absent(srk(f, v), (p, op))
        if seen is None:
            return "ok"
        n += 1
        r = yield from take(srk(f, v), seen, (p, op), "%s/%s%d" % (op, f, n))
        if r == "in use":
            return "conflict" if seen[0] == p else "duplicate"
        if r == "taken":
            return "ok"


def look_aside(p, op, f, v):
    """Step 3: look for the value v under the other fields."""
    n = 0
    for g in FIELDS:
        while g != f:
            seen = yield read(srk(g, v))
            if seen is None or seen[0] == p:
                break
            n += 1
            r = yield from take(srk(g, v), seen, None, "%s/%s-%s%d" % (op, f, g, n))
            if r == "in use":
                return "duplicate"
            if r == "taken":
                break
    return "ok"


def write(p, op, old, new, expect, log):
    """old, new: facets before and after (None: absent)."""
    old, new_ = old or {}, new or {}
    claims, going, result, sent = [], [], "ok", False
    for f in FIELDS:                                               # step 5: what will go, as it is now
        if f in old and new_.get(f) != old[f]:
            seen = yield read(srk(f, old[f]))
            if seen and seen[0] == p:
                going.append((srk(f, old[f]), seen))
    for f in FIELDS:
        if f in new_ and old.get(f) != new_[f]:
            claims.append((f, new_[f]))
            result = yield from claim(p, op, f, new_[f])
            if result != "ok":
                break
    for f, v in claims:
        if result == "ok" and MUTANT != "nosibling":
            result = yield from look_aside(p, op, f, v)
    if result == "ok":
        result, sent = (yield commit(p, expect, new, op, log)), True   # step 4
    if result != "ok":                                             # step 7: give back
        for n, (f, v) in enumerate(claims):
            if sent and MUTANT != "blindback" and (yield fence(p, f, v, op + "?")):
                continue
            yield compare_and_set(srk(f, v), (p, op), None)
        return result
    for k, seen in going:
        if MUTANT == "bluntrelease":
            yield delete_if_names(k, p)
        else:
            yield compare_and_set(k, seen, None)
    if MUTANT == "settle":
        for f, v in claims:
            yield compare_and_set(srk(f, v), (p, op), (p, None))
    return "ok"


def create(p, op, facets, log=False):
    c = yield read(prk(p))
    if live(c):
        return "exists"
    return (yield from write(p, op, None, facets, version(c), log))


def update(p, op, changes, log=False):
    c = yield read(prk(p))
    if not live(c):
        return "absent"
    old = dict(c[0])
    new = {k: v for k, v in {**old, **changes}.items() if v is not None}
    if new == old:
        return "unchanged"
    return (yield from write(p, op, old, new, version(c), log))


def delete(p, op, _=None, log=False):
    c = yield read(prk(p))
    if not live(c):
        return "absent"
    return (yield from write(p, op, dict(c[0]), None, version(c), log))


def attempts(n, verb, p, op, arg, log):
    """Run a verb up to n times: after a conflict, again from the new entry, with a new token."""
    result = None
    for i in range(n):
        result = yield from verb(p, "%s.%d" % (op, i), arg, log)
        if result != "conflict":
            break
    return result


def lossy(gen, n):
    """Run gen. Up to n replies may be lost; then the same command is sent again."""
    try:
        cmd = next(gen)
        while True:
            reply = yield (cmd, n > 0)
            while reply == "LOST":
                n -= 1
                reply = yield (cmd, n > 0)
            cmd = gen.send(reply)
    except StopIteration as e:
        return e.value


# ---- invariants ------------------------------------------------------------------------------

def violated(st):
    owner, log = {}, st.get(("log",), ())
    if len(set(log)) < len(log):
        return "I7: committed twice: %s" % (log,)
    for k, c in st.items():
        if k[0] == "prk" and live(c):
            for f, v in c[0]:
                if owner.setdefault(v, k[1]) != k[1]:
                    return "I2: %r belongs to %s and %s" % (v, owner[v], k[1])
                if (st.get(srk(f, v)) or (None,))[0] != k[1]:
                    return "I1: %s has %s=%r, the SRK says %s" % (k[1], f, v, st.get(srk(f, v)))
    return None


# ---- explore ---------------------------------------------------------------------------------

def explore(start, ops, lost, limit):
    memo = {}

    def at(i, history):
        if (i, history) not in memo:
            gen = lossy(ops[i](), lost)
            try:
                step = next(gen)
                for reply in history:
                    step = gen.send(reply)
                memo[i, history] = step, None
            except StopIteration as e:
                memo[i, history] = None, e.value
        return memo[i, history]

    todo, seen, ends, n = deque([(dict(start), ((),) * len(ops))]), set(), set(), 0
    while todo:
        st, hist = todo.pop()
        n += 1
        bad = violated(st)
        if bad:
            return "VIOLATION", n, bad
        if n > limit:
            return "open", n, "state limit reached, no violation so far"
        results = []
        for i in range(len(ops)):
            step, result = at(i, hist[i])
            if step is None:
                results.append(result)
                continue
            cmd, may_lose = step
            after = dict(st)
            reply = cmd(after)
            for r in (reply, "LOST") if may_lose else (reply,):
                nxt = hist[:i] + (hist[i] + (r,),) + hist[i + 1:]
                key = (tuple(sorted(after.items(), key=repr)), nxt)
                if key not in seen:
                    seen.add(key)
                    todo.append((after, nxt))
        if len(results) == len(ops):
            ends.add(tuple(results))
    return "holds", n, "%d outcomes" % len(ends)


def entry(p, token, **facets):
    cells = {prk(p): (tuple(sorted(facets.items())), "r" + p, 0, ("r" + p,))}
    cells.update({srk(f, v): (p, token) for f, v in facets.items()})
    return cells


def scenarios(n):
    def C(p, op, **facets):
        return lambda: attempts(n, create, p, op, facets, True)

    def U(p, op, **changes):
        return lambda: attempts(n, update, p, op, changes, True)

    def D(p, op):
        return lambda: attempts(n, delete, p, op, None, True)

    def then(*verbs):
        def run():
            out = []
            for v in verbs:
                out.append((yield from v()))
            return tuple(out)
        return run

    A, plain = entry("A", "t", email="a"), entry("A", None, email="a")
    AB, AA = entry("A", "t", email="a", name="b"), entry("A", "t", email="a", name="a")
    yield "create email=x | create email=x", {}, [C("P", "1", email="x"), C("Q", "2", email="x")]
    yield "create email=x | create name=x", {}, [C("P", "1", email="x"), C("Q", "2", name="x")]
    yield "create x,y | create y,x crosswise", {}, [C("P", "1", email="x", name="y"), C("Q", "2", email="y", name="x")]
    yield "create email=name=x | create name=x", {}, [C("P", "1", email="x", name="x"), C("Q", "2", name="x")]
    yield "create P twice, same email", {}, [C("P", "1", email="x"), C("P", "2", email="x")]
    yield "create P twice, other fields", {}, [C("P", "1", email="x"), C("P", "2", name="x")]
    yield "update a->x | create name=x", A, [U("A", "1", email="x"), C("Q", "2", name="x")]
    yield "update a->x | create email=a", A, [U("A", "1", email="x"), C("Q", "2", email="a")]
    yield "update a->x | the same update", A, [U("A", "1", email="x"), U("A", "2", email="x")]
    yield "update a->x | update a->y", A, [U("A", "1", email="x"), U("A", "2", email="y")]
    yield "update email a->x | update name x", A, [U("A", "1", email="x"), U("A", "2", name="x")]
    yield "update a->x | update a->x->a", A, [U("A", "1", email="x"), then(U("A", "2", email="x"), U("A", "3", email="a"))]
    yield "update a->x->a | create email=a", A, [then(U("A", "1", email="x"), U("A", "2", email="a")), C("Q", "3", email="a")]
    yield "update a->x->a | create name=a", A, [then(U("A", "1", email="x"), U("A", "2", email="a")), C("Q", "3", name="a")]
    yield "plain: update a->x->a | create email=a", plain, [then(U("A", "1", email="x"), U("A", "2", email="a")), C("Q", "3", email="a")]
    yield "plain: update a->x->a | create name=a", plain, [then(U("A", "1", email="x"), U("A", "2", email="a")), C("Q", "3", name="a")]
    yield "plain: update a->x | update a->x->a", plain, [U("A", "1", email="x"), then(U("A", "2", email="x"), U("A", "3", email="a"))]
    stale = {prk("A"): ((("name", "n"),), "rA", 0, ("rA",)), srk("name", "n"): ("A", "t"), srk("email", "a"): ("A", None)}
    yield "plain leftover: update A email=a | create a", stale, [U("A", "1", email="a"), C("Q", "2", email="a")]
    yield "delete and create again | create email=a", A, [then(D("A", "1"), C("A", "2", email="a")), C("Q", "3", email="a")]
    yield "delete | create email=a", A, [D("A", "1"), C("Q", "2", email="a")]
    yield "delete | update a->x", A, [D("A", "1"), U("A", "2", email="x")]
    yield "delete | create A again", A, [D("A", "1"), C("A", "2", email="a")]
    yield "swap | create email=a", AB, [U("A", "1", email="b", name="a"), C("Q", "2", email="a")]
    yield "swap | update email->c", AB, [U("A", "1", email="b", name="a"), U("A", "2", email="c")]
    yield "two fields, one value: one goes | create name", AA, [U("A", "1", name="y"), C("Q", "2", name="a")]
    yield "two fields, one value: both go, one each", AA, [U("A", "1", name=None), U("A", "2", email=None)]
    yield "move from email to name | create email=a", A, [U("A", "1", email=None, name="a"), C("Q", "2", email="a")]
    yield "3: fenced twice while updating", A, [U("A", "1", name="b"), C("Q", "2", name="b"), C("R", "3", name="b")]
    yield "3: create P | create, delete P | create Q", {}, [C("P", "1", email="x"), then(C("P", "2", name="y"), D("P", "3")), C("Q", "4", email="x")]
    yield "3: update a->x | create name=x | create email=a", A, [U("A", "1", email="x"), C("Q", "2", name="x"), C("R", "3", email="a")]
    yield "3: create email=x | name=x | email=x", {}, [C("P", "1", email="x"), C("Q", "2", name="x"), C("R", "3", email="x")]
    yield "3: delete | update a->x | create email=a", A, [D("A", "1"), U("A", "2", email="x"), C("R", "3", email="a")]


# ---- walk ------------------------------------------------------------------------------------

def walk(seed, count):
    """Check I1 and I2 after every command of random runs with crashes, lost replies and duplicates."""
    rnd = random.Random(seed)
    for run in range(count):
        token = rnd.choice(["t", None])
        st = {}
        for p in rnd.sample("AB", rnd.randint(0, 2)):
            st.update(entry(p, token, email=p.lower()))
        verbs, names = [], []
        for i in range(rnd.randint(2, 4)):
            def sequence(i=i):
                for j in range(rnd.randint(1, 3)):
                    p, v, f = rnd.choice("ABPQ"), rnd.choice("abx"), rnd.choice(FIELDS)
                    verb = rnd.choice([create, update, update, delete])
                    arg = {f: v} if rnd.random() < 0.7 else {"email": v, "name": rnd.choice("abx")}
                    names.append((verb.__name__, p, arg))
                    yield from attempts(3, verb, p, "%d%d" % (i, j), arg, False)
            verbs.append(sequence())
        late, replies, alive = [], [None] * len(verbs), list(range(len(verbs)))
        while alive:
            if late and rnd.random() < 0.15:
                late.pop(rnd.randrange(len(late)))(st)
            else:
                i = rnd.choice(alive)
                if rnd.random() < 0.01:
                    alive.remove(i)                                # a crash
                    continue
                try:
                    cmd = verbs[i].send(replies[i])
                except StopIteration:
                    alive.remove(i)
                    continue
                replies[i] = cmd(st)
                if rnd.random() < 0.06:
                    replies[i] = cmd(st)                           # the reply was lost, sent again at once
                elif rnd.random() < 0.06:
                    late.append(cmd)                               # or it arrives once more later
            bad = violated(st)
            if bad:
                return "VIOLATION", run + 1, "%s  in %s" % (bad, names)
    return "holds", count, "random runs"


def main():
    global MUTANT
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("mutant", help="full, or one of the mutants above")
    ap.add_argument("--attempts", type=int, default=2, help="how often each verb is tried if it meets conflicts (2)")
    ap.add_argument("--lost", type=int, default=0, help="how many replies each verb may lose (0)")
    ap.add_argument("--limit", type=int, default=200_000, help="how many states of a scenario to visit (200,000)")
    ap.add_argument("--walks", type=int, default=0, help="how many random runs to make instead of the search")
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    MUTANT, broken = a.mutant, 0
    if a.walks:
        verdict, n, note = walk(a.seed, a.walks)
        print("%-9s after %d %s" % (verdict, n, note))
        return verdict == "VIOLATION"
    for name, start, ops in scenarios(a.attempts):
        verdict, n, note = explore(start, ops, a.lost, a.limit)
        broken += verdict == "VIOLATION"
        print("%-50s %-9s %8d states  %s" % (name, verdict, n, note), flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
