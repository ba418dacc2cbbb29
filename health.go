package rehop

import (
	"errors"
	"fmt"
	"time"
)

// HealthError is the error of the Health methods of Conns, producers, consumers,
// forwarders and services that are not healthy.
type HealthError struct {
	// Degraded reports that the component whose Health returned the error works in part,
	// or is likely to work again within seconds. If false, it does not work.
	Degraded bool
	Since    time.Time // when it ceased to be healthy
	Cause    error     // why; never nil
}

func (e *HealthError) Error() string {
	status := "unhealthy"
	if e.Degraded {
		status = "degraded"
	}
	return fmt.Sprintf("%s since %s: %v", status, e.Since.Format(time.RFC3339), e.Cause)
}

// Unwrap returns the cause.
func (e *HealthError) Unwrap() error { return e.Cause }

// Ready reports whether the results of Health allow work: each is nil or a
// degraded *[HealthError]. A readiness probe is then one line:
//
//	if !rehop.Ready(conn.Health(), consumer.Health()) {
//		w.WriteHeader(http.StatusServiceUnavailable)
//	}
func Ready(health ...error) bool {
	for _, err := range health {
		var h *HealthError
		if err != nil && (!errors.As(err, &h) || !h.Degraded) {
			return false
		}
	}
	return true
}
