package faultproxy

import (
	"errors"
	"math/rand/v2"
	"net"
)

// While the proxy refuses connections nobody holds its port. The port lies
// below the range from which systems take ports for others (32768 on Linux), so
// that it is still free when the proxy wants it back.
const firstPort, lastPort = 10000, 19999

func listenAnywhere() (*net.TCPListener, error) {
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}); err == nil {
			return l, nil
		}
	}
	return nil, errors.New("faultproxy: no free port between 10000 and 19999")
}
