// Command userdb keeps accounts in Redis or, where no store is named, in a file: entries that are
// found by any identifier they own. See userdb --help.
package main

import "os"

func main() {
	os.Exit(run(os.Args[1:], standard()))
}
