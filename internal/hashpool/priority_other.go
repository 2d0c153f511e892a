//go:build !linux

package hashpool

// lowerPriority does nothing: elsewhere a priority is that of the whole process.
func lowerPriority() {}
