package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// ErrOtherVersion is why Start gives no broker although there is one. Whoever
// runs the same tests on every version asks Available first.
var ErrOtherVersion = errors.New("broker: there is another version only")

// Available returns which of Series the tests are to run on: all that Start can
// give here, or those that RABBITMQ_VERSIONS names, such as "4.0,4.3". Without
// Docker that is the one version that AMQP_URL leads to or that is installed,
// whatever RABBITMQ_VERSIONS says, and none if it is not of Series. It takes as
// long as Start where RabbitMQ has to be installed first, and its errors are
// those of Start.
func Available(ctx context.Context) ([]string, error) {
	named, err := named(os.Getenv("RABBITMQ_VERSIONS"))
	if err != nil {
		return nil, err
	}
	found, err := first(sources, func(src source) ([]string, error) {
		return src.versions(ctx, Options{}.withDefaults())
	})
	if err != nil {
		return nil, err
	}
	choice := len(found) > 1
	return slices.DeleteFunc(found, func(v string) bool {
		return !slices.Contains(Series, v) || choice && !slices.Contains(named, v)
	}), nil
}

// WhyNotAll says why Available leaves out versions of Series, if it does.
func WhyNotAll() string {
	switch {
	case os.Getenv("AMQP_URL") != "":
		return "AMQP_URL names one broker, of another version"
	case os.Getenv("RABBITMQ_VERSIONS") != "":
		return "RABBITMQ_VERSIONS is " + os.Getenv("RABBITMQ_VERSIONS")
	}
	return "without Docker there is the installed version only"
}

// WhyNoCluster says why Start gives no cluster here, "" if it does.
func WhyNoCluster(ctx context.Context) string {
	if os.Getenv("AMQP_URL") != "" {
		return "AMQP_URL is set: that broker is not ours to break"
	}
	if _, err := (docker{}).versions(ctx, Options{}.withDefaults()); err != nil {
		return "a cluster needs Docker: " + err.Error()
	}
	return ""
}

// named returns the versions of a list with commas; all of Series if it is empty.
func named(list string) ([]string, error) {
	if list == "" {
		return Series, nil
	}
	versions := strings.Split(list, ",")
	for _, v := range versions {
		if !slices.Contains(Series, v) {
			return nil, fmt.Errorf("broker: RABBITMQ_VERSIONS is %q, and %q is not among %s", list, v, strings.Join(Series, ", "))
		}
	}
	return versions, nil
}

// mustBe returns an error unless version, such as "3.10.8", is of the wanted
// series. where says whose version it is, and remedy what to do.
func mustBe(wanted, version, where, remedy string) error {
	if wanted == "" || wanted == seriesOf(version) {
		return nil
	}
	return fmt.Errorf("%w: RabbitMQ %s is wanted, %s is %s; %s", ErrOtherVersion, wanted, where, version, remedy)
}

// seriesOf cuts "3.10.8" to "3.10".
func seriesOf(version string) string {
	if major, rest, ok := strings.Cut(version, "."); ok {
		minor, _, _ := strings.Cut(rest, ".")
		return major + "." + minor
	}
	return version
}
