// Package elastic has the tests of store/elastic on a search server with Elasticsearch's API,
// and with real brokers.
package elastic
