// Package elastic keeps letters in Elasticsearch, where people search them with
// Kibana: messages that could not be published, and dead letters.
//
//	a message that could not be published --> Put ------+                  +-- Find, Kibana
//	                                                    +--> index --------+
//	a dead-letter queue, by a consumer -----> Collect --+                  +-- Replay --> the broker
//
// A [Store] is a [producer.Sink] and a handler for a dead-letter queue:
//
//	client, err := elasticsearch.NewClient(elasticsearch.Config{Addresses: []string{"https://es:9200"}})
//	letters, err := elastic.Open(ctx, client, elastic.Config{Policy: "letters-90d"})
//	publisher, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{letters}})
//	desk, err := consumer.New(conn, orders.DeadLetterQueue(), letters.Collect, consumer.Config{Concurrency: 50})
//
// Nothing here is published by itself. For messages that are to be forwarded when
// the broker is back, put a store.Store of package [github.com/rehop/rehop/store] in front
// of this one in Config.Fallback. The page [Letters] has more examples.
//
// The package is a module of its own, so that only programs that use it depend on
// the client, github.com/elastic/go-elasticsearch/v8.
//
// # The documents
//
// One document is one [Document]. Its _id is a hash of message id, exchange, key,
// queue, body, the properties that are texts, and own headers but for those of tracing
// (traceparent, tracestate, baggage), so a letter that is put twice is one document; the later one
// replaces the earlier. A message without an id cannot be recognised.
//
//	message_id, exchange, routing_key, queue   keywords; text that is not UTF-8 is "$base64:..."
//	cause, error_type, fingerprint             keywords: why it is here
//	error                 text
//	body                  text, if the body is UTF-8
//	body_base64           any other body; not searchable
//	properties            text: JSON with content_type, correlation_id, timestamp, ...
//	headers               text: JSON that gives back every type, such as {"n": {"$int32": 3}}
//	order_key             Message.OrderKey
//	attempts              of the handlers
//	redrives, redrive_id  times that a person has sent it back, and the redrive for the last
//	unconfirmed           true: the message may be in its queue
//	first_failed, failed, stored   dates, in milliseconds
//	tie                   orders documents of one millisecond
//
// Properties and headers are JSON in a string, because an object in Elasticsearch
// would need one type for each key of all letters. The words in them are found by
// Query.Text. Documents may be edited by hand; Replay publishes the message that the
// document says. A document that cannot be read is a Document with a Fault, and Replay
// leaves it.
//
// # Index, template and policy
//
// [Open] writes an index template for Config.Index and for indices whose names begin
// with Config.Index and a hyphen. An index that exists keeps its mapping, and Open
// refuses an index with another mapping. With Config.Policy the template names an ILM
// policy, which must exist. If that policy rolls over, create the first index before
// the first letter, with Config.Index as its alias:
//
//	PUT rehop-letters-000001
//	{"aliases": {"rehop-letters": {"is_write_index": true}}}
//
// Ids are unique within an index. A letter that comes again after a rollover is a
// second document. A data stream cannot be Config.Index: it does not take documents
// that replace others.
//
// The user of the client needs the index privileges index, create_index, read,
// delete, view_index_metadata and maintenance, and manage_index_templates of the cluster unless
// Config.NoTemplate is set.
//
// # Tests
//
// The tests run on ZincSearch, a server that speaks this part of the API, and on
// prepared answers in the form that Elasticsearch 8 documents. Elasticsearch itself
// differs in this:
//
//   - It has if_seq_no and if_primary_term. With them Replay leaves a document that was
//     changed after it was read. ZincSearch ignores both, and Replay deletes such a
//     document there. It also loses some documents that are written right after they
//     were deleted, such as a letter that is dead again at once.
//   - It applies ILM policies, the refresh parameter and ignore_above. ZincSearch
//     ignores them.
//   - It answers a delete of a document that is not there with 404, and Replay takes it
//     for deleted. ZincSearch answers 200 with an empty error, and Replay reports that
//     it could not delete.
//   - It acknowledges a letter when the translog of primary and replicas has it on the
//     disk, unless index.translog.durability is async. Do not change that setting.
//   - It refuses a request of more than http.max_content_length, 100 MB by default. So
//     does a proxy, with a limit of its own. The letters are sent in halves then, and one
//     that is too large alone is refused: see Config.Refused.
//   - It finds 10,000 documents in one search (index.max_result_window).
//   - It answers 429 when its queues are full. All letters wait for one pause then, and
//     each Put tries again until its ctx ends.
//
// [Letters]: https://github.com/rehop/rehop/blob/main/docs/letters.md
package elastic
