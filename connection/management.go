package connection

import (
	"context"

	"github.com/rehop/rehop/internal/management"
)

func init() {
	management.Of = func(conn any) *management.API { return conn.(*Conn).management }
}

// managementAPI returns the API that Config.ManagementURL names, or nil. The
// configuration is valid. The first of the targets tells the virtual host.
func (c Config) managementAPI(targets []target) *management.API {
	if c.ManagementURL == "" {
		return nil
	}
	base, login, err := management.Parse(c.ManagementURL)
	if err != nil {
		return nil
	}
	ask := func(ctx context.Context) (user, password string, err error) {
		fresh, err := c.Credentials(ctx)
		return fresh.User, fresh.Password, err
	}
	if login != nil {
		ask = func(context.Context) (user, password string, err error) {
			password, _ = login.Password()
			return login.Username(), password, nil
		}
	}
	return management.New(base, targets[0].uri.Vhost, ask, c.TLS.Clone())
}
