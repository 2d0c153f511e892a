package browser

import "testing"

// TestSignUpAtOnce signs up without a mail, and verifies the address afterwards.
func TestSignUpAtOnce(t *testing.T) {
	t.Parallel()
	for _, w := range passkeyWindows {
		t.Run(w.name, func(t *testing.T) {
			b := open(t, w, false, webappWith("--at-once"))
			b.visit("/signup")
			b.onPage("Sign up")
			b.submit("/signup", "email", "ann@example.com", "name", "ann", "password", "short")
			b.onPage("Sign up")
			b.wantProblem("password", "At least 8 characters.")
			b.submit("/signup", "password", password)
			b.onPage("Your account", "ann@example.com", "Welcome. Your account has been created.")
			b.visit("/account/security")
			b.onPage("Security", "confirm your address first")
			b.visit(b.link("ann@example.com"))
			b.onPage("Confirm your address", "ann@example.com")
			b.submit("/prove")
			b.onPage("Your account", "Your address is confirmed.", "verified")
			b.visit("/account/security")
			b.onPage("Security", "Add an app", "Passkeys need JavaScript")
		})
	}
}
