// SPDX-License-Identifier: Apache-2.0

package http3

import "github.com/quic-go/quic-go"

// QUICStream returns the stream below s, as it does of a [Stream].
func (s *RequestStream) QUICStream() *quic.Stream { return s.str.QUICStream() }
