package model

import "slices"

// length is what counts towards a length limit.
func (q *Queue) length() (messages, bytes int) {
	messages, bytes = q.ready.len()+len(q.delayed), q.ready.bytes()
	for _, e := range q.delayed {
		bytes += e.size()
	}
	if q.discards != nil {
		messages += q.discards.len()
		bytes += q.discards.bytes()
	}
	return messages, bytes
}

func (q *Queue) over(moreMessages, moreBytes int) bool {
	messages, bytes := q.length()
	return q.args.maxLength >= 0 && int64(messages+moreMessages) > q.args.maxLength ||
		q.args.maxBytes >= 0 && int64(bytes+moreBytes) > q.args.maxBytes
}

// full tells whether a publish is refused. A classic queue counts the message;
// a quorum queue has told its publishers before.
func (q *Queue) full(from any, size int) bool {
	if q.args.overflow == "drop-head" || q.args.maxLength < 0 && q.args.maxBytes < 0 {
		return false
	}
	if !q.args.quorum {
		return q.over(1, size)
	}
	if from == nil {
		return false // dead letters at-most-once ask nobody
	}
	told, known := q.publishers[from]
	if !known {
		told = q.over(0, 0)
		q.publishers[from] = told
	}
	return told
}

// limit drops from the head what is too many, or tells publishers to stop.
func (q *Queue) limit() {
	if q.args.maxLength < 0 && q.args.maxBytes < 0 {
		return
	}
	if q.args.overflow != "drop-head" {
		q.tell()
		return
	}
	var dropped []*entry
	for q.over(0, 0) && q.ready.len() > 0 {
		dropped = append(dropped, q.ready.drop())
	}
	if q.args.quorum && !q.b.atLeast(4, 3) {
		slices.Reverse(dropped)
	}
	for _, e := range dropped {
		q.deadLetter(e, "maxlen")
	}
}

// tell tells the publishers of a quorum queue that it is full, or that it has
// room again: below four fifths of its limits.
func (q *Queue) tell() {
	if !q.args.quorum {
		return
	}
	full := q.over(0, 0)
	messages, bytes := q.length()
	room := (q.args.maxLength < 0 || int64(messages) <= q.args.maxLength*8/10) &&
		(q.args.maxBytes < 0 || int64(bytes) <= q.args.maxBytes*8/10)
	if !full && !room {
		return
	}
	for from := range q.publishers {
		q.publishers[from] = full
	}
}
