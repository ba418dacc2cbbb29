package broker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
)

// Ports are chosen here, not by Docker, which would choose others after each
// stop. They lie below the range from which systems take the local ports of
// outgoing connections (32768 on Linux): a port from that range could be taken
// while the broker is down.
const firstPort, lastPort = 20000, 31999

// freePorts returns n different ports that nobody listens on right now. Somebody
// may be faster all the same, so be ready to ask again.
func freePorts(n int) ([]int, error) {
	var free []int
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			continue
		}
		defer l.Close() // held until all are found, so that all are different
		if free = append(free, port); len(free) == n {
			return free, nil
		}
	}
	return nil, errors.New("broker: no free port between 20000 and 31999")
}

// portTaken says whether a broker could not start because somebody else listens
// on its port. Docker has no code for it, only words, and nor has Erlang.
func portTaken(err error) bool {
	return err != nil && slices.ContainsFunc(
		[]string{"port is already allocated", "address already in use", "eaddrinuse"},
		func(words string) bool { return strings.Contains(err.Error(), words) })
}
