package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/producer"
)

// responseError is what Elasticsearch says of a request, or of one letter in it.
type responseError struct {
	Status int    // of HTTP
	Type   string // such as "mapper_parsing_exception"
	Reason string
}

func (e *responseError) Error() string {
	text := fmt.Sprintf("status %d", e.Status)
	for _, part := range []string{e.Type, e.Reason} {
		if part != "" {
			text += ": " + part
		}
	}
	return text
}

// Class is Transient for what may pass by itself, and Configuration for the rest:
// somebody has to change the index, the user or the letter.
func (e *responseError) Class() rehop.Class {
	if e.passes() || e.Status >= 500 {
		return rehop.ClassTransient
	}
	return rehop.ClassConfiguration
}

// passes reports whether the request is to be sent again.
func (e *responseError) passes() bool {
	return e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable
}

// noIndex reports whether err says that the index is not there, as Elasticsearch or
// as ZincSearch does. A 404 alone may come from what is between us and them.
func (s *Store) noIndex(err error) bool {
	var answered *responseError
	return errors.As(err, &answered) && (answered.Type == "index_not_found_exception" ||
		answered.Status == http.StatusBadRequest && answered.Reason == "index "+s.cfg.Index+" does not exists")
}

// doubtful reports whether what was asked may have been done.
func doubtful(err error) bool {
	var answered *responseError
	if errors.As(err, &answered) {
		return answered.Status >= 500
	}
	var network *net.OpError
	return !errors.As(err, &network) || network.Op != "dial" // a refused connection has carried nothing
}

// unconfirmedError says that a letter may be in the index.
type unconfirmedError struct{ error }

func (e unconfirmedError) Error() string {
	return e.error.Error() + " (the letter may have been stored)"
}

// Is reports whether target is producer.ErrUnconfirmed.
func (e unconfirmedError) Is(target error) bool { return target == producer.ErrUnconfirmed }

func (e unconfirmedError) Unwrap() error { return e.error }

// Class returns rehop.ClassTransient.
func (e unconfirmedError) Class() rehop.Class { return rehop.ClassTransient }

// retryAfter is an error with the time that the server asks for.
type retryAfter struct {
	error
	pause time.Duration
}

func (e retryAfter) Unwrap() error { return e.error }

// request is one of package esapi.
type request interface {
	Do(ctx context.Context, transport esapi.Transport) (*esapi.Response, error)
}

// do sends a request and decodes its answer into result, unless that is nil. An
// answer with another status than 2xx is a *responseError.
func (s *Store) do(ctx context.Context, r request, result any) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	response, err := r.Do(ctx, s.client)
	if err != nil {
		return rehop.WithClass(err, rehop.ClassTransient)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode/100 != 2 { // what is left of its text is better than none
		err := error(statusError(response.StatusCode, body))
		if seconds, bad := strconv.Atoi(response.Header.Get("Retry-After")); bad == nil && seconds > 0 {
			err = retryAfter{err, min(time.Duration(seconds)*time.Second, time.Minute)}
		}
		return err
	}
	if err != nil {
		return rehop.WithClass(fmt.Errorf("reading the answer: %w", err), rehop.ClassTransient)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(body, result); err != nil {
		return rehop.WithClass(fmt.Errorf("the answer is not what Elasticsearch sends: %w", err), rehop.ClassConfiguration)
	}
	return nil
}

// statusError reads the error of an answer: an object, or text from what is
// between us and Elasticsearch.
func statusError(status int, body []byte) *responseError {
	var answer struct{ Error json.RawMessage }
	if json.Unmarshal(body, &answer) == nil && len(answer.Error) > 0 {
		return readError(status, answer.Error)
	}
	return &responseError{Status: status, Reason: fmt.Sprintf("%.200s", body)}
}

func readError(status int, raw json.RawMessage) *responseError {
	e := &responseError{Status: status}
	var known struct {
		Type, Reason string
		CausedBy     struct{ Reason string } `json:"caused_by"`
	}
	var text string
	switch {
	case json.Unmarshal(raw, &known) == nil && known.Type != "":
		e.Type, e.Reason = known.Type, known.Reason
		if known.CausedBy.Reason != "" {
			e.Reason += ": " + known.CausedBy.Reason
		}
	case json.Unmarshal(raw, &text) == nil:
		e.Reason = fmt.Sprintf("%.300s", text)
	default:
		e.Reason = fmt.Sprintf("%.300s", raw)
	}
	return e
}
