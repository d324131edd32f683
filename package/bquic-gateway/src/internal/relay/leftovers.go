// SPDX-License-Identifier: Apache-2.0

package relay

// RouteMark is on packets that TPROXY hands to the relay: the firewall is asked to
// let them in.
const RouteMark = routeMark

// Clean removes what a relay that was killed has left in the kernel.
func Clean() error {
	removeRoutes()
	return removeTable()
}
