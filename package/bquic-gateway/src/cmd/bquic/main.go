// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/quic-go/quic-go"

func main() { _ = quic.Burst{} }
