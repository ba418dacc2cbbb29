package main

// databaseMutants are defects of stores.
var databaseMutants = []mutant{
	{"a message is noted as handled before its work, in a transaction of its own", []edit{
		{"store/inbox.go", "		tx, end, err := s.beginWork(ctx)\n", `		noted, err := s.Once(ctx, s.db, d.Queue, d.ID)
		if err != nil {
			return consumer.Hold(err)
		}
		tx, end, err := s.beginWork(ctx)
`},
		{"store/inbox.go", "		first, err := s.note(ctx, tx, d.Queue, d.ID, canEnd)\n", "		first := noted\n"},
	}},
	{"a message is noted as handled although its work is rolled back", []edit{
		{"store/inbox.go", "		if err := next(context.WithValue(ctx, txKey{}, tx), d); err != nil || d.Err() != nil {\n", `		if err := next(context.WithValue(ctx, txKey{}, tx), d); err != nil || d.Err() != nil {
			_ = tx.Rollback()
			_, _ = s.Once(context.WithoutCancel(ctx), s.db, d.Queue, d.ID)
`},
	}},
	{"the work of a handler that fails is committed", []edit{
		{"store/inbox.go", "		if err := next(context.WithValue(ctx, txKey{}, tx), d); err != nil || d.Err() != nil {\n", `		if err := next(context.WithValue(ctx, txKey{}, tx), d); err != nil || d.Err() != nil {
			_ = tx.Commit()
`},
	}},
	{"the savepoint of a message in a batch is not rolled back", []edit{
		{"store/oncebatch.go", `if err := s.savepoint(ctx, tx, "ROLLBACK TO SAVEPOINT"); err != nil {`, "if err := ctx.Err(); err != nil {"},
	}},
	{"a message in a batch is noted outside of its savepoint", []edit{
		{"store/oncebatch.go", `	if err := s.savepoint(ctx, tx, "SAVEPOINT"); err != nil {
		return unavailable(ctx, err)
	}
	canEnd := s.dialect.endsTransactions()
	first, err := s.note(ctx, tx, d.Queue, d.ID, canEnd)
	if err != nil {
		return unavailable(ctx, err)
	}
`, `	canEnd := s.dialect.endsTransactions()
	first, err := s.note(ctx, tx, d.Queue, d.ID, canEnd)
	if err != nil {
		return unavailable(ctx, err)
	}
	if err := s.savepoint(ctx, tx, "SAVEPOINT"); err != nil {
		return unavailable(ctx, err)
	}
`},
	}},
	{"Once knows a message by its id, without its queue", []edit{
		{"store/inbox.go", "		letter.Armour(queue), letter.Armour(id), handled)\n", "		letter.Armour(\"all\"), letter.Armour(id), handled)\n"},
	}},
	{"a message is acked before the commit of its work", []edit{
		{"store/inbox.go", "		tx, end, err := s.beginWork(ctx)\n", "		tx, end, err := s.beginWork(context.WithoutCancel(ctx))\n"},
		{"store/inbox.go", "		defer end()\n", `		committing := false
		defer func() {
			if !committing {
				end()
			}
		}()
`},
		{"store/inbox.go", "			err = tx.Commit()\n", `			committing = true
			time.AfterFunc(10*time.Millisecond, func() { _ = tx.Commit() })
			err = ctx.Err()
`},
	}},
	{"a commit without an answer is taken for one", []edit{
		{"store/oncebatch.go", `			return notCommitted(ctx, fmt.Sprintf("committing the work of %d messages", len(batch)), err)
`, "			_ = err\n"},
	}},
	{"PutTx stores messages in a transaction of its own", []edit{
		{"store/put.go", "	if err := s.writer.run(ctx, tx, batch); err != nil {\n", `	go func() {
		_ = s.write(context.WithoutCancel(ctx), func(ctx context.Context, tx Tx) error { return s.writer.run(ctx, tx, batch) })
	}()
	if err := ctx.Err(); err != nil {
`},
	}},
	{"Forward deletes letters before their messages are confirmed", []edit{
		{"store/forwardpublish.go", "	f.suspect(l.entries)\n", `	f.suspect(l.entries)
	for _, letter := range l.entries {
		_, _ = f.store.exec(context.WithoutCancel(work), "DELETE FROM {letters} WHERE seq = ?", letter.Number)
	}
`},
	}},
}
