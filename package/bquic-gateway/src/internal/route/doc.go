// SPDX-License-Identifier: Apache-2.0

// Package route asks the kernel for its routes (rtnetlink).
package route
