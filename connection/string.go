package connection

import "fmt"

// String returns the Config.Name of the Conn. A program that prints a Conn, or a log that
// has one, shows neither a URL nor a password.
func (c *Conn) String() string { return fmt.Sprintf("connection %q", c.cfg.Name) }

// GoString is String, for the verb %#v.
func (c *Conn) GoString() string { return c.String() }
