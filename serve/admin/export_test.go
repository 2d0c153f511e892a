package admin

// SetMaxKeys sets the maximum number of keys of a namespace until undo is called.
func SetMaxKeys(n int) (undo func()) {
	maxKeys = n
	return func() { maxKeys = MaxKeys }
}
