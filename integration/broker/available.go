package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrOtherVersion is why Start gives no broker although there is one. Whoever
// runs the same tests on every version asks Available first.
var ErrOtherVersion = errors.New("broker: there is another version only")

// Available returns which of Series Start can give here: all of them with
// Docker, else the one that AMQP_URL leads to or that is installed, and none if
// that one is not of Series. It takes as long as Start where RabbitMQ has to be
// installed first, and its errors are those of Start.
func Available(ctx context.Context) ([]string, error) {
	found, err := first(sources, func(src source) ([]string, error) {
		return src.versions(ctx, Options{}.withDefaults())
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(v string) bool { return !slices.Contains(Series, v) }), nil
}

// mustBe returns an error unless version, such as "3.10.8", is of the wanted
// series. Where says whose version it is.
func mustBe(wanted, version, where string) error {
	if wanted == "" || wanted == seriesOf(version) {
		return nil
	}
	return fmt.Errorf("%w: RabbitMQ %s is wanted, %s is %s; start Docker, which has all versions",
		ErrOtherVersion, wanted, where, version)
}

// seriesOf cuts "3.10.8" to "3.10".
func seriesOf(version string) string {
	if major, rest, ok := strings.Cut(version, "."); ok {
		minor, _, _ := strings.Cut(rest, ".")
		return major + "." + minor
	}
	return version
}
