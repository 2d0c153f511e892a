package embedded

// For tests outside of the package.
var (
	DialServed     = dialServed
	ServeForAWhile = serveForAWhile
)
