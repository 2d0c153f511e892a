package check_test

import (
	"fmt"
	"strings"
)

// A damage is a way to break an entry behind the store's back, with exactly the codes and keys that
// a check must then report. U stands for the UID of the entry, and F for a second UID that only
// this damage uses. Keys are relative to the namespace.
type damage struct {
	name string
	do   [][]string // Redis commands
	want []string   // "code key"
}

const (
	prk   = "user/uid:U"
	name  = "user/name:name+_of+_U/~prk"
	email = "user/email:U@x.org/~prk"
	cook  = "user/job:Cook/~prks"
	goTag = "user/tags:go/~prks"
	uTag  = "user/tags:tagU/~prks"

	furtherF = "~also:email:F@x.org"
	emailF   = "user/email:F@x.org/~prk"
)

// orphaned lists the problems that a check finds if only the entry is gone.
var orphaned = []string{
	"srk_orphan " + name, "srk_orphan " + email, "index_orphan " + cook, "index_orphan " + goTag, "index_orphan " + uTag,
	"tertiary_orphan " + prk + "/tags", "tertiary_orphan " + prk + "/notes",
}

// halfDeleted is the part of orphaned that a check finds while the facets still exist: the SRKs and
// the index of the job still match the facets, so a check does not report them.
var halfDeleted = []string{
	"index_orphan " + goTag, "index_orphan " + uTag,
	"tertiary_orphan " + prk + "/tags", "tertiary_orphan " + prk + "/notes",
}

func concat(first []string, more ...string) []string {
	return append(append([]string{}, first...), more...)
}

func cmd(words ...string) []string { return words }

func cmds(c ...[]string) [][]string { return c }

// otherEntryCommands returns commands that create another entry, which lacks only the SRK of its
// name.
func otherEntryCommands(name string) [][]string {
	return cmds(
		cmd("HSET", "user/uid:F", "~isa", "user", "~prk", "user/uid:F", "uid", "F", "email", "F@x.org", "name", name),
		cmd("SET", "user/email:F@x.org/~prk", "user/uid:F"),
	)
}

