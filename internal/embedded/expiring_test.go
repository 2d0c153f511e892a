package embedded

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestClassOf(t *testing.T) {
	for key, want := range map[string]int{
		"~/throttle/user/nobody/x":                    nobodyCounter,
		"~acme/~/throttle/user/nobody/x":              nobodyCounter,
		"~~userdb/~acme/~/throttle/operator/nobody/x": nobodyCounter,
		"~/throttle/user/origin/x":                    visitorLimit,
		"~acme/~/visits/user/identifier/x":            visitorLimit,
		"~/token/{user/uid:a}":                        orphanToken,
		"~~userdb/~/token/{~~userdb/once/name:x}":     orphanToken,
		"~/throttle/user/uid/a":                       -1,
		"~/session/{user/uid:a}":                      -1,
		"~/history/{user/uid:a}":                      -1,
		"user/uid:gone":                               -1,
		"~acme":                                       -1,
		"user/~/visits/x":                             -1,
	} {
		if got := classOf(key); got != want {
			t.Errorf("%s: class %d, want %d", key, got, want)
		}
	}
}

// TestFlood checks that if strangers create too many records, those that expire first are deleted,
// and no others.
func TestFlood(t *testing.T) {
	old := classLimits
	defer func() { classLimits = old }()
	classLimits = [numClasses]int{5, 4, 3}
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
				"~/throttle/user/uid/%02d",
			} {
				p.Set(ctx, fmt.Sprintf(key, i), "1", life)
			}
		}
		p.Set(ctx, "~/token/{user/uid:live}", "1", time.Minute)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]int{
		"~/throttle/user/nobody/*": 5, "~/throttle/user/nobody/1[5-9]": 5, "~/token/*": 5, "~/token/*{user/uid:1[6-9]}": 4, "~/token/*live*": 1,
		"~/visits/*": 3, "~/session/*": 20, "~/throttle/user/uid/*": 20,
	} {
		if got := s.Client().Keys(ctx, pattern).Val(); len(got) != want {
			t.Errorf("%s: %q, want %d", pattern, got, want)
		}
	}
	if s.path == "" {
		return
	}
	if got, want := len(onDisk(t, s.path)), int(s.Client().DBSize(ctx).Val()); got < want {
		t.Errorf("%d records on disk, want at least %d", got, want)
	}
}
