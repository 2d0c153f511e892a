package password_test

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/coffeenode/userdb/password"
)

func ExampleHasher() {
	h, err := password.New(password.Options{Cost: 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	stored, err := h.Hash("fjord umbrella 91 quilts")
	fmt.Println(stored[:7], len(stored), err)

	for _, attempt := range []string{"fjord umbrella 91 quilts", "Fjord umbrella 91 quilts"} {
		result, err := h.Verify(stored, attempt)
		fmt.Println(result.OK, err)
	}
	// Output:
	// $2a$10$ 60 <nil>
	// true <nil>
	// false <nil>
}

// A hash from another program can be verified. Renew says that it should be replaced.
func ExampleHasher_Verify() {
	h, err := password.New(password.Options{Cost: 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	const imported = "$6$saltsalt$hRM5XZ86KXEw9UOmjigeVqFgULtFB2sgpC9lXQDfMib3Zgw7mEiUvBJI2EplzfAqxL5Vvwp2scFtv/uamSo5z0"
	result, err := h.Verify(imported, "correct horse")
	fmt.Println(result.OK, result.Renew, err)

	_, err = h.Verify("$1$saltsalt$qjXMvbEw8oaL.CzflDtaK/", "correct horse")
	fmt.Println(errors.Is(err, password.ErrHash), err)
	// Output:
	// true algorithm <nil>
	// true stored hash is not usable: md5 is too weak
}

func ExamplePolicy_Check() {
	p := password.Policy{Min: 8, Blocklist: true}
	for _, choice := range []string{"secret", "Password1", "alice@hotmail.com", "fjord umbrella 91 quilts"} {
		fmt.Println(p.Check(choice, "Alice", "alice@hotmail.com"))
	}
	// Output:
	// password refused: 6 characters are fewer than 8
	// password refused: it is one of the most common passwords, which are tried first
	// password refused: it is a name, address or other identifier of its owner
	// <nil>
}

func ExampleStrength() {
	report, err := json.MarshalIndent(password.Strength("qwerty"), "", "  ")
	fmt.Println(string(report), err)
	// Output:
	// {
	//   "~isa": "USERDB/password-strength-report",
	//   "ttc.level": 0,
	//   "ttc": "instant",
	//   "ttc.seconds": 0,
	//   "score": 0,
	//   "entropy": 2.322,
	//   "suggestions": [
	//     "add another word or two, preferably unusual",
	//     "avoid common words, names and passwords, and your own names, in any spelling"
	//   ]
	// } <nil>
}

// The account is from an export of a Firebase project, whose parameters the console shows.
func ExampleFirebaseScrypt() {
	project := password.FirebaseScrypt{
		SignerKey:     "jxspr8Ki0RYycVU8zykbdLGjFQ3McFUH0uiiTvC8pVMXAn210wjLNmdZJzxUECKbm0QsEmYUSDzZvpjeJ9WmXA==",
		SaltSeparator: "Bw==",
		Rounds:        8,
		MemCost:       14,
	}
	stored, err := project.Stored(
		"lSrfV15cpx95/sZS2W9c9Kp6i/LVgQNDNC/qzrCnh1SAyZvqmZqAjTdn3aoItz+VHjoZilo78198JAdRuid5lQ==", "42xEC+ixf3L2lw==")
	fmt.Println(stored[:47], err)
	hasher, _ := password.New(password.Options{})
	result, _ := hasher.Verify(stored, "user1password")
	fmt.Println(result.OK, result.Renew)
	// Output:
	// $firebase-scrypt$ln=14,r=8,p=1$42xEC+ixf3L2lwc$ <nil>
	// true algorithm
}
