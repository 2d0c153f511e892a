package check

// Codes of problems, sorted. doc.go says what they mean; scripts rely on them.
const (
	codeEntryMissing       = "entry_missing"
	codeFacetUndecodable   = "facet_undecodable"
	codeFieldMissing       = "field_missing"
	codeFillOrphan         = "fill_orphan"
	codeFillWaiting        = "fill_waiting"
	codeFormOther          = "form_other"
	codeIndexKind          = "index_kind"
	codeIndexMissing       = "index_missing"
	codeIndexOrphan        = "index_orphan"
	codeIndexStale         = "index_stale"
	codeIndexUndeclared    = "index_undeclared"
	codeIndexUnkeyable     = "index_unkeyable"
	codeIsaMissing         = "isa_missing"
	codeKeyField           = "key_field"
	codeKeyUnparsable      = "key_unparsable"
	codePrimaryWrong       = "primary_wrong"
	codePRKKind            = "prk_kind"
	codePRKWrong           = "prk_wrong"
	codeSchemaMissing      = "schema_missing"
	codeSKVWrong           = "skv_wrong"
	codeSRKKind            = "srk_kind"
	codeSRKMissing         = "srk_missing"
	codeSRKOrphan          = "srk_orphan"
	codeSRKStale           = "srk_stale"
	codeSRKUndeclared      = "srk_undeclared"
	codeSRKWrong           = "srk_wrong"
	codeSRVType            = "srv_type"
	codeSRVUnparsable      = "srv_unparsable"
	codeTertiaryKind       = "tertiary_kind"
	codeTertiaryOrphan     = "tertiary_orphan"
	codeTertiaryUndeclared = "tertiary_undeclared"
	codeTypeMismatch       = "type_mismatch"
	codeValueShared        = "value_shared"
	codeValueUnkeyable     = "value_unkeyable"
)

// facts says which invariant a code tells of, and whether it is but a warning.
var facts = map[string]struct {
	invariant int
	warning   bool
}{
	codeEntryMissing:       {0, false},
	codeFacetUndecodable:   {0, false},
	codeFieldMissing:       {0, true},
	codeFillOrphan:         {4, false},
	codeFillWaiting:        {5, false},
	codeFormOther:          {1, false},
	codeIndexKind:          {5, false},
	codeIndexMissing:       {5, false},
	codeIndexOrphan:        {4, false},
	codeIndexStale:         {5, false},
	codeIndexUndeclared:    {0, true},
	codeIndexUnkeyable:     {5, false},
	codeIsaMissing:         {3, false},
	codeKeyField:           {3, false},
	codeKeyUnparsable:      {4, false},
	codePrimaryWrong:       {3, false},
	codePRKKind:            {3, false},
	codePRKWrong:           {3, false},
	codeSchemaMissing:      {0, false},
	codeSKVWrong:           {1, false},
	codeSRKKind:            {4, false},
	codeSRKMissing:         {1, false},
	codeSRKOrphan:          {4, false},
	codeSRKStale:           {4, false},
	codeSRKUndeclared:      {0, true},
	codeSRKWrong:           {1, false},
	codeSRVType:            {4, false},
	codeSRVUnparsable:      {4, false},
	codeTertiaryKind:       {0, false},
	codeTertiaryOrphan:     {4, false},
	codeTertiaryUndeclared: {0, true},
	codeTypeMismatch:       {3, false},
	codeValueShared:        {2, false},
	codeValueUnkeyable:     {1, false},
}
