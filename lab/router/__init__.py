# SPDX-License-Identifier: Apache-2.0
"""A MIPS router, emulated."""
