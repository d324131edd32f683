// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"time"
)

// object is an object of a page. Its request is sent delay after at bytes of its parent, and all objects in after, have
// arrived; numbers are indices of the page's list. The first object is the page itself, and waits for nothing.
type object struct {
	file    string
	size    int64
	parent  int
	at      int64
	after   []int
	delay   time.Duration
	urgency int // RFC 9218
}

func (o *object) UnmarshalJSON(text []byte) error {
	var ms float64
	fields := []any{&o.file, &o.size, &o.parent, &o.at, &o.after, &ms, &o.urgency}
	want := len(fields)
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	if len(fields) != want {
		return fmt.Errorf("an object has %d fields, not %d", want, len(fields))
	}
	o.delay = time.Duration(ms * float64(time.Millisecond))
	return nil
}

// parse returns the objects of one page. Each waits only for earlier ones.
func parse(text []byte, page string) ([]object, error) {
	var pages map[string][]object
	if err := json.Unmarshal(text, &pages); err != nil {
		return nil, err
	}
	objects := pages[page]
	if len(objects) == 0 {
		return nil, fmt.Errorf("no page %q", page)
	}
	for i, o := range objects[1:] {
		if o.parent < 0 || o.parent > i {
			return nil, fmt.Errorf("%s: %s has parent %d, which is not before it", page, o.file, o.parent)
		}
		if o.at > objects[o.parent].size {
			return nil, fmt.Errorf("%s: %s waits for byte %d of %d", page, o.file, o.at, objects[o.parent].size)
		}
		for _, k := range o.after {
			if k < 0 || k > i {
				return nil, fmt.Errorf("%s: %s waits for %d, which is not before it", page, o.file, k)
			}
		}
	}
	return objects, nil
}
