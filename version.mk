# SPDX-License-Identifier: Apache-2.0
# The version of all that this repository makes. What changed in it: CHANGELOG.md.
PKG_VERSION:=0.2.0
