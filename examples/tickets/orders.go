package main

import (
	_ "embed" // for orders.csv
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

//go:embed orders.csv
var ordersCSV string

// Order is a paid ticket that its passenger must hear of. It is the body of a
// message, as JSON.
type Order struct {
	ID        string `json:"id"`
	Passenger string `json:"passenger"`
	Phone     string `json:"phone"`
	Train     string `json:"train"`
	Message   string `json:"message"`
	VIP       bool   `json:"vip"`
}

var columns = []string{"id", "passenger", "phone", "train", "message", "vip"}

// readOrders reads the orders of a CSV file with a header line. An id must not
// occur twice: it becomes the message id, by which the office tells orders
// apart.
func readOrders(r io.Reader) ([]Order, error) {
	rows := csv.NewReader(r)
	rows.FieldsPerRecord = len(columns)
	header, err := rows.Read()
	if err != nil {
		return nil, fmt.Errorf("orders: header: %w", err)
	}
	if !slices.Equal(header, columns) {
		return nil, fmt.Errorf("orders: columns are %q, want %q", header, columns)
	}
	var orders []Order
	seen := map[string]bool{}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return orders, nil
		}
		if err != nil {
			return nil, fmt.Errorf("orders: %w", err)
		}
		line, _ := rows.FieldPos(0)
		order, err := parseOrder(row)
		if err == nil && seen[order.ID] {
			err = fmt.Errorf("id %q occurs twice", order.ID)
		}
		if err != nil {
			return nil, fmt.Errorf("orders: line %d: %w", line, err)
		}
		seen[order.ID] = true
		orders = append(orders, order)
	}
}

func parseOrder(row []string) (Order, error) {
	o := Order{ID: row[0], Passenger: row[1], Phone: row[2], Train: row[3], Message: row[4]}
	if strings.TrimSpace(o.ID) == "" {
		return Order{}, errors.New("id is empty")
	}
	switch row[5] {
	case "yes":
		o.VIP = true
	case "no":
	default:
		return Order{}, fmt.Errorf("vip is %q, want yes or no", row[5])
	}
	return o, nil
}
