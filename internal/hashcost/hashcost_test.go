package hashcost

import "testing"

// run stands for a testing.M.
type run func() int

func (r run) Run() int { return r() }

func TestOf(t *testing.T) {
	for _, tt := range []struct{ cost, cheap int }{
		{4, 4},
		{10, 4},
		{12, 4},
		{13, 5},
		{16, 8},
	} {
		if got := Of(tt.cost); got != tt.cost {
			t.Errorf("Of(%d) = %d, want it unchanged", tt.cost, got)
		}
		inside := 0
		if code := Cheap(run(func() int { inside = Of(tt.cost); return 7 })); code != 7 {
			t.Errorf("Cheap = %d, want the tests' own exit code 7", code)
		}
		if inside != tt.cheap {
			t.Errorf("Of(%d) under Cheap = %d, want %d", tt.cost, inside, tt.cheap)
		}
	}
}
