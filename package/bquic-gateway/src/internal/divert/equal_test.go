// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"net/netip"
	"reflect"
	"testing"
)

// TestRulesEqual checks that equal compares every field.
func TestRulesEqual(t *testing.T) {
	if !new(Rules).equal(&Rules{}) {
		t.Error("no rules are not equal to none")
	}
	some := map[reflect.Type]any{
		reflect.TypeFor[string]():         "tproxy",
		reflect.TypeFor[int]():            1,
		reflect.TypeFor[bool]():           true,
		reflect.TypeFor[[]string]():       []string{"lan"},
		reflect.TypeFor[[]netip.Addr]():   []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		reflect.TypeFor[[]netip.Prefix](): []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		reflect.TypeFor[[]Ports]():        []Ports{{1, 2}},
		reflect.TypeFor[[]*BridgePort]():  []*BridgePort{{Name: "bat0"}},
	}
	for field := range reflect.TypeFor[Rules]().Fields() {
		value, ok := some[field.Type]
		if !ok {
			t.Fatalf("%s is of a type unknown here", field.Name)
		}
		var a, b Rules
		reflect.ValueOf(&a).Elem().FieldByIndex(field.Index).Set(reflect.ValueOf(value))
		if a.equal(&b) || b.equal(&a) {
			t.Errorf("%s makes no difference", field.Name)
		}
		reflect.ValueOf(&b).Elem().FieldByIndex(field.Index).Set(reflect.ValueOf(value))
		if !a.equal(&b) {
			t.Errorf("%s: equal ones differ", field.Name)
		}
	}
}
