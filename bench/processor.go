package main

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// processorTime returns how long a process has computed, with all of its threads, to the nanosecond.
func processorTime(pid int) time.Duration {
	var t unix.Timespec
	// A process has a clock of its own: see clock_getcpuclockid(3).
	const scheduled = 2
	must(unix.ClockGettime(int32(^pid<<3|scheduled), &t))
	return time.Duration(t.Nano())
}

// pin keeps this process and the given ones on one processor, and returns a function that lets them
// go again. Whether the kernel puts a client and its server on one processor or on two decides over
// half of the time of a round trip, and lasts for seconds; on one there is nothing to decide.
func pin(pids []int) (release func()) {
	var all, one unix.CPUSet
	must(unix.SchedGetaffinity(0, &all))
	for cpu := range len(all) * 64 {
		if all.IsSet(cpu) { // the last one: interrupts come to the first
			one.Zero()
			one.Set(cpu)
		}
	}
	place(pids, &one)
	return func() { place(pids, &all) }
}

// place lets all threads of this process and of the given ones run on cpus alone. Threads that begin
// later inherit that from the ones that begin them.
func place(pids []int, cpus *unix.CPUSet) {
	for _, pid := range append(pids, os.Getpid()) {
		for range 2 { // the second time for threads that began meanwhile
			for _, task := range got(os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")) {
				tid := got(strconv.Atoi(task.Name()))
				if err := unix.SchedSetaffinity(tid, cpus); err != unix.ESRCH {
					must(err)
				}
			}
		}
	}
}
