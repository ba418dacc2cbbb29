package broker_test

import (
	"context"
	"strings"
	"testing"

	"github.com/rehop/rehop/integration/broker"
)

func TestStartRefusesWhatItCannotGive(t *testing.T) {
	tests := map[string]struct {
		opts broker.Options
		env  map[string]string
		want string
	}{
		"unknown version": {
			opts: broker.Options{Version: "3.9"},
			want: `broker: Version is "3.9", want one of 3.10, 4.0, 4.3`,
		},
		"negative nodes": {
			opts: broker.Options{Nodes: -1},
			want: "broker: Nodes is -1, want 1 or more",
		},
		"negative timeout": {
			opts: broker.Options{LetterTimeout: -1},
			want: "broker: LetterTimeout is -1ns",
		},
		"a cluster of a given broker": {
			opts: broker.Options{Nodes: 3},
			env:  map[string]string{"AMQP_URL": "amqp://broker.example/"},
			want: "broker: 3 nodes are wanted, AMQP_URL and AMQP_URLS name 1",
		},
		"a given broker that is not there": {
			env:  map[string]string{"AMQP_URL": "amqp://guest:secret@127.0.0.1:1/"},
			want: "broker: nothing to talk to at amqp://guest:xxxxx@127.0.0.1:1/",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			b, err := broker.Start(t.Context(), tt.opts)
			if err == nil {
				_ = b.Close(context.Background())
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Start(%+v) = %v, want %q", tt.opts, err, tt.want)
			}
		})
	}
}
