package main

import (
	"strings"
	"testing"
)

func TestReadOrders(t *testing.T) {
	const header = "id,passenger,phone,train,message,vip\n"
	for _, test := range []struct {
		name, csv string
		want      Order
		err       string
	}{
		{
			name: "a comma and quotes in a field, and letters beyond ASCII",
			csv:  header + `T-1,Ayşe Yıldız,+90 555 000 12 34,YHT 81211 Konya-Ankara,"Vagon 4, ""Business""",yes` + "\n",
			want: Order{"T-1", "Ayşe Yıldız", "+90 555 000 12 34", "YHT 81211 Konya-Ankara", `Vagon 4, "Business"`, true},
		},
		{name: "empty file", csv: "", err: "orders: header: EOF"},
		{name: "another header", csv: "id,name,phone,train,message,vip\n", err: "orders: columns are"},
		{name: "a field too few", csv: header + "T-1,Anna Vogel,+49,ICE 1,no\n", err: "wrong number of fields"},
		{name: "an empty id", csv: header + " ,Anna Vogel,+49,ICE 1,Gleis 7,no\n", err: "orders: line 2: id is empty"},
		{name: "an id twice", csv: header + "T-1,A,1,I,G,no\nT-1,B,2,I,G,no\n", err: `orders: line 3: id "T-1" occurs twice`},
		{name: "neither yes nor no", csv: header + "T-1,A,1,I,G,maybe\n", err: `orders: line 2: vip is "maybe", want yes or no`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := readOrders(strings.NewReader(test.csv))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("readOrders: error is %v, want one with %q", err, test.err)
				}
				return
			}
			if err != nil || len(got) != 1 || got[0] != test.want {
				t.Errorf("readOrders = %+v, %v, want %+v", got, err, test.want)
			}
		})
	}
}

func TestEmbeddedOrders(t *testing.T) {
	orders := embeddedOrders(t)
	if len(orders) != 200 {
		t.Errorf("orders.csv has %d orders, want 200", len(orders))
	}
	// Each way to end must be shown by at least one order.
	ends := map[ending]int{}
	busy := 0
	for _, o := range orders {
		e := expected(o, 5)
		ends[e]++
		if moodFor(o.ID).busy && e.how == bySMS {
			busy++
		}
	}
	for _, e := range []ending{
		{bySMS, 1}, {bySMS, 2}, {bySMS, 3}, {bySMS, 4}, {bySMS, 5},
		{byDiscard, 1}, {"letter: exhausted", 5}, {"letter: permanent", 1},
	} {
		if ends[e] == 0 {
			t.Errorf("no order ends as %q", e)
		}
		delete(ends, e)
	}
	if len(ends) > 0 || busy == 0 {
		t.Errorf("other endings: %v, want none; busy %d times, want more than 0", ends, busy)
	}
}

func embeddedOrders(t *testing.T) []Order {
	t.Helper()
	orders, err := readOrders(strings.NewReader(ordersCSV))
	if err != nil {
		t.Fatal(err)
	}
	return orders
}
