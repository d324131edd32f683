# SPDX-License-Identifier: Apache-2.0
"""The evidence: real binaries in network namespaces over an emulated medium."""
