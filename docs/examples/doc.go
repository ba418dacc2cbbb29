// Package examples holds the code of the Go blocks in README.md and docs. Its tests run it on
// the broker of package rehoptest.
package examples
