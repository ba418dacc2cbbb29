package main

import (
	"github.com/spf13/cobra"
)

// dlq are the commands for dead letters.
func (a *app) dlq() *cobra.Command {
	c := &cobra.Command{
		Use:     "dlq",
		Aliases: []string{"letters"},
		Short:   "Dead letters: what failed, why, and how to send it again",
		Long: `Dead letters are in a queue of the broker, or in a store, which rehop dlq
collect has taken out of queues.

RabbitMQ has no way to look at a queue without taking messages. rehop takes them,
hands them back in their order, and leaves each marked as redelivered. It refuses to
look where a look could cost a letter, and says why. Collected letters can be looked
at freely.

Flags such as --error and --id are conditions, and a letter is meant if it fits all of
them: --id A --message-id B are the letters with the id A that have the message id B.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.listCommand(), a.peekCommand(), a.groupsCommand(), a.showCommand(),
		a.sendCommand(), a.editCommand(), a.moveCommand(), a.dropCommand(), a.exportCommand(), a.importCommand(), a.collectCommand(), a.auditCommand())
	c.AddCommand(a.keepCommands()...)
	return c
}
