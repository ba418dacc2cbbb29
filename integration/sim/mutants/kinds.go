package main

// stopMutants are found by scenarios of the kind "stop".
var stopMutants = []mutant{
	{"a stop gives up copies that have no answer", []edit{{"consumer/session.go",
		"	last := time.AfterFunc(r.cfg.DrainTimeout+durations.StopGrace-durations.LastSecond, func()", "	last := time.AfterFunc(0, func()"}}},
}

// stuckMutants are found by scenarios of the kind "stuck".
var stuckMutants = []mutant{
	{"queues never part", []edit{{"consumer/place.go",
		"	p.apart = p.apart || p.partings != partings\n", ""}}},
	{"a queue in order meets a message that cannot be handed over with all of its prefetch", []edit{{"consumer/place.go",
		"		r.bound.OneAtATime(", "		if r.ordered() {\n			return true\n		}\n		r.bound.OneAtATime("}}},
	{"a queue without order meets one with all of its prefetch", []edit{{"consumer/place.go",
		"		r.bound.OneAtATime(", "		if !r.ordered() {\n			return true\n		}\n		r.bound.OneAtATime("}}},
	{"a shard that is another's stays a fault", []edit{{"consumer/health.go",
		"	case h.idle == other: // which tells what it meets there\n		return nil\n	case h.stuck.Err", "	case h.stuck.Err"}}},
}

// shardMutants are found by scenarios of the kind "shards".
var shardMutants = []mutant{
	{"a second process keeps a shard that the owner is ready for", []edit{{"consumer/internal/group/shard.go",
		"	case seen.Role == Owner, !seen.Calm:\n", "	case seen.Role != None, !seen.Calm:\n"}}},
	{"two processes have one seat", []edit{
		{"consumer/internal/group/group.go", "ch.QueueDeclare(g.seatQueue(k), false, true, true, false, nil)", "ch.QueueDeclare(g.seatQueue(k), false, true, false, false, nil)"},
		{"consumer/internal/group/group.go", "ch.Consume(g.seatQueue(k), \"\", false, true, false, false, nil)", "ch.Consume(g.seatQueue(k), \"\", false, false, false, false, nil)"}}},
	{"no process that knows fewer shards than there are can declare them", []edit{{"topology/shards.go",
		"return b.messages > 0 && b.consumers == 0 }", "return true }"}}},
	{"a process does not see that it has lost its seat, and is not counted", []edit{{"consumer/internal/group/group.go",
		"	if h.session == nil || h.session.Err() != nil {\n		return false\n	}\n", "	if h.session != nil {\n		return true\n	}\n"}}},
	{"a shard that was left is not joined again", []edit{{"consumer/assigned.go",
		"	a.here, a.known = here, true\n", "	a.here, a.known = here && !a.known, true\n"}}},
	{"a process goes on with a shard that it is to leave", []edit{{"consumer/assigned.go",
		"	if a.leave != nil && !here {\n		a.leave(errElsewhere)\n	}\n", ""}}},
	{"a process that steps back comes behind nobody", []edit{{"consumer/assigned.go",
		"	if a.leave != nil {\n		a.leave(errElsewhere)\n	}\n", ""}}},
	{"a stop in order ends the fetching before its handlers", []edit{{"consumer/session.go",
		"	if r.ordered() {\n		// When", "	if r.ordered() && grace < 0 {\n		// When"}}},
	{"a pause is one of the first shard alone", []edit{{"consumer/pause.go",
		"	for _, r := range c.runs {\n		r.setPaused(paused)\n", "	for _, r := range c.runs[:min(1, len(c.runs))] {\n		r.setPaused(paused)\n"}}},
	{"messages that wait in place are handled in a pause", []edit{{"consumer/internal/hand/gate.go",
		"	case !g.paused.IsZero(), g.stall == finishing, g.probe != nil:", "	case g.stall == finishing, g.probe != nil:"}}},
	{"messages in order go back one by one in a pause", []edit{{"consumer/internal/hand/gate.go",
		"	case l.gate.isOpen(), l.Ordered:\n", "	case l.gate.isOpen():\n"}}},
	{"a session in order begins with one message where consumers may have died", []edit{{"consumer/internal/intake/order.go",
		"	if s.Lane.Ordered {\n		return prefetch\n	}\n	return s.suspicion.first(prefetch)\n", "	return s.suspicion.first(prefetch)\n"}}},
}

// apartMutants are found by scenarios of the kind "crash apart".
var apartMutants = []mutant{
	{"a message that ends its process is handled beside those of other lanes", []edit{{"consumer/internal/hand/session.go",
		"	if len(h.lanes) > 1 {\n		l.meets(m, out)\n	}\n", ""}}},
	{"of lanes that wait the first one is always next", []edit{{"consumer/internal/hand/suspects.go",
		"		next = h.waiting[most%n]\n", "		next = h.waiting[n-n]\n"}}},
	{"a lane in order does not wait for its turn", []edit{{"consumer/sessions.go",
		"		if !r.awaitSuspects() {\n			continue\n		}\n", ""}}},
}

// latePlaceMutants are found by scenarios of the kind "late in place".
var latePlaceMutants = []mutant{
	{"the fourth attempt in place counts as the first", []edit{{"consumer/handling.go",
		"			a.Attempt++\n", "			a.Attempt = a.Attempt%3 + 1\n"}}},
	{"a message that waited two times begins with its first attempt", []edit{{"consumer/delivery.go",
		"	d.LastAttempt = d.Attempt > len(from.Waits)\n", "	if d.Attempt == 3 && !d.Redelivered {\n		d.Attempt = 1\n	}\n	d.LastAttempt = d.Attempt > len(from.Waits)\n"}}},
}
