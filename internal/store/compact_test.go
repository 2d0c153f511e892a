package store_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
)

func TestAskCompact(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines []string
		want  store.CompactLimits
	}{
		{"as it is by default", nil, store.CompactLimits{Fields: 512, Bytes: 64, Told: true}},
		{"others", []string{"hash-max-listpack-value 128", "hash-max-listpack-entries 9"}, store.CompactLimits{Fields: 9, Bytes: 128, Told: true}},
		{"by the names of before", []string{"hash-max-ziplist-value 0"}, store.CompactLimits{Fields: 512, Bytes: 0, Told: true}},
		{
			"CONFIG is forbidden",
			[]string{"hash-max-listpack-value 128", "user default on nopass ~* &* +@all -config"},
			store.CompactLimits{Fields: 512, Bytes: 64},
		},
		{"CONFIG is renamed away", []string{"hash-max-listpack-value 128", `rename-command CONFIG ""`}, store.CompactLimits{Fields: 512, Bytes: 64}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := redistest.Start(t, redistest.Config(tt.lines...)).Client()
			if got, err := store.AskCompact(t.Context(), c); got != tt.want || err != nil {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

// saying is a server's answer to CONFIG GET.
type saying struct {
	redis.Cmdable
	says map[string]string
}

func (s saying) ConfigGet(ctx context.Context, _ string) *redis.MapStringStringCmd {
	cmd := redis.NewMapStringStringCmd(ctx)
	cmd.SetVal(s.says)
	return cmd
}

func TestAskCompactOtherServers(t *testing.T) {
	for _, tt := range []struct {
		name string
		says map[string]string
		want store.CompactLimits
	}{
		{"Redis 6", map[string]string{"hash-max-ziplist-entries": "128", "hash-max-ziplist-value": "100"}, store.CompactLimits{Fields: 128, Bytes: 100, Told: true}},
		{"one that tells nothing", map[string]string{}, store.CompactLimits{Fields: 512, Bytes: 64}},
		{"one that tells half", map[string]string{"hash-max-listpack-value": "32"}, store.CompactLimits{Fields: 512, Bytes: 32}},
		{"one that tells the other half", map[string]string{"hash-max-listpack-entries": "32"}, store.CompactLimits{Fields: 32, Bytes: 64}},
		{"one that tells rubbish", map[string]string{"hash-max-listpack-value": "32b", "hash-max-listpack-entries": ""}, store.CompactLimits{Fields: 512, Bytes: 64}},
	} {
		if got, err := store.AskCompact(t.Context(), saying{says: tt.says}); got != tt.want || err != nil {
			t.Errorf("%s: got %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
}

func TestAskCompactNobody(t *testing.T) {
	c := redis.NewClient(&redis.Options{MaxRetries: -1, Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("nobody is there")
	}})
	defer c.Close()
	if _, err := store.AskCompact(t.Context(), c); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}
