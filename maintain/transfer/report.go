package transfer

// A Report counts what an import or an export did.
type Report struct {
	Read    int64 `json:"read"` // entries, or lines
	Created int64 `json:"created"`
	Updated int64 `json:"updated"`
	Skipped int64 `json:"skipped"`
	Refused int64 `json:"refused"`
}

// An ImportState is how far an import came, for going on with ImportOptions.Resume. It is kept as JSON.
type ImportState struct {
	ID     string `json:"id"`    // of the import: UIDs that it makes up follow from it
	Lines  int64  `json:"lines"` // read and done with
	Bytes  int64  `json:"bytes"` // of the input that they take
	Sum    string `json:"sum"`   // a checksum of those
	Report Report `json:"report"`
}
