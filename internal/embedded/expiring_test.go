package embedded

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/recordkey"
)

func TestClassOf(t *testing.T) {
	for key, want := range map[string]int{
		"~/throttle/user/nobody/x":                       guessCounter,
		"~acme/~/throttle/user/nobody/x":                 guessCounter,
		"~~userdb/~acme/~/throttle/operator/nobody/x":    guessCounter,
		"~/throttle/user/origin/x":                       visitorLimit,
		"~acme/~/visits/user/identifier/x":               visitorLimit,
		"~acme/~/visits/user/use/x":                      useCounter,
		"~/token/{user/uid:a}":                           shortToken,
		"~/token/{once/name:x}":                          shortToken,
		"~~userdb/~/token/{~~userdb/once/name:x}":        requestToken,
		"~~userdb/~/token/{~~userdb/once/name~acme+_:x}": requestToken,
		"~/history/{user/uid:a}":                         orphanHistory,
		"~/throttle/user/uid/a":                          guessCounter,
		"~/session/{user/uid:a}":                         -1,
		"user/uid:gone":                                  -1,
		"~acme":                                          -1,
		"user/~/visits/x":                                -1,
	} {
		if got := classOf(key); got != want {
			t.Errorf("%s: class %d, want %d", key, got, want)
		}
	}
}

// TestRecordsOf checks that recordsOf returns the same keys as [recordkey.Key.Own], and that
// ownerOf returns the entry's key for them.
func TestRecordsOf(t *testing.T) {
	for _, path := range []string{"", "acme", "a/b", "~userdb/a+_b"} {
		ns, err := recordkey.ParseNamespace(path)
		if err != nil {
			t.Fatal(err)
		}
		prk, err := recordkey.PRK("user", "uid", "~x/{y}")
		if err != nil {
			t.Fatal(err)
		}
		prk = prk.In(ns)
		for i, kind := range []string{"history", "token"} {
			own, err := prk.Own(kind)
			if err != nil {
				t.Fatal(err)
			}
			if got := recordsOf(prk.String())[i]; got != own.String() || ownerOf(got) != prk.String() {
				t.Errorf("%s: record %s of %s, want %s", prk, got, ownerOf(got), own)
			}
		}
	}
}

// TestFloods checks which records are deleted if there are too many of some classes.
func TestFloods(t *testing.T) {
	formats := [numClasses]string{
		"~/history/{user/uid:none%d}", "~/token/{user/uid:none%d}", "~/token/{user/uid:no%d}",
		"~~userdb/~/token/{~~userdb/once/name:%d}", "~/throttle/user/nobody/%d", "~/visits/user/identifier/%d",
		"~/visits/user/use/%d",
	}
	for _, tt := range []struct {
		name          string
		records, stay [numClasses]int
	}{
		{"few", [numClasses]int{10, 10, 10, 10, 10, 10, 10}, [numClasses]int{10, 10, 10, 10, 10, 10, 10}},
		{"a flood of invitations", [numClasses]int{9000, 47_000, 1000, 1000, 10, 10, 10}, [numClasses]int{9000, 4000, 1000, 1000, 10, 10, 10}},
		{"a flood of creates", [numClasses]int{9000, 1000, 47_000, 47_000, 10, 10, 10}, [numClasses]int{9000, 1000, 4000, 4000, 10, 10, 10}},
		{"a flood of visitors' requests", [numClasses]int{9000, 10, 10, 10, 10, 30_000, 10}, [numClasses]int{9000, 10, 10, 10, 10, 6000, 10}},
		{"a flood of guesses", [numClasses]int{9000, 10, 10, 10, 30_000, 10, 10}, [numClasses]int{9000, 10, 10, 10, 20_000, 10, 10}},
		{"all floods", [numClasses]int{10_000, 5000, 5000, 5000, 30_000, 30_000, 30_000}, [numClasses]int{0, 4000, 4000, 4000, 20_000, 6000, 6000}},
		{"many histories", [numClasses]int{30_000, 1000, 0, 0, 0, 1000, 0}, [numClasses]int{20_000, 1000, 0, 0, 0, 1000, 0}},
		{"a flood of uses", [numClasses]int{9000, 10, 10, 10, 10, 1000, 30_000}, [numClasses]int{9000, 10, 10, 10, 10, 1000, 6000}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newData()
			d.now = 1
			var kept []string
			for i := range 5000 { // entries, and their records, stay
				entry := fmt.Sprint("user/uid:", i)
				d.setField(entry, typeField, "user")
				for _, key := range append([]string{"~/session/{" + entry + "}", "~/throttle/user/uid/" + entry}, recordsOf(entry)...) {
					d.setString(key, "")
					d.setUntil(key, 2)
					kept = append(kept, key)
				}
			}
			for class, n := range tt.records {
				for i := range n {
					key := fmt.Sprintf(formats[class], i)
					until := int64(10 + i)
					if class == guessCounter {
						d.setField(key, windowField, fmt.Sprint(until))
					} else {
						d.setString(key, "")
					}
					if class == longToken {
						until += longLife.Milliseconds()
					}
					d.setUntil(key, until)
					d.sweep()
				}
			}
			for class, stay := range tt.stay {
				for i := range tt.records[class] {
					key := fmt.Sprintf(formats[class], i)
					if _, found := d.keys.Get(key); found != (i >= tt.records[class]-stay) {
						t.Fatalf("%s exists: %v; want only the last %d of its class", key, found, stay)
					}
				}
			}
			for _, key := range kept {
				if _, found := d.keys.Get(key); !found {
					t.Errorf("%s was deleted, want it to stay", key)
				}
			}
		})
	}
}

