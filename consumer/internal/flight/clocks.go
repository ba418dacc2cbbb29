package flight

import "time"

// MaxSkew is how far the clocks of two consumers may be apart before a message
// that one of them sent to a wait with a TTL seems early to the other.
const MaxSkew = time.Second
