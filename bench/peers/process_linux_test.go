package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const after = " S 1 42 42 0 -1 4194560 9 9 9 9 700 50 20 3 20 0 8 0 12 34 56"
	for _, name := range []string{"(redis-server)", "(a) b) (c)", "( 1 2 3 )"} {
		if n, err := parseStat([]byte("42 " + name + after)); n != 773 || err != nil {
			t.Errorf("%s: got %d ticks, %v, want 773", name, n, err)
		}
	}
	for _, text := range []string{"", "42 (x)", "42 x" + after, "42 (x) S 1 42 42 0 -1 4194560 9 9 9 9 x 50 20 3"} {
		if n, err := parseStat([]byte(text)); !errors.Is(err, errStat) {
			t.Errorf("%q: got %d, %v, want %v", text, n, err, errStat)
		}
	}
}

func TestParsePSS(t *testing.T) {
	const text = "55 [rollup]\nRss:            9000 kB\nPss:            1234 kB\nPss_Dirty:        17 kB\nSwapPss:           1 kB\n"
	if n, err := parsePSS(text); n != 1234<<10 || err != nil {
		t.Errorf("got %d, %v, want %d", n, err, 1234<<10)
	}
	for _, text := range []string{"", "Pss_Dirty: 17 kB\n", "Pss: many kB\n", "Pss: 17 MB\n"} {
		if n, err := parsePSS(text); !errors.Is(err, errPSS) {
			t.Errorf("%q: got %d, %v, want %v", text, n, err, errPSS)
		}
	}
}

// TestUsage checks that the processor time of this process grows while it computes, and that its
// memory is counted.
func TestUsage(t *testing.T) {
	own := []int{os.Getpid()}
	before, err := cpuOf(own)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if after, err := cpuOf(own); err != nil {
			t.Fatal(err)
		} else if after > before {
			break
		}
	}
	one, err := memoryOf(own)
	two, twoErr := memoryOf(append(own, own...))
	if err != nil || twoErr != nil || one < 1<<20 || two < one*3/2 {
		t.Errorf("one process uses %d bytes, %v; this process counted twice uses %d, %v", one, err, two, twoErr)
	}
	if _, err := cpuOf([]int{1 << 30}); err == nil {
		t.Error("a process that does not exist has used time")
	}
}

func TestProcess(t *testing.T) {
	dir := t.TempDir()
	p, err := start(dir, "sleeper", os.Environ(), "sh", "-c", "echo noise >&2; echo listening on http://127.0.0.1:17 >&2; sleep 600")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := p.address(context.Background())
	if err != nil || addr != "127.0.0.1:17" {
		t.Errorf("got address %q, %v, want 127.0.0.1:17", addr, err)
	}
	p.stop()
	select {
	case <-p.ended:
	default:
		t.Error("stop returned before the process ended")
	}
	for text, want := range map[string]string{
		"echo why >&2; exit 1":                                 "ended: why",
		"echo listening on http://192.0.2.1:80 >&2; sleep 600": "want 127.0.0.1",
	} {
		p, err := start(t.TempDir(), "broken", os.Environ(), "sh", "-c", text)
		if err != nil {
			t.Fatal(err)
		}
		if addr, err := p.address(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got address %q, %v, want an error with %q", text, addr, err, want)
		}
		p.stop()
	}
}
