package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// TestRefusedForAWhile has a server refuse one of the protocol's commands for a while: while a slot moves, when it
// is no master any more, when it loads. The command is sent again until it is carried out, once.
func TestRefusedForAWhile(t *testing.T) {
	for _, answer := range []wrong{
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"READONLY You can't write against a read only replica.",
		"CLUSTERDOWN The cluster is down",
		"LOADING Redis is loading the dataset in memory",
		"NOREPLICAS Not enough good replicas to write.",
	} {
		for _, s := range []redisx.Script{claimScript, readyScript, commitScript, promoteScript, filledScript} {
			for _, times := range []int{1, 4, 1 << 20} {
				name := fmt.Sprintf("%.8s/%.20s/%d", answer, s.Source[3:], times)
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { refuse(t, answer, s, times) })
				})
			}
		}
	}
}

func refuse(t *testing.T, answer wrong, refused redisx.Script, times int) {
	t.Helper()
	count := 0
	s := newStage(newWorld(unchanged), func(_ *actor, args []string) ([]string, any) {
		if args[0] == "evalsha" && args[1] == refused.SHA && count < times {
			count++
			return nil, answer
		}
		return args, nil
	})
	s.patience = 1000
	s.reset(nothing())
	s.play(then(create("P", "email=x", "red")))
	synctest.Wait()
	defer s.close()
	a := s.actors[0]
	for len(a.waiting()) > 0 {
		s.step(a.waiting()[0], none)
	}
	err := a.results[0]
	committed := refused.SHA != claimScript.SHA && refused.SHA != readyScript.SHA && refused.SHA != commitScript.SHA
	switch ended := times < attempts; {
	case ended && (err != nil || count != times || s.leftover() != ""):
		t.Errorf("refused %d times: %v, %s", count, err, s.leftover())
	case !ended && count != attempts:
		t.Errorf("sent %d times, want %d", count, attempts)
	case !ended && committed && err != nil:
		t.Errorf("it was committed, but: %v", err)
	case !ended && !committed && (!errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown) || !strings.Contains(err.Error(), string(answer))):
		t.Errorf("got %v, want the store unavailable, with the cause", err)
	case !ended && !committed && s.recordOf("user/uid:P").Live():
		t.Error("it was committed")
	}
	if v := s.violated(); v != "" {
		t.Error(v)
	}
}

// TestNoScript has servers that know no script, as new masters do: they are sent in full.
func TestNoScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sources := map[string]string{}
		for _, s := range allScripts {
			sources[s.Source] = s.SHA
		}
		sent := map[string]int{}
		s := newStage(newWorld(unchanged), func(_ *actor, args []string) ([]string, any) {
			switch args[0] {
			case "evalsha":
				return nil, wrong("NOSCRIPT No matching script. Please use EVAL.")
			case "eval":
				sha := sources[args[1]]
				sent[sha]++
				return append([]string{"evalsha", sha}, args[2:]...), nil
			}
			return args, nil
		})
		s.reset(nothing())
		s.play(then(create("P", "email=x", "red"), update("P", "email=y"), remove("P"), create("P", "email=z")))
		synctest.Wait()
		defer s.close()
		a := s.actors[0]
		for len(a.waiting()) > 0 {
			s.step(a.waiting()[0], none)
		}
		if err := errors.Join(a.results...); err != nil || s.leftover() != "" || s.violated() != "" {
			t.Errorf("%v, %s, %s", err, s.leftover(), s.violated())
		}
		for _, script := range []redisx.Script{claimScript, swapScript, commitScript, buryScript, readyScript, promoteScript, filledScript} {
			if sent[script.SHA] == 0 {
				t.Errorf("never sent: %.30s", script.Source)
			}
		}
	})
}
