//go:build !rehopsim

package sim

const yieldsTakeTime = false
