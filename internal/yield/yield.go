//go:build !rehopsim

// Package yield marks the places between two steps of one goroutine that another
// goroutine may get between. With the build tag rehopsim the simulation stops there
// for a moment, by chance; without it the marks are nothing.
package yield

// Here marks a place. The caller holds no lock.
func Here() {}
