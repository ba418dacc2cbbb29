package connection

import "fmt"

// String returns the Config.Name of the Conn. No form of it, such as that of a log, shows a
// URL or a password.
func (c *Conn) String() string { return fmt.Sprintf("connection %q", c.cfg.Name) }

// GoString is String, for the verb %#v.
func (c *Conn) GoString() string { return c.String() }
