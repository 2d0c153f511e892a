package main

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// processorTime returns the processor time of a process and all its threads.
func processorTime(pid int) time.Duration {
	var t unix.Timespec
	// Each process has a clock of its own; see clock_getcpuclockid(3).
	const scheduled = 2
	must(unix.ClockGettime(int32(^pid<<3|scheduled), &t))
	return time.Duration(t.Nano())
}

// pin keeps this process and the given ones on one processor, and returns a function that releases
// them. The kernel runs a client and its server on one processor or on two, for seconds at a time,
// and that changes the time of a round trip by half. On one processor there is no such choice.
func pin(pids []int) (release func()) {
	var all, one unix.CPUSet
	must(unix.SchedGetaffinity(0, &all))
	for cpu := range len(all) * 64 {
		if all.IsSet(cpu) { // the last one, since interrupts go to the first
			one.Zero()
			one.Set(cpu)
		}
	}
	runOn(pids, &one)
	return func() { runOn(pids, &all) }
}

// runOn lets all threads of this process and of the given ones run only on cpus. Threads that start
// later inherit that.
func runOn(pids []int, cpus *unix.CPUSet) {
	for _, pid := range append(pids, os.Getpid()) {
		for range 2 { // again, for threads that started meanwhile
			for _, task := range mustGet(os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")) {
				tid := mustGet(strconv.Atoi(task.Name()))
				if err := unix.SchedSetaffinity(tid, cpus); err != unix.ESRCH {
					must(err)
				}
			}
		}
	}
}
