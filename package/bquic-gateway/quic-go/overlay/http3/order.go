// SPDX-License-Identifier: Apache-2.0

package http3

import "github.com/quic-go/quic-go"

// QUICStream returns the QUIC stream of s, like the method of [Stream].
func (s *RequestStream) QUICStream() *quic.Stream { return s.str.QUICStream() }
