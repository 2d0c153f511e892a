package admin

// SetMaxKeys sets how many keys a namespace may have.
func SetMaxKeys(n int) (undo func()) {
	maxKeys = n
	return func() { maxKeys = MaxKeys }
}
