package producer_test

import "github.com/rehop/rehop/internal/example"

// The examples connect to a broker in the process.
var connect, check = example.Connect, example.Check
