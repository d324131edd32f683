// SPDX-License-Identifier: Apache-2.0

package relay

import "log/slog"

// A complaint logs an error of something that is tried again and again once, until it works or the error is another one.
type complaint struct{ last string }

func (c *complaint) about(logger *slog.Logger, what string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != c.last {
		logger.Error(what, "error", err)
	}
	c.last = text
}
