# SPDX-License-Identifier: Apache-2.0
"""What the experiment "latency" runs in its namespaces."""
