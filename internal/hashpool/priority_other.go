//go:build !linux

package hashpool

// lowerPriority does nothing, because other systems set the priority of the whole process.
func lowerPriority() {}
