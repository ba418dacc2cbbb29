package main

// mutant is a defect that the simulation has to find.
type mutant struct {
	name  string
	edits []edit
}

// edit replaces a text that is in a file exactly once.
type edit struct{ file, old, new string }

var mutants = []mutant{
	{"the message is acked before its copy is confirmed", []edit{{"consumer/republish.go", `
	copied.Report = r
	r.publisher.Send(m.from.settling, copied)
}
`, `
	copied.Report = unheard{}
	r.publisher.Send(m.from.settling, copied)
	r.Answered([]*confirm.Message{{Owner: m}})
}

type unheard struct{}

func (unheard) Answered([]*confirm.Message) {}
`}}},
	{"the message is acked before its copy is published", []edit{{"consumer/republish.go", `
	copied.Report = r
	r.publisher.Send(m.from.settling, copied)
}
`, `
	copied.Report = unheard{}
	r.Answered([]*confirm.Message{{Owner: m}})
	r.publisher.Send(m.from.settling, copied)
}

type unheard struct{}

func (unheard) Answered([]*confirm.Message) {}
`}}},
	{"a mandatory return is lost", []edit{{"internal/confirm/channel.go",
		"m.returned = &r", "_ = m.returned"}}},
	{"a rung leads to two queues", []edit{{"topology/wiring.go",
		"list = append(list, PlannedBinding{Exchange: w.firstExchange(), Queue: r.Queue})",
		"list = append(list, PlannedBinding{Exchange: w.firstExchange(), Queue: r.Queue}, PlannedBinding{Exchange: w.firstExchange(), Queue: w.DeadLetterQueue().Name})"}}},
	{"a rung is climbed twice", []edit{{"consumer/verdict.go",
		"return verdict{move: moveWait, rung: d.Attempt}", "return verdict{move: moveWait, rung: max(1, d.Attempt-1)}"}}},
	{"OnUp waits for itself", []edit{
		{"connection/connection.go", "context.WithValue(ctx, inOnUp{}, c), c.pin(l))", "ctx, c)"},
	}},
	{"an attempt to connect ends with those who wait for it", []edit{
		{"connection/connector.go", `		d.waiting--
		c.mu.Unlock()
	}()`, `		if d.waiting--; d.waiting == 0 && d.link == nil && d.end != nil {
			d.end()
		}
		c.mu.Unlock()
	}()`},
		{"connection/connector.go", "	waiting int  // callers; under connector.mu\n", "	waiting int  // callers; under connector.mu\n	end     func()\n"},
		{"connection/dial.go", "	defer giveUp(nil)\n", `	defer giveUp(nil)
	c.mu.Lock()
	if c.dialing != nil {
		c.dialing.end = func() { giveUp(errGivenUp) }
	}
	c.mu.Unlock()
`},
	}},
	{"a lost session spends an attempt", []edit{{"consumer/verdict.go", "	if interrupted {\n", "	if interrupted && d.Attempt < 0 {\n"}}},
	{"a RetryAfter gets a wait that is too short", []edit{{"consumer/verdict.go",
		"		return verdict{move: moveWait, rung: rung}\n", "		return verdict{move: moveWait, rung: max(1, rung-1)}\n"}}},
	{"a letter is said to wait", []edit{{"consumer/republish.go",
		"	m.end = settledAt(m.verdict)\n", "	m.end = settledAt(m.verdict)\n	m.end.Place = PlaceWait\n"}}},
	{"what cannot be acked is said to be done", []edit{{"consumer/handle.go",
		"	if err != nil {\n		m.end = Settlement{Place: PlaceQueue}\n	}\n", "	_ = err\n"}}},
	{"a carried message is acked whatever the answer", []edit{{"consumer/carrysession.go",
		"batch[i] = answer{index: m.Number, err: m.Err}", "batch[i] = answer{index: m.Number}"}}},
	{"acks are written in any order", []edit{{"consumer/acker.go",
		"return cmp.Compare(x.raw.DeliveryTag, y.raw.DeliveryTag) })", "return cmp.Compare(y.raw.DeliveryTag, x.raw.DeliveryTag) })"}}},
	{"a lost channel is taken for a nack", []edit{{"internal/confirm/channel.go",
		"	lost := c.session.Channel().IsClosed()\n", "	lost := c.session == nil\n"}}},
	{"a lost channel is taken for a confirm", []edit{{"internal/confirm/channel.go",
		"	<-c.session.Done()\n	return fmt.Errorf(\"%w: %w\", ErrUnconfirmed, c.session.Err())\n", "	return nil\n"}}},
	{"a session that is lost is not opened again", []edit{{"consumer/run.go",
		"		case <-time.After(wait):\n", "		case <-time.After(time.Duration(1000000) * wait):\n"}}},
}