// TestFloodInOneNamespace checks that a flood in one namespace removes nothing from another one,
// and that the oldest token goes first, whichever expires first.
func TestFloodInOneNamespace(t *testing.T) {
	d := newData()
	d.now = 1
	invite := func(namespace string, i, life int) string {
		key := fmt.Sprintf("%s~/token/{%suser/uid:%d}", namespace, namespace, i)
		d.setString(key, "")
		d.setUntil(key, d.now+int64(life))
		d.sweep()
		return key
	}
	var quiet, last []string
	for i := range 100 {
		quiet = append(quiet, invite("~quiet/", i, 1000))
	}
	for i := range 10_000 {
		invite("", i, 100_000)
	}
	for i := range 100 {
		last = append(last, invite("", 10_000+i, 1000))
	}
	for i := range 2000 {
		invite("", 20_000+i, 100_000)
	}
	for _, key := range append(quiet, last...) {
		if _, found := d.keys.Get(key); !found {
			t.Errorf("%s was deleted, want it to stay", key)
		}
	}
	if got := d.limited[shortToken].len(); got != classLimits[shortToken] {
		t.Errorf("there are %d tokens, want %d", got, classLimits[shortToken])
	}
}

// TestGuessesAtAccounts checks that a flood of failed logins evicts the oldest failures first,
// whether at an account or at an unknown identifier, and no other counters of the account.
func TestGuessesAtAccounts(t *testing.T) {
	defer func(old [numClasses]int) { classLimits = old }(classLimits)
	classLimits[guessCounter] = 100
	for _, path := range []string{"", file(t)} {
		s := open(t, path)
		fail := func(who string, ends int) {
			do(t, s.Client(), fmt.Sprintf("HSET ~/throttle/user/%s sn 10 su %d sa 5 k x", who, ends))
			do(t, s.Client(), fmt.Sprintf("PEXPIRE ~/throttle/user/%s 86400000", who))
		}
		isCounted := func(who string) bool {
			return s.Client().HExists(t.Context(), "~/throttle/user/"+who, "sn").Val()
		}
		do(t, s.Client(), "HSET ~/throttle/user/uid/a o:home 7 n:home 2 fu 8")
		fail("uid/a", 1000)
		fail("nobody/a", 1001)
		fail("uid/b", 1002)
		fail("nobody/b", 1003)
		do(t, s.Client(), "HDEL ~/throttle/user/uid/b sn su sa") // withdrawn
		for i := range 101 {
			if known, unknown := isCounted("uid/a"), isCounted("nobody/a"); known != (i <= 97) || unknown != (i <= 98) {
				t.Errorf("after %d others: uid/a counted: %v, nobody/a counted: %v; want %v, %v", i, known, unknown, i <= 97, i <= 98)
			}
			fail(fmt.Sprintf("nobody/%d", i), 2000+i)
		}
		if isCounted("nobody/b") {
			t.Error("nobody/b is still counted after 101 others")
		}
		if got := s.Client().HGetAll(t.Context(), "~/throttle/user/uid/a").Val(); len(got) != 4 || got["o:home"] != "7" || got["fu"] != "8" {
			t.Errorf("the other counters of uid/a are %v, want 4 with o:home 7 and fu 8", got)
		}
		if path != "" {
			closeStore(t, s)
			s = open(t, path)
		}
		if got := s.engine.data.limited[guessCounter].len(); got != 100 {
			t.Errorf("%d counters, want 100", got)
		}
		do(t, s.Client(), "DEL ~/throttle/user/nobody/100")
		if got := s.engine.data.limited[guessCounter].len(); got != 99 {
			t.Errorf("%d counters after a delete, want 99", got)
		}
	}
}