var damageCases = []damage{
	// I3: the entry itself
	{"entry lost", cmds(cmd("DEL", prk)), orphaned},
	{"entry is a tombstone, other records remain", cmds(cmd("DEL", prk), cmd("HSET", prk, "~rev", "x", "~fence", "2"), cmd("EXPIRE", prk, "600")), orphaned},
	{"entry is an endless tombstone, other records remain", cmds(cmd("DEL", prk), cmd("HSET", prk, "~rev", "x")), concat(orphaned, "tombstone_endless "+prk)},
	{"half-deleted entry", cmds(cmd("HSET", prk, "~isa", "", "~rev", "x")), concat(halfDeleted, "delete_unfinished "+prk)},
	{"half-deleted entry with a time to live", cmds(cmd("HSET", prk, "~isa", "", "~rev", "x"), cmd("EXPIRE", prk, "600")), concat(halfDeleted, "delete_unfinished "+prk)},
	{"entry of another Redis type", cmds(cmd("DEL", prk), cmd("SET", prk, "x")), concat(orphaned, "prk_kind "+prk)},
	{"no ~isa", cmds(cmd("HDEL", prk, "~isa")), []string{"isa_missing " + prk}},
	{"another ~isa", cmds(cmd("HSET", prk, "~isa", "firm")), []string{"type_mismatch " + prk}},
	{"no ~prk", cmds(cmd("HDEL", prk, "~prk")), []string{"prk_wrong " + prk}},
	{"another ~prk", cmds(cmd("HSET", prk, "~prk", "user/uid:other")), []string{"prk_wrong " + prk}},
	{"no primary facet", cmds(cmd("HDEL", prk, "uid")), []string{"primary_wrong " + prk}},
	{"another primary facet", cmds(cmd("HSET", prk, "uid", "other")), []string{"primary_wrong " + prk}},
	{"no ~isa, ~prk and primary facet", cmds(cmd("HDEL", prk, "~isa", "~prk", "uid")), []string{"isa_missing " + prk, "prk_wrong " + prk, "primary_wrong " + prk}},
	{"hash under a field that is not primary", cmds(cmd("HSET", "user/nick:F", "~isa", "user")), []string{"key_field user/nick:F"}},
	{"string under a field that is not primary", cmds(cmd("SET", "user/nick:F", "x")), []string{"key_field user/nick:F"}},

	// I1: SRKs of values
	{"SRK lost", cmds(cmd("DEL", name)), []string{"srk_missing " + name}},
	{"both SRKs lost", cmds(cmd("DEL", name), cmd("DEL", email)), []string{"srk_missing " + name, "srk_missing " + email}},
	{"SRK naming no entry", cmds(cmd("SET", name, "user/uid:F")), []string{"srk_wrong " + name, "srk_orphan " + name}},
	{"SRK naming another entry", cmds(cmd("SET", name, "user/uid:friend")), []string{"srk_wrong " + name, "srk_stale " + name}},
	{"SRK with a rev", cmds(cmd("SET", name, "user/uid:U 0123456789ab")), nil},
	{"SRK with a rev, naming another entry", cmds(cmd("SET", name, "user/uid:friend 0123456789ab")), []string{"srk_wrong " + name, "srk_stale " + name}},
	{"SRV of another type", cmds(cmd("SET", name, "firm/id:1")), []string{"srk_wrong " + name, "srv_type " + name}},
	{"SRV under another field", cmds(cmd("SET", name, "user/nick:U")), []string{"srk_wrong " + name, "srv_type " + name}},
	{"SRV that is an SRK", cmds(cmd("SET", name, email)), []string{"srk_wrong " + name, "srv_unparsable " + name}},
	{"SRV in a namespace", cmds(cmd("SET", name, "~other/user/uid:U")), []string{"srk_wrong " + name, "srv_unparsable " + name}},
	{"invalid SRV", cmds(cmd("SET", name, "\x1b[2J\n"+strings.Repeat("x", 999))), []string{"srk_wrong " + name, "srv_unparsable " + name}},
	{"SRV empty", cmds(cmd("SET", name, "")), []string{"srk_wrong " + name, "srv_unparsable " + name}},
	{"SRK of another Redis type", cmds(cmd("DEL", name), cmd("RPUSH", name, "user/uid:U")), []string{"srk_wrong " + name, "srk_kind " + name}},
	{"~skv lost", cmds(cmd("HDEL", prk, "~skv:name")), []string{"skv_wrong " + prk}},
	{"~skv wrong", cmds(cmd("HSET", prk, "~skv:name", "other")), []string{"skv_wrong " + prk}},
	{"~skv of a field that needs none", cmds(cmd("HSET", prk, "~skv:email", "other")), []string{"skv_wrong " + prk}},
	{"~skv equal to the facet", cmds(cmd("HSET", prk, "~skv:email", "U@x.org")), nil},
	{"facet lost", cmds(cmd("HDEL", prk, "name")), []string{"field_missing " + prk, "skv_wrong " + prk, "srk_stale " + name}},
	{"facet and ~skv lost", cmds(cmd("HDEL", prk, "name", "~skv:name")), []string{"field_missing " + prk, "srk_stale " + name}},
	{"facet changed by another program", cmds(cmd("HSET", prk, "email", "F@y.org"), cmd("HSET", prk, "email", "f@y.org")), []string{"srk_missing user/email:f@y.org/~prk", "srk_stale " + email}},
	{"facet moved to another field", cmds(cmd("HDEL", prk, "name", "~skv:name"), cmd("HSET", prk, "email", "name of U")), []string{"field_missing " + prk, "srk_missing user/email:name+_of+_U/~prk", "srk_stale " + name, "srk_stale " + email}},
	{"facet empty", cmds(cmd("HSET", prk, "email", "")), []string{"value_unkeyable " + prk, "srk_stale " + email}},
	{"facet too long", cmds(cmd("HSET", prk, "email", strings.Repeat("x", 1025))), []string{"value_unkeyable " + prk, "srk_stale " + email}},
	{"facet of the maximum length", cmds(cmd("HSET", prk, "email", strings.Repeat("x", 1022)+"U")), []string{"srk_missing user/email:" + strings.Repeat("x", 1022) + "U/~prk", "srk_stale " + email}},

	// I2: one value, two entries
	{"shared in one field", otherEntryCommands("Name of U"), []string{"value_shared " + name, "skv_wrong user/uid:F"}},
	{"shared in one field, SRK taken over", append(otherEntryCommands("name of U"), cmd("SET", name, "user/uid:F")), []string{"value_shared " + name}},
	{"shared in two fields", append(otherEntryCommands("U@x.org"), cmd("SET", "user/name:U@x.org/~prk", "user/uid:F")), []string{"value_shared " + email}},
	{"shared in two fields, one SRK lost", append(otherEntryCommands("U@x.org"), cmd("DEL", email), cmd("SET", "user/name:U@x.org/~prk", "user/uid:F")), []string{"value_shared " + email, "srk_missing " + email}},
	{"shared, no SRK", append(otherEntryCommands("name of U"), cmd("DEL", name)), []string{"srk_missing " + name, "srk_missing " + name}},
	{"shared with a damaged entry", append(otherEntryCommands("name of U"), cmd("HDEL", "user/uid:F", "~isa")), []string{"value_shared " + name, "isa_missing user/uid:F"}},
	{"one value in two fields of one entry", cmds(cmd("HSET", prk, "email", "name of U"), cmd("SET", "user/email:name+_of+_U/~prk", "user/uid:U")), []string{"srk_stale " + email}},
	{"shared in one field, SRKs in two taken over", append(otherEntryCommands("name of U"), cmd("SET", name, "user/uid:F"), cmd("SET", "user/email:name+_of+_U/~prk", "user/uid:F")), []string{"value_shared " + name, "srk_stale user/email:name+_of+_U/~prk"}},
	{"one value in two fields of one entry, one SRK taken over", append(otherEntryCommands("name of U"), cmd("HSET", prk, "email", "name of U"), cmd("SET", "user/email:name+_of+_U/~prk", "user/uid:U"), cmd("SET", name, "user/uid:F")), []string{"value_shared " + name, "srk_stale " + email}},

	// I4: records without an entry
	{"SRK without an entry", cmds(cmd("SET", "user/name:F/~prk", "user/uid:F")), []string{"srk_orphan user/name:F/~prk"}},
	{"SRK of a value that the entry does not have", cmds(cmd("SET", "user/name:F/~prk", "user/uid:U")), []string{"srk_stale user/name:F/~prk"}},
	{"SRK of a value that is not canonical", cmds(cmd("SET", "user/name:Name+_of+_U/~prk", "user/uid:U")), []string{"srk_stale user/name:Name+_of+_U/~prk"}},
	{"SRK of an undeclared field", cmds(cmd("HSET", prk, "phone", "F"), cmd("SET", "user/phone:F/~prk", "user/uid:U")), []string{"srk_undeclared user/phone:F/~prk"}},
	{"SRK of an undeclared field, stale", cmds(cmd("SET", "user/phone:F/~prk", "user/uid:U")), []string{"srk_stale user/phone:F/~prk"}},
	{"tertiary record without an entry", cmds(cmd("SADD", "user/uid:F/tags", "go")), []string{"tertiary_orphan user/uid:F/tags"}},
	{"tertiary record under a field that is not primary", cmds(cmd("SADD", "user/nick:F/tags", "go")), []string{"tertiary_orphan user/nick:F/tags"}},
	{"tertiary record with an undeclared name", cmds(cmd("SET", prk+"/photo", "x")), []string{"tertiary_undeclared " + prk + "/photo"}},
	{"index member without an entry", cmds(cmd("SADD", cook, "user/uid:F"), cmd("SADD", goTag, "user/uid:F")), []string{"index_orphan " + cook, "index_orphan " + goTag}},
	{"invalid index members", cmds(cmd("SADD", cook, "rubbish F", "firm/id:F", "~x/user/uid:F", "")), []string{"index_orphan " + cook, "index_orphan " + cook, "index_orphan " + cook, "index_orphan " + cook}},
	{"key with a raw tab", cmds(cmd("SET", "user/name:tab\tF/~prk", "user/uid:U")), []string{"key_unparsable user/name:tab\tF/~prk"}},
	{"key with raw braces", cmds(cmd("HSET", "user/uid:{F}", "~isa", "user")), []string{"key_unparsable user/uid:{F}"}},
	{"key with an unescaped slash", cmds(cmd("HSET", "user/uid:F/a/b", "~isa", "user")), []string{"key_unparsable user/uid:F/a/b"}},
	{"key with a value of over 1 KiB", cmds(cmd("SET", "user/name:F"+strings.Repeat("x", 1024)+"/~prk", "user/uid:U")), []string{"key_unparsable user/name:F" + strings.Repeat("x", 1024) + "/~prk"}},
	{"key with an empty value", cmds(cmd("SET", "user/F:/~prk", "user/uid:U")), []string{"key_unparsable user/F:/~prk"}},
	{"key that is not UTF-8", cmds(cmd("SET", "user/name:\xff\x00F/~prk", "user/uid:U")), []string{"key_unparsable user/name:\xff\x00F/~prk"}},

	// I1 and I2: further values
	{"further value without an SRK", cmds(cmd("HSET", prk, furtherF, "1 - -")), []string{"srk_missing " + emailF}},
	{"further value that cannot be read", cmds(cmd("HSET", prk, furtherF, "1"), cmd("SET", emailF, "user/uid:U")), []string{"further_wrong " + prk}},
	{"further value without its name", cmds(cmd("HSET", prk, "~also:email", "1 - -", "~also:name:", "x")), []string{"further_wrong " + prk, "further_wrong " + prk}},
	{"further value that repeats the first", cmds(cmd("HSET", prk, "~also:email:U@x.org", "1 - -")), []string{"further_wrong " + prk}},
	{"further value under another form", cmds(cmd("HSET", prk, furtherF, "1 - - F@y.org"), cmd("SET", emailF, "user/uid:U")), []string{"further_wrong " + prk, "srk_missing user/email:F@y.org/~prk", "srk_stale " + emailF}},
	{"further value without a first", cmds(cmd("HDEL", prk, "email"), cmd("HSET", prk, furtherF, "1 - -"), cmd("SET", emailF, "user/uid:U")), []string{"field_missing " + prk, "further_wrong " + prk, "srk_stale " + email}},
	{"further value of another entry", append(otherEntryCommands("name of F"), cmd("SET", "user/name:name+_of+_F/~prk", "user/uid:F"), cmd("HSET", prk, furtherF, "1 - -")), []string{"value_shared " + emailF}},
	{"further value of a field that may have one", cmds(cmd("HSET", prk, "~also:name:F", "1 - -"), cmd("SET", "user/name:F/~prk", "user/uid:U")), []string{"further_many " + prk}},

	// I5: indexes
	{"not in the index of its facet", cmds(cmd("SREM", cook, "user/uid:U")), []string{"index_missing " + cook}},
	{"in the index of another facet", cmds(cmd("SADD", "user/job:F/~prks", "user/uid:U")), []string{"index_stale user/job:F/~prks"}},
	{"indexed facet changed by another program", cmds(cmd("HSET", prk, "job", "F")), []string{"index_missing user/job:F/~prks", "index_stale " + cook}},
	{"indexed facet lost", cmds(cmd("HDEL", prk, "job")), []string{"index_stale " + cook}},
	{"indexed facet empty", cmds(cmd("HSET", prk, "job", "")), []string{"index_unkeyable " + prk, "index_stale " + cook}},
	{"not in the index of a member", cmds(cmd("SREM", uTag, "user/uid:U")), []string{"index_missing " + uTag}},
	{"member added by another program", cmds(cmd("SADD", prk+"/tags", "F")), []string{"index_missing user/tags:F/~prks"}},
	{"member removed by another program", cmds(cmd("SREM", prk+"/tags", "go")), []string{"index_stale " + goTag}},
	{"member that no key can hold", cmds(cmd("SADD", prk+"/tags", "")), []string{"index_unkeyable " + prk + "/tags"}},
	{"members lost", cmds(cmd("DEL", prk+"/tags")), []string{"index_stale " + goTag, "index_stale " + uTag}},
	{"index of another Redis type", cmds(cmd("SET", "user/job:F/~prks", "x")), []string{"index_kind user/job:F/~prks"}},
	{"undeclared index", cmds(cmd("SADD", "user/color:F/~prks", "user/uid:U")), []string{"index_undeclared user/color:F/~prks"}},
	{"undeclared index, member without an entry", cmds(cmd("SADD", "user/color:F/~prks", "user/uid:F")), []string{"index_undeclared user/color:F/~prks", "index_orphan user/color:F/~prks"}},

	// damage that breaks no invariant
	{"invalid date", cmds(cmd("HSET", prk, "added", "yesterday")), []string{"facet_undecodable " + prk}},
	{"invalid JSON and boolean", cmds(cmd("HSET", prk, "rating", "{", "active", "perhaps", "age", "many")), []string{"facet_undecodable " + prk, "facet_undecodable " + prk}},
	{"tertiary set of another Redis type", cmds(cmd("DEL", prk+"/tags"), cmd("RPUSH", prk+"/tags", "go")), []string{"tertiary_kind " + prk + "/tags", "index_stale " + goTag, "index_stale " + uTag}},
	{"tertiary list of another Redis type", cmds(cmd("DEL", prk+"/notes"), cmd("SET", prk+"/notes", "x")), []string{"tertiary_kind " + prk + "/notes"}},
	{"entry of an undeclared type", cmds(cmd("HSET", "robot/id:F", "~isa", "robot", "name", "x"), cmd("SET", "robot/name:x/~prk", "robot/id:nobody")), []string{"schema_missing robot/id:F"}},

	// no damage
	{"further value", cmds(cmd("HSET", prk, furtherF, "1 - -"), cmd("SET", emailF, "user/uid:U")), nil},
	{"no damage", nil, nil},
	{"undeclared facets", cmds(cmd("HSET", prk, "shoe size", "44", "", "empty name")), nil},
	{"invalid password hash", cmds(cmd("HSET", prk, "password", "secret")), nil},

	// tombstones, held values and retired UIDs
	{"a tombstone", cmds(cmd("HSET", "user/uid:F", "~rev", "x"), cmd("EXPIRE", "user/uid:F", "600")), nil},
	{"a held value", cmds(cmd("HSET", "user/uid:F", "~rev", "x", "~held:name:zedF", "32503680000000"), cmd("PEXPIREAT", "user/uid:F", "32503680000000"), cmd("SET", "user/name:zedF/~prk", "user/uid:F")), nil},
	{"a held value without an SRK", cmds(cmd("HSET", "user/uid:F", "~rev", "x", "~held:name:zedF", "32503680000000"), cmd("PEXPIREAT", "user/uid:F", "32503680000000")), []string{"held_missing user/name:zedF/~prk"}},
	{"a tombstone that expires before a value that it holds", cmds(cmd("HSET", "user/uid:F", "~rev", "x", "~held:name:zedF", "32503680000000"), cmd("EXPIRE", "user/uid:F", "600"), cmd("SET", "user/name:zedF/~prk", "user/uid:F")), []string{"held_ending user/uid:F"}},
	{"a hold that has ended", cmds(cmd("HSET", "user/uid:F", "~rev", "x", "~held:name:zedF", "1000"), cmd("EXPIRE", "user/uid:F", "600")), nil},
	{"a retired UID", cmds(cmd("HSET", "user/uid:F", "~rev", "x", "~retired", "2026-11-20T08:02:40.512Z")), nil},
	{"a retired UID that ends", cmds(cmd("HSET", "user/uid:F", "~rev", "x", "~retired", "2026-11-20T08:02:40.512Z"), cmd("EXPIRE", "user/uid:F", "600")), []string{"retired_ending user/uid:F"}},
	{"endless tombstone", cmds(cmd("HSET", "user/uid:F", "~fence", "1")), []string{"tombstone_endless user/uid:F"}},

	// second factors
	{"a second factor", cmds(
		cmd("HSET", "user/uid:U", "~factor", "totp/x", "~password2", "h", "password", "*factor"), cmd("HSET", "~/factor/{user/uid:U}", "totp/x", "1 1   sealed"),
	), nil},
	{"a second factor that is absent", cmds(cmd("HSET", "user/uid:U", "~factor", "totp/x", "~password2", "h", "password", "*factor")), []string{"factor_missing user/uid:U"}},
	{"a second factor that is damaged", cmds(
		cmd("HSET", "user/uid:U", "~factor", "recovery/y,totp/x", "~password2", "h", "password", "*factor"), cmd("HSET", "~/factor/{user/uid:U}", "totp/x", "1 1   sealed", "recovery/y", "x"),
	), []string{"factor_missing user/uid:U"}},
	{"a damaged mark of second factors", cmds(cmd("HSET", "user/uid:U", "~factor", "x", "~password2", "h", "password", "*factor")), []string{"factor_missing user/uid:U"}},
	{"a password set beside a second factor", cmds(
		cmd("HSET", "user/uid:U", "~factor", "totp/x", "~password2", "h", "password", "$2a$x"), cmd("HSET", "~/factor/{user/uid:U}", "totp/x", "1 1   sealed"),
	), []string{"factor_hash user/uid:U"}},
	{"a second factor without its password hash", cmds(
		cmd("HSET", "user/uid:U", "~factor", "totp/x", "password", "*factor"), cmd("HSET", "~/factor/{user/uid:U}", "totp/x", "1 1   sealed"),
	), []string{"factor_hash user/uid:U"}},
	{"a password hash for a second factor, without one", cmds(cmd("HSET", "user/uid:U", "password", "*factor", "~password2", "h")), []string{"factor_hash user/uid:U"}},
	{"a record of second factors without an entry", cmds(cmd("HSET", "~/factor/{user/uid:F}", "totp/x", "1 1   sealed")), []string{"factor_orphan ~/factor/{user/uid:F}"}},
	{"a record of tickets without an entry", cmds(cmd("HSET", "~/factor/{user/uid:F}", "ticket/x", "x"), cmd("EXPIRE", "~/factor/{user/uid:F}", "600")), nil},

	// records of other programs, of inner namespaces, and unknown ones
	{"keys of other programs", cmds(
		cmd("SET", "session:F", "x"), cmd("SET", "user:F", "x"), cmd("SET", "user/F", "x"), cmd("SET", "cache/page:F", "x"), cmd("SADD", "a/b:F/c", "x"),
		cmd("HSET", "cache/x:F", "name", "x"), cmd("SET", "users/name:F\t", "x"), cmd("SET", "F", "x"), cmd("SET", " /:F", "x"),
	), nil},
	{"damaged records in inner namespaces", cmds(
		cmd("SET", "~F/user/name:x/~prk", "rubbish"), cmd("HSET", "~F/user/uid:1", "a", "b"), cmd("SET", "~F/~G/user/uid:1", "x"),
		cmd("SET", "~F", "x"), cmd("SET", "~F/user/name:tab\t/~prk", "x"),
	), nil},
	{"unknown records of the store's own", cmds(cmd("SET", "~/throttle/F", "x"), cmd("SET", "~/\t/F", "x"), cmd("HSET", "~/other/F", "~isa", "user")), nil},
}

// expand replaces U and F in text with the two UIDs of entry n. The UID for F sorts first.
func expand(text string, n int) string {
	return strings.NewReplacer("U", fmt.Sprintf("u%d", n), "F", fmt.Sprintf("f%d", n)).Replace(text)
}
