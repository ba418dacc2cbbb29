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
}

var all = slices.Concat(of(services, mutants), of(databases, databaseMutants))

func of(simulation string, mutants []mutant) (all []sought) {
	for _, m := range mutants {
		all = append(all, sought{m, simulation})
	}
	return all
}
