package connection

import (
	"context"

	"github.com/rehop/rehop/internal/management"
)

// managementAPI returns the API that Config.ManagementURL names, or nil. The
// configuration is valid. The first of the endpoints tells the virtual host.
func (c Config) managementAPI(endpoints []endpoint) *management.API {
	if c.ManagementURL == "" {
		return nil
	}
	base, login, err := management.Parse(c.ManagementURL)
	if err != nil {
		return nil
	}
	ask := func(ctx context.Context) (user, password string, err error) {
		current, err := c.Credentials(ctx)
		return current.User, current.Password, err
	}
	if login != nil {
		ask = func(context.Context) (user, password string, err error) {
			password, _ = login.Password()
			return login.Username(), password, nil
		}
	}
	return management.New(base, endpoints[0].uri.Vhost, ask, c.TLS.Clone())
}
