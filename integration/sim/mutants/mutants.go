package main

// mutant is a defect that the simulation has to find.
type mutant struct {
	name  string
	edits []edit
}

// edit replaces a text that is in a file exactly once.
type edit struct{ file, old, new string }

var mutants = []mutant{
	{"the message is acked before its copy is confirmed", []edit{
		{"consumer/internal/work/copier.go", "		s.copy.Report = c\n", "		s.copy.Report = unheard{}\n"},
		{"consumer/internal/work/copier.go", `
		c.Publisher.Send(tasks[0].In.Copying, messages...)
	}
}
`, `
		c.Publisher.Send(tasks[0].In.Copying, messages...)
		for _, m := range messages {
			c.Answered([]*confirm.Message{{Owner: m.Owner}})
		}
	}
}

type unheard struct{}

func (unheard) Answered([]*confirm.Message) {}
`}}},
	{"the message is acked before its copy is published", []edit{
		{"consumer/internal/work/copier.go", "		s.copy.Report = c\n", "		s.copy.Report = unheard{}\n"},
		{"consumer/internal/work/copier.go", `
		c.Publisher.Send(tasks[0].In.Copying, messages...)
	}
}
`, `
		for _, m := range messages {
			c.Answered([]*confirm.Message{{Owner: m.Owner}})
		}
		c.Publisher.Send(tasks[0].In.Copying, messages...)
	}
}

type unheard struct{}

func (unheard) Answered([]*confirm.Message) {}
`}}},
	{"a message that is put off has spent an attempt", []edit{{"consumer/decide.go",
		"	c := t.unspent(raw, d)\n	c.Snoozed = now\n", "	c := t.copyOf(raw, d, now)\n	c.Snoozed = now\n"}}},
	{"a message that is put off comes back after half of its time", []edit{{"consumer/decide.go",
		"	v := t.later(after, raw, d, c, now)\n	v.settlement.Snoozed", "	v := t.later(after/2, raw, d, c, now)\n	v.settlement.Snoozed"}}},
	{"a key has one message more at a time than it may", []edit{{"consumer/internal/hand/keys.go",
		"one.taken < k.limit", "one.taken <= k.limit"}}},
	{"a mandatory return is lost", []edit{{"internal/confirm/returns.go",
		"m.returned = &r", "_ = m.returned"}}},
	{"a wait leads to two queues", []edit{{"topology/wiring.go",
		"first = append(first, plannedBinding{Queue: queue})",
		"first = append(first, plannedBinding{Queue: queue}, plannedBinding{Queue: w.DeadLetterQueue().Name})"}}},
	{"a message goes to the same wait twice", []edit{{"consumer/decide.go",
		"	return t.waitIn(d.Attempt, t.copyOf(raw, d, now))\n", "	return t.waitIn(max(1, d.Attempt-1), t.copyOf(raw, d, now))\n"}}},
	{"OnConnect waits for itself", []edit{
		{"connection/connection.go", "context.WithValue(ctx, inOnConnect{}, c), c.pin(l))", "ctx, c)"},
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
		{"connection/connect.go", "	defer giveUp(nil)\n", `	defer giveUp(nil)
	c.mu.Lock()
	if c.dialing != nil {
		c.dialing.end = func() { giveUp(errGivenUp) }
	}
	c.mu.Unlock()
`},
	}},
	{"a lost session spends an attempt", []edit{{"consumer/decide.go", "	if interrupted {\n", "	if interrupted && d.Attempt < 0 {\n"}}},
	{"a RetryAfter gets a wait that is too short", []edit{{"consumer/decide.go",
		"		return t.waitIn(number, c)\n", "		return t.waitIn(max(1, number-1), c)\n"}}},
	{"a letter is said to wait", []edit{{"consumer/decide.go",
		"settlement: Settlement{Disposition: DispositionDeadLetter, Cause: cause}", "settlement: Settlement{Disposition: DispositionWait, Cause: cause}"}}},
	{"what cannot be acked is said to be done", []edit{{"consumer/handler.go",
		"	if err == nil && v != hand.Requeue {\n", "	if v != hand.Requeue {\n"}}},
	{"a carried message is acked whatever the answer", []edit{{"consumer/internal/carry/broker.go",
		"batch[i] = answer{index: m.Number, err: m.Err}", "batch[i] = answer{index: m.Number}"}}},
	{"acks are written in any order", []edit{{"consumer/internal/work/writer.go",
		"return cmp.Compare(x.Raw.DeliveryTag, y.Raw.DeliveryTag) })", "return cmp.Compare(y.Raw.DeliveryTag, x.Raw.DeliveryTag) })"}}},
	{"a lost channel is taken for a nack", []edit{{"internal/confirm/answer.go",
		"	lost := c.session.Channel().IsClosed()\n", "	lost := c.session == nil\n"}}},
	{"a lost channel is taken for a confirm", []edit{{"internal/confirm/outcome.go",
		"	<-c.session.Done()\n	return fmt.Errorf(\"%w: %w\", ErrUnconfirmed, c.session.Err())\n", "	_ = fmt.Errorf // imported for this\n	return nil\n"}}},
	{"a session that is lost is not opened again", []edit{{"consumer/sessions.go",
		"		pause.For(r.going, r.place.pause(wait, r.known))\n", "		pause.For(r.going, 1000000*r.place.pause(wait, r.known))\n"}}},

	{"acks of two sessions are written on the first's channel", []edit{
		{"consumer/session.go", "r.pool.Write(s.hand, channel.Channel(), socket)", "r.pool.Write(s.hand, firstChannel(r, channel), socket)"},
		{"consumer/session.go", "func (r *run) newSession(", `var firstChannels sync.Map

type channelOfAcks interface {
	Ack(tag uint64, multiple bool) error
	Nack(tag uint64, multiple, requeue bool) error
	Reject(tag uint64, requeue bool) error
}

func firstChannel(r *run, s *connection.Session) channelOfAcks {
	if ch, _ := firstChannels.LoadOrStore(r, s.Channel()); s.Channel() != ch && !ch.(interface{ IsClosed() bool }).IsClosed() {
		return ch.(channelOfAcks)
	}
	return s.Channel()
}

func (r *run) newSession(`}}},
	{"the last acks are dropped at a close", []edit{{"consumer/internal/work/writer.go",
		"			err := w.write(batch, open)\n", "			var err error\n			if !closed {\n				err = w.write(batch, open)\n			}\n"}}},
	{"closed is looked at before the answers are read", []edit{
		{"internal/confirm/collect.go", "		pending = c.collector.take(pending)\n", "		closed := c.session.Channel().IsClosed()\n		pending = c.collector.take(pending)\n"},
		{"internal/confirm/collect.go", "			c.report(done)\n", "			c.report(done, closed)\n"},
		{"internal/confirm/collect.go", "func (c *channel) report(messages []*Message) {", "func (c *channel) report(messages []*Message, closed bool) {"},
		{"internal/confirm/collect.go", "readAnswers(messages, c.session.Channel().IsClosed)", "readAnswers(messages, func() bool { return closed })"},
	}},
	{"a refused message counts as confirmed", []edit{{"internal/confirm/outcome.go",
		"	case !lost:\n		return ErrNacked\n", "	case !lost:\n		return nil\n"}}},
	{"a letter counts an attempt too few", []edit{{"consumer/decide.go",
		"Attempts: d.Attempt, FirstFailed: d.firstFailed, User: t.account,\n			Failure", "Attempts: d.Attempt - 1, FirstFailed: d.firstFailed, User: t.account,\n			Failure"}}},
	{"a letter has the wrong cause", []edit{{"consumer/decide.go",
		"return t.letter(raw, d, res, rehop.CauseExhausted, now)", "return t.letter(raw, d, res, rehop.CausePermanent, now)"}}},
	{"a panic counts as done", []edit{{"consumer/handler.go",
		"	o = Outcome{Action: ActionRetry}\n	defer func()", "	o = Outcome{Action: ActionDone}\n	defer func()"}}},
	{"messages in the schedule outlive their session", []edit{{"consumer/session.go",
		"	r.takeBack() // which the end", "	_ = r.lane // which the end"}}},
	{"a message whose copy is confirmed goes back to its queue", []edit{{"consumer/internal/work/copier.go",
		"	c.done(hand.Ack, confirmed...)", "	c.done(hand.Requeue, confirmed...)"}}},
	{"a wait that was cut short is not made up for", []edit{{"consumer/decide.go",
		"	return t.route.Waits[due-1].For - t.route.Waits[number-1].For\n", "	return 0\n"}}},
	{"a copy spends two attempts", []edit{{"consumer/decide.go",
		"Returned: t.belongs(raw.Exchange), Attempts: d.Attempt, At: now,", "Returned: t.belongs(raw.Exchange), Attempts: d.Attempt + 1, At: now,"}}},
	{"a RetryAfter beyond all waits is forgotten", []edit{{"consumer/decide.go",
		"	if c.NotBefore.IsZero() {\n		c.NotBefore = now.Add(after)\n	}\n", ""}}},
	{"an ack takes messages along that are at work", []edit{{"consumer/internal/hand/session.go",
		"	if s.first != nil {\n		open = s.first.Raw.DeliveryTag\n	}\n	return batch", "	return batch"}}},
	{"the waits lead to the dead-letter queue", []edit{{"topology/wiring.go",
		"plannedBinding{Queue: w.Name, Args: matchAny})", "plannedBinding{Queue: w.DeadLetterQueue().Name, Args: matchAny})"}}},
	{"a message that is held at a stop is acked", []edit{{"consumer/handler.go",
		"	e.Instruction = requeue.Instruction\n", "	e.Instruction = done.Instruction\n"}}},
	{"a message whose copy is given up is acked", []edit{{"consumer/internal/work/copier.go",
		"	c.done(hand.Requeue, s.Message)\n", "	c.done(hand.Ack, s.Message)\n"}}},
	{"what is settled too late is said to nobody", []edit{{"consumer/internal/hand/session.go",
		"		out.Over = append(out.Over, Told{m, v})\n		return\n", "		return\n"}}},
	{"a producer forgets that an answer was lost", []edit{{"producer/fallback.go",
		"receipt := Receipt{ID: m.ID, MaybeDuplicate: maybeDuplicate || errors.Is(err, ErrUnconfirmed)}", "receipt := Receipt{ID: m.ID}"}}},
	{"a batch gives its messages the outcomes of their neighbours", []edit{{"consumer/handling.go",
		"		results[i] = judged(own)\n", "		results[(i+1)%len(ms)] = judged(own)\n"}}},
	{"what a split leaves behind is acked", []edit{{"consumer/handling.go",
		"		h.decided(ms[p.from:p.to], results[p.from:p.to], took)\n", "		h.decided(ms[p.from:p.to], make([]result, p.to-p.from), took)\n"}}},
	{"half of a batch that fails is forgotten", []edit{{"consumer/split.go",
		"	s.next = append(s.next, span{p.from, half}, span{half, p.to})\n", "	s.next = append(s.next, span{p.from, half})\n"}}},
	{"a message of PublishAsync gives its slot back when it fails", []edit{{"producer/async.go",
		"		p.failing.run(a.ctx, func() { a.finishFailed(s.Err) })", "		a.slot = false\n		p.window.release(1, s.Size)\n		p.failing.run(a.ctx, func() { a.finishFailed(s.Err) })"}}},
	{"the clock of a full window outlives it", []edit{
		{"producer/window.go", "	if len(w.queue) == 0 {\n		w.full = time.Now()\n	}\n", "	if w.full.IsZero() {\n		w.full = time.Now()\n	}\n"},
		{"producer/window.go", "w.queue[0], w.full = nil, time.Now()", "w.queue[0] = nil"}}},
	{"one Delay that leads nowhere refuses a batch", []edit{{"producer/batch.go",
		"		case errors.As(err, new(*delayError)):\n", "		case err == nil && errors.As(err, new(*delayError)):\n"}}},
	{"a hook that panics is not recovered from", []edit{{"internal/hooks/hooks.go",
		"	if p := recover(); p != nil {\n", "	if p := any(nil); p != nil {\n"}}},
	{"a wrapped sink is not recognised", []edit{{"producer/sink.go",
		"		if !wraps {\n", "		if !wraps || sink != nil {\n"}}},
	{"Shutdown waits for receipts beyond its ctx", []edit{{"producer/stop.go",
		"		return p.endErr\n	case <-ctx.Done():\n	}\n", "		return p.endErr\n	case <-context.WithoutCancel(ctx).Done():\n	}\n"}}},
	{"a deadline leaves the fallback no time", []edit{{"producer/producer.go",
		"	p.reserve(ctx, sending)\n", ""}}},
	{"the dead letters of a queue lead to the dead-letter queue where their exchange is missing", []edit{{"topology/wiring.go",
		"exchange(w.dlxExchange(), amqp.ExchangeHeaders, w.spareDelayExchange(), rejected...)", "exchange(w.dlxExchange(), amqp.ExchangeHeaders, w.unroutedExchange(), rejected...)"}}},
	{"consumers put nothing back", []edit{{"topology/repair.go",
		"	if len(lost) == 0 {\n", "	if len(lost) >= 0 {\n"}}},
	{"a further session puts nothing back", []edit{{"consumer/session.go",
		"	if err != nil && r.known != nil && rehop", "	if err != nil && r.known != nil && r.stop == nil && rehop"}}},
	{"a message that is held always goes back to its queue", []edit{{"consumer/decide.go",
		"limit > 0 && d.History.DeliveryCount >= limit/2", "limit > 0 && d.History.DeliveryCount > limit"}}},
	{"a due time by a clock that is ahead counts in full", []edit{{"consumer/decide.go",
		"	if whole > 0 { // another", "	if whole < 0 { // another"}}},
	{"a carrier keeps messages until a due time by another clock", []edit{{"consumer/internal/carry/waiting.go",
		"	if wait > 0 && w.due.After(latest) {\n", "	if wait < 0 {\n"}}},
	{"a date of a message moves when it comes to another clock", []edit{{"consumer/decide.go",
		"		v := t.putOff(lacks, raw, d, c, now)\n		v.Ahead, v.skew = ahead, ahead\n",
		"		if c.NotBefore = now.Add(lacks); ahead > 0 {\n			c.NotBefore = now.Add(lacks + whole)\n		}\n		v := t.putOff(lacks, raw, d, c, now)\n		v.skew = ahead\n"}}},
	{"a pointer to a specification declares nothing", []edit{{"topology/plan.go",
		"		b.plan.specs = append(b.plan.specs, value(s))\n		s.addTo(&b)\n", "		b.plan.specs = append(b.plan.specs, value(s))\n		if reflect.ValueOf(s).Kind() == reflect.Pointer {\n			continue\n		}\n		s.addTo(&b)\n"}}},
	{"pauses of a dial that nobody waits for any more begin anew", []edit{{"connection/connector.go",
		"		if c.abandoned(d) {\n			return nil, err\n", "		if c.abandoned(d) {\n			c.pauses = nil\n			return nil, err\n"}}},
	{"other lanes are declared over those that there are", []edit{{"topology/lanes.go",
		"		_, _ = h.Write([]byte(lane.Name + \"\\x00\")) // never fails\n", "		_ = lane\n"}}},
	{"another place for dead letters is declared beside the one that there is", []edit{{"topology/lanes.go",
		"		_, _ = h.Write([]byte(\"one dead-letter queue\"))\n", "		_ = h\n"}}},
	{"a consumer of other lanes takes those that it finds", []edit{{"topology/resolve.go",
		"	steps = w.lanesAsDeclared()\n", ""}}},
	{"a message may have keys of waits", []edit{{"producer/message.go",
		"			if route.IsWaitKey(key) {\n", "			if route.IsWaitKey(key) && key == \"\" {\n"}}},
	{"a message begins to be handled in a session that is lost", []edit{{"consumer/handler.go",
		"	if s.Working.Err() != nil || r.", "	if s.Working == nil || r."}}},
	{"a message begins to be handled when a stop gives back an earlier one", []edit{{"consumer/handler.go",
		" || r.ordered() && s.Stop.Err() != nil {", " {"}}},
	{"a held message in order goes back before its session ends", []edit{{"consumer/internal/hand/stall.go",
		"	if !l.Ordered || l.latest", "	if why != Visiting || !l.Ordered || l.latest"}}},
	{"an idle queue in order is visited while messages begin to be handled", []edit{{"consumer/internal/intake/order.go",
		"		s.Hand.BeginNoMore(hand.Visiting, time.Now(), &s.out)\n", ""}}},
	{"messages are sent ahead that may have ended their consumers", []edit{{"consumer/internal/intake/suspicion.go",
		"	if s.half > 0 {\n		return 1\n", "	if s.half > 0 && s.over {\n		return 1\n"}}},
	{"a message that waits in place gives its key away", []edit{{"consumer/internal/hand/hold.go",
		"		h.noteFull(false, now)\n		}\n", `		h.noteFull(false, now)
		}
		if hold.Kind == ForNextHere {
			for _, m := range g.Of {
				if next := l.keys.free(m); next != nil {
					next.comes(isNext)
					l.enqueue(next)
				}
				m.Key = ""
			}
		}
`}}},
	{"a second attempt that fails waits in the broker, not in place", []edit{{"consumer/decide.go",
		"	case t.inPlace && here < t.holds && !res.gone: //", "	case t.inPlace && here < t.holds && !res.gone && d.Attempt < 2: //"}}},
	{"a last attempt has company", []edit{{"consumer/batch.go",
		"	return d.Attempt > 1 && d.LastAttempt\n", "	return false\n"}}},
}
