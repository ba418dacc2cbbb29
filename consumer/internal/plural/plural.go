// Package plural says how many there are of something.
package plural

import "fmt"

// Of returns "1 message" and "2 messages".
func Of(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
