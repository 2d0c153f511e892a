package schema

// User returns the built-in schema: the type user, whose entries are found by
// uid, email and name. Each call returns a new value.
func User() Schema {
	password := DefaultPassword()
	return Schema{Types: map[string]Type{"user": {
		Primary: "uid",
		Fold:    FoldCasefold,
		Fields: map[string]Field{
			"email": {Role: RoleSecondary, Kind: "email"},
			"name":  {Role: RoleSecondary, Kind: "nickname"},
			"added": {Codec: CodecDate},
			"job":   {},
		},
		Tertiary: map[string]Tertiary{"tags": {Kind: "set", Indexed: true}},
		Password: &password,
	}}}
}
