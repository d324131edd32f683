# SPDX-License-Identifier: Apache-2.0
"""The programs that the experiment "latency" runs in its namespaces."""
