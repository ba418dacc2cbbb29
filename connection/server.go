package connection

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
)

// Server is the description that a broker node gives of itself in the handshake. Operators
// can overwrite all of it.
type Server struct {
	Product string  // "RabbitMQ"
	Version Version // of this node; zero if it is not a version
	Cluster string  // the cluster's name
}

// or returns s, with the fields that o has in their place.
func (s Server) or(o Server) Server {
	return Server{cmp.Or(s.Product, o.Product), cmp.Or(s.Version, o.Version), cmp.Or(s.Cluster, o.Cluster)}
}

func serverOf(properties amqp.Table) Server {
	text := func(key string) string { s, _ := properties[key].(string); return s }
	version, _ := ParseVersion(text("version"))
	return Server{Product: text("product"), Version: version, Cluster: text("cluster_name")}
}

// Version is a broker's version, such as 4.3.6. A Patch of -1 stands for no version in
// particular of a series, such as 4.3.
type Version struct{ Major, Minor, Patch int }

// ParseVersion reads "4.3.6", and "4.3" for the series. It ignores a "+" or "-" behind the
// numbers and all that follows ("4.0.0+2", "3.13.7-rc.1").
func ParseVersion(s string) (Version, error) {
	numbers, _, _ := strings.Cut(s, "+")
	numbers, _, _ = strings.Cut(numbers, "-")
	parts := strings.Split(numbers, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return Version{}, rehop.WithClass(fmt.Errorf("connection: version is %q, want one such as 4.3.6", s), rehop.ClassBug)
	}
	v := [3]int{2: -1}
	for i, part := range parts {
		// ParseUint, because Atoi takes a sign.
		n, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return Version{}, rehop.WithClass(fmt.Errorf("connection: version is %q, want one such as 4.3.6", s), rehop.ClassBug)
		}
		v[i] = int(n)
	}
	return Version{Major: v[0], Minor: v[1], Patch: v[2]}, nil
}

// AtLeast reports whether v is major.minor or later.
func (v Version) AtLeast(major, minor int) bool {
	return cmp.Or(cmp.Compare(v.Major, major), cmp.Compare(v.Minor, minor)) >= 0
}

// String returns the version as in "4.3.6", and a series as in "4.3".
func (v Version) String() string {
	if v.Patch < 0 {
		return fmt.Sprintf("%d.%d", v.Major, v.Minor)
	}
	return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
}
