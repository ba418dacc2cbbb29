//go:build race

package consumer_test

const raced = true