// TestOwners checks that histories and tokens count as those of strangers while their entry does
// not exist, whichever command creates or removes the entry, and also after the file is read again.
func TestOwners(t *testing.T) {
	path := file(t)
	s := open(t, path)
	d := s.engine.data
	check := func(after string, want int) {
		t.Helper()
		limited := &s.engine.data.limited
		if got := limited[orphanHistory].len(); got != want {
			t.Errorf("after %s: %d histories, want %d", after, got, want)
		}
		if got := limited[shortToken].len() + limited[longToken].len(); got != want {
			t.Errorf("after %s: %d tokens, want %d", after, got, want)
		}
	}
	for _, entry := range []string{"~acme/user/uid:a", "user/uid:b"} {
		for _, key := range recordsOf(entry) {
			do(t, s.Client(), "SET "+key+" v PX 3600000")
		}
	}
	check("two invitations", 2)
	for _, step := range []struct {
		command string
		want    int
	}{
		{"HSET ~acme/user/uid:a ~isa user", 1},
		{"HSET ~acme/user/uid:a ~isa person", 1},
		{"HSET ~acme/user/uid:a ~isa", 2}, // an empty value
		{"HSET ~acme/user/uid:a ~isa user name x", 1},
		{"HDEL ~acme/user/uid:a ~isa", 2},
		{"HSET ~acme/user/uid:a ~isa user", 1},
		{"RENAME ~acme/user/uid:a user/uid:b", 1},
		{"COPY user/uid:b ~acme/user/uid:a", 0},
		{"SET user/uid:b v", 1},
		{"DEL user/uid:b", 1},
		{"PEXPIRE ~acme/~/token/{~acme/user/uid:a} 7200000", 1},
		{"PEXPIRE ~acme/~/token/{~acme/user/uid:a} 720000000", 1},
		{"PEXPIRE ~acme/~/history/{~acme/user/uid:a} 7200000", 1},
	} {
		words := strings.Fields(step.command)
		if len(words) == 3 && words[0] == "HSET" {
			words = append(words, "")
		}
		args := make([]any, len(words))
		for i, word := range words {
			args[i] = word
		}
		if err := s.Client().Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(step.command, err)
		}
		check(step.command, step.want)
	}
	closeStore(t, s)
	s = open(t, path)
	if d == s.engine.data {
		t.Fatal("the file was not read")
	}
	check("reading the file", 1)
	do(t, s.Client(), "DEL ~acme/user/uid:a")
	check("the last delete", 2)
}

// TestFlood checks that if strangers create too many records, the oldest ones are deleted, and
// nothing else.
func TestFlood(t *testing.T) {
	defer func(old [numClasses]int) { classLimits = old }(classLimits)
	classLimits = [numClasses]int{6, 4, 4, 4, 5, 3, 2}
	for _, path := range []string{"", file(t)} {
		flood(t, open(t, path))
	}
}

func flood(t *testing.T, s *Store) {
	ctx := t.Context()
	if _, err := s.Client().Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, "user/uid:live", "~isa", "user")
		for i := range 20 {
			life := time.Hour + time.Duration(i)*time.Second
			for _, key := range []string{
				"~/throttle/user/nobody/%02d", "~/token/{user/uid:%02d}", "~/visits/user/x/%02d", "~/session/{user/uid:%02d}",
				"~/throttle/user/uid/%02d", "~/history/{user/uid:%02d}", "~/visits/user/use/%02d",
			} {
				p.Set(ctx, fmt.Sprintf(key, i), "1", life)
			}
		}
		p.Set(ctx, "~/token/{user/uid:live}", "1", time.Minute)
		p.Set(ctx, "~/history/{user/uid:live}", "1", time.Minute)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]int{
		"~/throttle/user/nobody/*": 5, "~/throttle/user/nobody/1[5-9]": 5, "~/token/*": 5, "~/token/*{user/uid:1[6-9]}": 4, "~/history/*": 7, "~/history/*live*": 1,
		"~/token/*live*": 1,
		"~/visits/*":     5, "~/visits/user/use/*": 2, "~/session/*": 20, "~/throttle/user/uid/*": 20,
	} {
		if got := s.Client().Keys(ctx, pattern).Val(); len(got) != want {
			t.Errorf("%s: got %q, want %d keys", pattern, got, want)
		}
	}
	if s.path == "" {
		return
	}
	if got, want := len(onDisk(t, s.path)), int(s.Client().DBSize(ctx).Val()); got < want {
		t.Errorf("%d records on disk, want at least %d", got, want)
	}
}
