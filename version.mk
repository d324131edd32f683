# SPDX-License-Identifier: Apache-2.0
# The version of all that this repository makes. What changed in it: CHANGELOG.md.
PKG_VERSION:=0.2.0
# The time of the commit, as LuCI has it in its versions: a router takes a later build for an upgrade, also of the same version.
PKG_RELEASE:=$(shell export TZ=UTC; git log -1 --date=format-local:%Y%m%d%H%M%S --format=%cd 2>/dev/null || date -r $(lastword $(MAKEFILE_LIST)) +%Y%m%d%H%M%S)
