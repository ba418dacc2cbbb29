// Package hostname names this machine in headers, tags and logs.
package hostname

import "os"

// Get returns the name of the machine, or "unknown".
func Get() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}
