#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes oracle.json: Welch's intervals, by Python's statistics module and by integrating
Student's density, and stratified estimates, by least squares with a constant for each stratum.

python3 oracle.py >oracle.json
"""

import json
import math
import random
import statistics


def density(x: float, f: float) -> float:
    return math.exp(math.lgamma((f + 1) / 2) - math.lgamma(f / 2)) / math.sqrt(f * math.pi) * (1 + x * x / f) ** (-(f + 1) / 2)


def below(x: float, f: float, steps: int = 2000) -> float:
    """Probability of less than x, by Simpson's rule from 0 on."""
    h = x / steps
    odd = sum(density(h * i, f) for i in range(1, steps, 2))
    even = sum(density(h * i, f) for i in range(2, steps, 2))
    return 0.5 + h / 3 * (density(0, f) + 4 * odd + 2 * even + density(x, f))


def quantile(f: float, p: float = 0.975) -> float:
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle, f) < p else (low, middle)
    return (low + high) / 2


def welch(a: list[float], b: list[float]) -> dict:
    """Difference of the means of a and b, degrees of freedom, interval."""
    va, vb = statistics.variance(a) / len(a), statistics.variance(b) / len(b)
    freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    mean = statistics.fmean(a) - statistics.fmean(b)
    half = quantile(freedom) * math.sqrt(va + vb)
    return {"mean": mean, "freedom": freedom, "low": mean - half, "high": mean + half}


def fixed_effects(groups: list[tuple[list[float], list[float]]]) -> float:
    """Coefficient of being in the first group of a pair, in a regression with a constant for each
    pair: by the theorem of Frisch, Waugh and Lovell."""
    num = den = 0.0
    for a, b in groups:
        share = len(a) / (len(a) + len(b))
        for treated, values in ((1 - share, a), (-share, b)):
            num += sum(treated * x for x in values)
            den += treated * treated * len(values)
    return num / den


def main() -> None:
    rnd = random.Random(1)
    log = lambda mu, sigma, n: [round(rnd.gauss(mu, sigma), 6) for _ in range(n)]
    pairs = [(log(0, 1, 200), log(0.2, 1.5, 8)), (log(-1, 0.5, 12), log(-1, 2, 9)), (log(3, 0.1, 50), log(2, 0.1, 50)), (log(0, 1, 1000), log(0.1, 1, 40))]
    strata = [(log(m, 1, a), log(m + 0.3, 1, b)) for m, a, b in ((0, 40, 3), (2, 100, 1), (-1, 5, 5), (1, 20, 0))]
    print(json.dumps({
        "quantiles": {str(f): quantile(f) for f in (5, 6, 7.5, 10, 20, 50, 200, 5000)},
        "welch": [{"carried": a, "direct": b, **welch(a, b)} for a, b in pairs],
        "strata": {"groups": [{"carried": a, "direct": b} for a, b in strata], "mean": fixed_effects([s for s in strata if s[1]])},
    }))


main()
