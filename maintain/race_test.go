//go:build race

package maintain_test

const raced = true
