package management

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"time"
)

// Info is a queue with its numbers, which the API brings up to date every few
// seconds.
type Info struct {
	Name string
	Queue
	AutoDelete, Exclusive bool
	State                 string

	Ready, Unacked, Consumers int
	Bytes                     int64   // of bodies that are ready
	PublishRate               float64 // messages per second
	DeliverRate               float64

	// Oldest is the timestamp of the message at the head of a classic queue. It is zero
	// where that is no time until the year 9999: some clients write milliseconds.
	Oldest time.Time
}

const infoColumns = "columns=name,type,arguments,policy,operator_policy,effective_policy_definition,auto_delete,exclusive,state," +
	"messages_ready,messages_unacknowledged,message_bytes_ready,consumers,head_message_timestamp,message_stats.publish_details.rate,message_stats.deliver_get_details.rate"

// Info asks for a queue with its numbers, for up to 5 s.
func (a *API) Info(ctx context.Context, name string) (Info, error) {
	body, err := a.get(ctx, infoColumns, "queues", a.vhost, name)
	if err == nil {
		var i Info
		if i, err = parseInfo(body); err == nil {
			return i, nil
		}
	}
	return Info{}, fmt.Errorf("management API at %s: queue %q of virtual host %q: %w", a, name, a.vhost, err)
}

const (
	// pageSize is what the API gives at most.
	pageSize = 300
	// maxPages bounds Infos.
	maxPages = 200
)

// Infos asks for all queues of the virtual host, in the order of their names.
func (a *API) Infos(ctx context.Context) ([]Info, error) {
	var all []Info
	_, err := a.pages(ctx, infoColumns, nil, "queues", func(item []byte) error {
		i, err := parseInfo(item)
		all = append(all, i)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("management API at %s: queues of virtual host %q: %w", a, a.vhost, err)
	}
	return all, nil
}

// pages asks for a list of the virtual host, page by page in the order of names, and calls
// each with every item. total is how many there are without the filter of the query.
func (a *API) pages(ctx context.Context, columns string, filter url.Values, list string, each func(item []byte) error) (total int, err error) {
	for page := 1; page <= maxPages; page++ {
		query := url.Values{"page": {strconv.Itoa(page)}, "page_size": {strconv.Itoa(pageSize)}, "sort": {"name"}}
		maps.Copy(query, filter)
		body, err := a.get(ctx, columns+"&"+query.Encode(), list, a.vhost)
		if err != nil {
			return 0, err
		}
		var answer struct {
			Items []json.RawMessage `json:"items"`
			Pages int               `json:"page_count"`
			Total int               `json:"total_count"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return 0, err
		}
		for _, item := range answer.Items {
			if err := each(item); err != nil {
				return 0, err
			}
		}
		if total = answer.Total; page >= answer.Pages {
			break
		}
	}
	return total, nil
}

// Consumer is a consumer of a queue.
type Consumer struct {
	Tag        string
	Connection string // its name
}

// Consumers asks who consumes from a queue, for up to 5 s. The API brings its answer up
// to date every few seconds.
func (a *API) Consumers(ctx context.Context, name string) ([]Consumer, error) {
	body, err := a.get(ctx, "columns=consumer_details", "queues", a.vhost, name)
	var answer struct {
		Details []struct {
			Tag     string          `json:"consumer_tag"`
			Channel json.RawMessage `json:"channel_details"` // an object, or an empty array
		} `json:"consumer_details"`
	}
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err != nil {
		return nil, fmt.Errorf("management API at %s: consumers of queue %q of virtual host %q: %w", a, name, a.vhost, err)
	}
	var all []Consumer
	for _, d := range answer.Details {
		var channel struct {
			Connection string `json:"connection_name"`
		}
		_ = json.Unmarshal(d.Channel, &channel)
		all = append(all, Consumer{d.Tag, channel.Connection})
	}
	return all, nil
}

func parseInfo(body []byte) (Info, error) {
	q, err := parse(body)
	if err != nil {
		return Info{}, err
	}
	var answer struct {
		Name       string          `json:"name"`
		AutoDelete bool            `json:"auto_delete"`
		Exclusive  bool            `json:"exclusive"`
		State      string          `json:"state"`
		Ready      int             `json:"messages_ready"`
		Unacked    int             `json:"messages_unacknowledged"`
		Bytes      int64           `json:"message_bytes_ready"`
		Consumers  int             `json:"consumers"`
		Oldest     json.RawMessage `json:"head_message_timestamp"` // seconds, or null, or an empty text
		Stats      json.RawMessage `json:"message_stats"`          // an object or an empty array
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return Info{}, fmt.Errorf("it answers something else than a queue: %w", err)
	}
	var stats struct {
		Publish struct {
			Rate float64 `json:"rate"`
		} `json:"publish_details"`
		Deliver struct {
			Rate float64 `json:"rate"`
		} `json:"deliver_get_details"`
	}
	_ = json.Unmarshal(answer.Stats, &stats) // a queue without traffic has none
	var oldest time.Time
	if seconds, err := strconv.ParseInt(string(answer.Oldest), 10, 64); err == nil && seconds > 0 {
		if t := time.Unix(seconds, 0).UTC(); t.Year() >= 1970 && t.Year() <= 9999 {
			oldest = t
		}
	}
	return Info{
		Name: answer.Name, Queue: q, AutoDelete: answer.AutoDelete, Exclusive: answer.Exclusive, State: answer.State,
		Ready: answer.Ready, Unacked: answer.Unacked, Consumers: answer.Consumers, Bytes: answer.Bytes,
		PublishRate: stats.Publish.Rate, DeliverRate: stats.Deliver.Rate, Oldest: oldest,
	}, nil
}
