// Package rawurl has the rule about URLs with a password that is not percent-encoded.
package rawurl

import "strings"

// IsMisread reports whether package net/url reads another URL than the writer of raw may have
// meant: an "@" or "#" behind the host. A "/", "?" or "#" of a password ends the host too soon
// if it is not percent-encoded. Then any part of the URL may be one of the password, and no
// part may be printed.
func IsMisread(raw string) bool {
	_, rest, _ := strings.Cut(raw, "://")
	end := strings.IndexAny(rest, "/?#")
	return end >= 0 && strings.ContainsAny(rest[end:], "@#")
}
