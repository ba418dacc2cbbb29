package main

import "slices"

// The simulations.
const (
	services  = "integration/sim"
	databases = "integration/store/sim"
)

// sought is a mutant, and the simulation that has to find it.
type sought struct {
	mutant
	simulation string
	kind       string // of the scenarios that are run; "": any
}

var all = slices.Concat(
	of(services, "", mutants), of(services, "stop", stopMutants), of(services, "shards", shardMutants), of(services, "crash apart", apartMutants),
	of(services, "stuck", stuckMutants),
	of(services, "late in place", latePlaceMutants),
	of(databases, "", databaseMutants),
)

func of(simulation, kind string, mutants []mutant) (all []sought) {
	for _, m := range mutants {
		all = append(all, sought{m, simulation, kind})
	}
	return all
}
