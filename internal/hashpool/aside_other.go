//go:build !linux

package hashpool

// aside runs a job: here a thread has no priority of its own that anybody may lower.
func aside(job, _ func()) { job() }
