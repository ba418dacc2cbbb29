package main

import (
	"maps"
	"slices"
	"testing"
	"time"
)

var zero = time.Unix(0, 0)

// customerA returns events of one customer's bills, one a second.
func customerA(list ...event) []event {
	for i := range list {
		list[i].Customer, list[i].At = "a", zero.Add(time.Duration(i)*time.Second)
	}
	return list
}

func of(what string, number, process int) event {
	return event{What: what, bill: bill{Number: number}, Process: process, Attempt: 1}
}

func again(e event) event { e.Redelivered = true; return e }

func second(e event) event { e.Attempt = 2; return e }

func TestAccount(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		bills  int
		events []event
		killed int // process, in the middle of the third second
		want   account
		ok     bool
	}{
		{"one after the other, in any process", 2, customerA(of(begin, 1, 1), of(done, 1, 1), of(begin, 2, 2), of(done, 2, 2)), 0, account{}, true},
		{"the first is lost", 2, customerA(of(begin, 2, 1), of(done, 2, 1)), 0, account{lost: 1, outOfOrder: 1}, false},
		{"the last is lost", 2, customerA(of(begin, 1, 1), of(done, 1, 1), of(begin, 2, 1)), 0, account{lost: 1}, false},
		{"overtaken", 2, customerA(of(begin, 2, 1), of(done, 2, 1), of(begin, 1, 1), of(done, 1, 1)), 0, account{outOfOrder: 2}, false},
		{"two at a time", 2, customerA(of(begin, 1, 1), of(begin, 2, 2), of(done, 1, 1), of(done, 2, 2)), 0, account{outOfOrder: 1}, false},
		{"retried in place", 2, customerA(of(begin, 1, 1), of(failed, 1, 1), second(of(begin, 1, 1)), of(done, 1, 1), of(begin, 2, 1), of(done, 2, 1)), 0, account{retried: 1}, true},
		{"overtaken while it waits in place", 2, customerA(of(begin, 1, 1), of(failed, 1, 1), of(begin, 2, 1), of(done, 2, 1), second(of(begin, 1, 1)), of(done, 1, 1)), 0, account{retried: 1, outOfOrder: 2}, false},
		{"given back at a stop while it waits in place", 1, customerA(of(begin, 1, 1), of(failed, 1, 1), again(of(begin, 1, 2)), of(done, 1, 2)), 0, account{retried: 1}, true},
		{"in hand at a kill", 2, customerA(of(begin, 1, 1), of(done, 1, 1), of(begin, 2, 1), again(of(begin, 2, 2)), of(done, 2, 2)), 1, account{redelivered: 1}, true},
		{"the next one begins after a kill", 2, customerA(of(begin, 1, 1), of(failed, 1, 1), second(of(begin, 1, 1)), of(begin, 2, 2), of(done, 2, 2)), 1, account{lost: 1, outOfOrder: 1}, false},
		{"done at a kill, and not acked: from there on again", 2,
			customerA(of(begin, 1, 1), of(done, 1, 1), of(begin, 2, 1), again(of(begin, 1, 2)), of(done, 1, 2), again(of(begin, 2, 2)), of(done, 2, 2)), 1, account{redelivered: 2, again: 1}, true},
		{"done at a kill, and again with a gap", 3,
			customerA(of(begin, 1, 1), of(done, 1, 1), of(begin, 2, 1), again(of(begin, 1, 2)), of(done, 1, 2), of(begin, 3, 2), of(done, 3, 2)), 1, account{lost: 1, redelivered: 1, again: 1, outOfOrder: 1}, false},
		{"handled in two processes without a kill", 1, customerA(of(begin, 1, 1), again(of(begin, 1, 2)), of(done, 1, 1), of(done, 1, 2)), 0, account{unexplained: 1, outOfOrder: 1}, false},
		{"handled again without a kill", 1, customerA(of(begin, 1, 1), of(done, 1, 1), again(of(begin, 1, 2)), of(done, 1, 2)), 0, account{unexplained: 1}, false},
		{"nothing", 0, nil, 0, account{}, false},
	} {
		b := newBooks()
		for n := range tt.bills {
			b.publish(bill{"a", n + 1}, zero, false)
		}
		for _, e := range slices.Backward(tt.events) { // the pipes of the processes keep no order between them
			b.note(e)
		}
		b.killed[tt.killed] = zero.Add(2500 * time.Millisecond)
		got := b.account()
		tt.want.published, tt.want.handled = tt.bills, tt.bills-tt.want.lost
		tt.want.behind, tt.want.other = got.behind, got.other
		if got.String() != tt.want.String() || (got.fault() == nil) != tt.ok {
			t.Errorf("%s: %v%v", tt.rule, got, got.fault())
		}
	}
}

// A failed bill holds back the next bills of its customer, and nobody else's.
func TestWaits(t *testing.T) {
	b := newBooks()
	at := func(s int) time.Time { return zero.Add(time.Duration(s) * time.Second) }
	for n, s := range []int{0, 1, 8} {
		b.publish(bill{"a", n + 1}, at(s), false)
	}
	b.publish(bill{"b", 1}, at(1), false)
	for _, e := range []event{
		{What: failed, bill: bill{"a", 1}, At: at(1)}, {What: done, bill: bill{"b", 1}, At: at(2)},
		{What: done, bill: bill{"a", 1}, At: at(5)}, {What: done, bill: bill{"a", 2}, At: at(7)}, {What: done, bill: bill{"a", 3}, At: at(9)},
	} {
		b.note(e)
	}
	a := b.account()
	if !slices.Equal(a.behind, []time.Duration{6 * time.Second}) || !slices.Equal(a.other, []time.Duration{time.Second, time.Second}) {
		t.Errorf("%v behind, others %v", a.behind, a.other)
	}
}

// What the table of the stages shows.
func TestStage(t *testing.T) {
	b := newBooks()
	for i, e := range []event{
		{What: begin, bill: bill{"a", 1}, Queue: "00", Process: 1}, {What: done, bill: bill{"a", 1}, Queue: "00", Process: 1},
		{What: begin, bill: bill{"a", 2}, Queue: "00", Process: 1}, {What: begin, bill: bill{"b", 1}, Queue: "01", Process: 2},
		{What: begin, bill: bill{"a", 2}, Queue: "00", Process: 2}, {What: done, bill: bill{"a", 2}, Queue: "00", Process: 2},
	} {
		e.At = zero.Add(time.Duration(i) * time.Second)
		b.note(e)
	}
	if bills, inHand, shards := b.look(zero.Add(2 * time.Second)); bills != 1 || !maps.Equal(inHand, map[int]int{2: 1}) || !maps.Equal(shards, map[int]int{2: 2}) {
		t.Errorf("%d bills, %v in hand, shards %v", bills, inHand, shards)
	}
}

func TestPlan(t *testing.T) {
	var length time.Duration
	before := stage{}
	for _, s := range plan {
		if s.shards <= before.shards || s.processes < before.processes || s.processes > s.shards || s.least < killAfter+restart {
			t.Errorf("%+v after %+v", s, before)
		}
		before = s
		length += s.least
	}
	if before.shards != 8 || before.processes != 4 || length > 50*time.Second {
		t.Errorf("the plan ends with %+v after %v", before, length)
	}
}
