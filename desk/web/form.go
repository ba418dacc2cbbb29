package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Bounds of what a browser sends.
const (
	maxQuery      = 8 << 10  // bytes of the query of an address, which links of a page repeat
	maxConditions = 64       // values of an address, and of each field of a form: a page of letters is selected
	maxValue      = 2 << 10  // bytes of a value
	maxFieldName  = 64       // bytes of the name of a field
	maxForm       = 64 << 10 // bytes of a form
	maxFields     = 1000     // values of a form
	maxEdit       = 8 << 20  // bytes of a form with an edited body
	maxLarge      = 4        // such forms that are read at a time, and so are in memory

	// A form is there within formTime, and one with an edited body within editTime.
	formTime = 10 * time.Second
	editTime = 30 * time.Second
)

// long are the fields that may be longer than maxValue or have more values than
// maxConditions: the form itself bounds them.
var long = map[string]bool{"body": true, "set": true, "back": true, "next": true, "remove": true, "ids": true}

// readQuery parses the query of an address, if it is small.
func readQuery(raw string) (url.Values, error) {
	var errs []error
	if n := strings.Count(raw, "&") + 1; n > maxConditions {
		errs = append(errs, fmt.Errorf("the address has %d values, want %d or fewer", n, maxConditions))
	}
	if len(raw) > maxQuery {
		errs = append(errs, fmt.Errorf("the address has %d bytes, want %d or fewer", len(raw), maxQuery))
	}
	if errs != nil {
		return nil, fmt.Errorf("%w: %w", errForm, errors.Join(errs...))
	}
	v, err := url.ParseQuery(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errForm, err)
	}
	return v, boundsOf(v)
}

// readForm reads the form of a POST. It holds nothing that others wait for, and ends within
// a time, however slowly the client writes.
func readForm(w http.ResponseWriter, r *http.Request, most int64, within time.Duration) (url.Values, error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); r.ContentLength != 0 && kind != "application/x-www-form-urlencoded" {
		return nil, fmt.Errorf("%w: its Content-Type is %.60q, want application/x-www-form-urlencoded", errForm, r.Header.Get("Content-Type"))
	}
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(within)) // where there is none, the server has its own
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errForm, err)
	}
	_ = c.SetReadDeadline(time.Time{})
	if n := strings.Count(string(text), "&") + 1; n > maxFields {
		return nil, fmt.Errorf("%w: the form has %d values, want %d or fewer", errForm, n, maxFields)
	}
	form, err := url.ParseQuery(string(text))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errForm, err)
	}
	return form, boundsOf(form)
}

// boundsOf returns an error that names each field that is too long or too often there.
func boundsOf(form url.Values) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(form)) {
		if len(name) > maxFieldName {
			errs = append(errs, fmt.Errorf("field %.40q has %d bytes, want a name of %d bytes or fewer", name, len(name), maxFieldName))
			continue
		}
		if long[name] {
			continue
		}
		if n := len(form[name]); n > maxConditions {
			errs = append(errs, fmt.Errorf("%s has %d values, want %d or fewer", name, n, maxConditions))
		}
		for _, value := range form[name] {
			if len(value) > maxValue {
				errs = append(errs, fmt.Errorf("%s has %d bytes, want %d or fewer: %.40q", name, len(value), maxValue, value))
			}
		}
	}
	if errs == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errForm, errors.Join(errs...))
}

// read reads what the request says, before it takes the place of a page.
func (r *request) read() (err error) {
	r.form = url.Values{} // of a request that is refused
	form, err := readQuery(r.r.URL.RawQuery)
	if err != nil {
		return err
	}
	if r.r.Method == http.MethodPost {
		posted, err := r.posted()
		if err != nil {
			return err
		}
		for name, values := range form {
			posted[name] = append(posted[name], values...)
		}
		form = posted
	}
	r.form = form
	return nil
}

// posted reads the form of a POST. A large one has to wait for a place of its own.
func (r *request) posted() (url.Values, error) {
	if r.r.URL.Path != "/edit" {
		return readForm(r.w, r.r, maxForm, formTime)
	}
	ctx, cancel := context.WithTimeout(r.ctx, askTimeout)
	defer cancel()
	select {
	case r.h.large <- struct{}{}:
		defer func() { <-r.h.large }()
	case <-ctx.Done():
		return nil, errBusy
	}
	return readForm(r.w, r.r, maxEdit, editTime)
}
