package console

import (
	"context"
	"fmt"
	"testing"
)

// TestFourFigures: more are not gathered at a time, and a page that wants one goes on without it.
func TestFourFigures(t *testing.T) {
	var f figures
	defer f.close()
	release := make(chan struct{})
	gather := func(context.Context) (any, error) { <-release; return 1, nil }
	var running []chan struct{}
	for i := range mostAtOnce {
		running = append(running, f.begin(fmt.Sprint(i), figureAge, gather))
	}
	if f.begin("another", figureAge, gather) != nil {
		t.Error("a fifth is gathered")
	}
	close(release)
	for _, done := range running {
		<-done
	}
	if _, at := gathered(t.Context(), &f, "another", figureAge, func(context.Context) (int, error) { return 1, nil }); at.IsZero() {
		t.Error("none is gathered any more")
	}
}
