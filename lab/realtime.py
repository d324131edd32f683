# SPDX-License-Identifier: Apache-2.0
"""Experiments in real time: their turns, their rows, and how to continue after an interruption."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from lab import BQUIC, ROOT, medium, namespaces
from lab.measure import CPU_LIMIT, Disturbed, TooSlow, commit, progress
from lab.results import Row, options, read, show, write

WIFIRRD = ROOT / "build/wifirrd"
BUSY_LOAD = 3.0  # load average; an experiment alone has 1 to 2

# Columns of every row, besides the experiment's parameters and figures.
COMMON: dict[str, tuple[type, ...]] = {
    "contender": (str,), "repetition": (int,), "seed": (int,), "commit": (str,), "binary": (str,), "quick": (bool,),
    "lag_ms": (int, float), "cpu_pressure": (int, float), "load": (int, float), "retries": (int,), "retries_cpu": (int,),
    "failures": (int,),
}

# One run of a contender. Returns its figures, including measure.conditions.
Run = Callable[[], Row]
T = TypeVar("T")


def binary(more: Sequence[pathlib.Path] = ()) -> str:
    """A hash of all programs involved (bquic, the medium and MORE): rows of other programs are not reused."""
    sha = hashlib.sha256()
    for path in (BQUIC, *more, medium.BINARY):
        try:
            with open(path, "rb") as file:
                sha.update(hashlib.file_digest(file, "sha256").digest())
        except FileNotFoundError:
            raise namespaces.Failed(f"{path.relative_to(ROOT)} is missing: make build") from None
    return sha.hexdigest()[:16]


def check(row: Row, figures: Iterable[str]) -> None:
    """Raises ValueError for a row that readers of the file could not use."""
    for key, types in COMMON.items():
        if not isinstance(row.get(key), types) or isinstance(row[key], bool) != (types == (bool,)):
            raise ValueError(f"{key} is {row.get(key)!r}: {row}")
    if not 0 <= row["lag_ms"] < medium.LAG_LIMIT_MS:
        raise ValueError(f"the emulator lagged by {row['lag_ms']} ms: {row}")
    for key in figures:
        if isinstance(row.get(key), bool) or not isinstance(row.get(key), (int, float)) or not row[key] > 0:
            raise ValueError(f"{key} is {row.get(key)!r}: {row}")


# What a run has cost before it succeeded.
TROUBLE = ("failures", "retries", "retries_cpu")


def in_turn(some: Sequence[T], repetition: int) -> list[T]:
    """Each repetition begins with another one."""
    first = repetition % len(some)
    return [*some[first:], *some[:first]]


def failed(path: pathlib.Path) -> pathlib.Path:
    """The file beside the rows of PATH that has what failed and has no row yet."""
    return path.with_suffix(".failed")


class Campaign:
    """The rows of one experiment, in a file that grows with each."""

    def __init__(
        self, name: str, args: argparse.Namespace, path: pathlib.Path, figures: Sequence[str],
        more: Sequence[pathlib.Path] = (), part: Callable[[Row], bool] = lambda row: True,
    ) -> None:
        """Figures are keys whose values must be positive numbers, MORE are further programs: see binary(). Rows of other
        PARTs stay in the file unchanged."""
        self.name, self.path, self._figures = name, path, figures
        self._known: Row = {"binary": binary(more), "quick": args.quick}
        there = read(path)
        self._others = [r for r in there if not part(r)]
        self.rows = [] if args.restart else [r for r in there if part(r) and self._is_ours(r)]
        self._keep([r for r in read(failed(path)) if not part(r) or self._is_ours(r)])
        self._last: namespaces.Failed | None = None  # of what _keep() keeps
        if self.rows:
            progress(f"{name}: continues after {len(self.rows)} rows of an interrupted run")

    def _is_ours(self, row: Row) -> bool:
        return all(row.get(k) == v for k, v in self._known.items())

    def has(self, key: Row) -> bool:
        return any(all(row.get(k) == v for k, v in key.items()) for row in self.rows)

    def missing(self, key: Row, contenders: Sequence[str]) -> list[str]:
        """Contenders still missing for this setting (which includes a repetition). Each repetition starts with another one."""
        return [c for c in in_turn(contenders, key["repetition"]) if not self.has({**key, "contender": c})]

    def todo(self, keys: Sequence[Row], contenders: Sequence[str]) -> dict[str, list[Row]]:
        """By contender, the settings of a repetition for which it is missing."""
        return {c: some for c in in_turn(contenders, keys[0]["repetition"]) if (some := [key for key in keys if self.missing(key, [c])])}

    def add(self, key: Row, contender: str, run: Run, say: str) -> None:
        """Runs a contender, once more after a failure, and stores the row, which records all failures, also those of
        experiments that ended by them. SAY is the format of the progress message."""
        it: Row = {**key, "contender": contender, **self._known}
        for again in (True, False):
            try:
                result = run()
                break
            except namespaces.Failed as error:
                self._note(it, error)
                if not again or isinstance(error, TooSlow):
                    raise
                progress(f"  FAILED, once more: {error}")
        noted = self._noted(it)
        row: Row = {
            **key, "contender": contender, **result, "failures": 0, "seed": key["repetition"],
            "load": round(os.getloadavg()[0], 2), "commit": commit(), **self._known,
        }
        check(row, self._figures)
        row |= {name: row[name] + noted[name] for name in TROUBLE}
        self.rows.append(row)
        write(self.path, self._others + self.rows)
        self._keep([r for r in self._failed if r is not noted])
        progress(f"{self.name} {say.format(**row)}, lag {row['lag_ms']:.2f} ms")

    @contextlib.contextmanager
    def blaming(self, keys: Sequence[Row], contender: str) -> Iterator[None]:
        """Notes also what fails outside of add(), such as the start of a contender for these settings."""
        try:
            yield
        except namespaces.Failed as error:
            if left := [key for key in keys if error is not self._last and self.missing(key, [contender])]:
                self._note({**left[0], "contender": contender, **self._known}, error)
            raise

    def _noted(self, it: Row) -> Row:
        there = (r for r in self._failed if all(r.get(k) == v for k, v in it.items()))
        return next(there, {**it, **dict.fromkeys(TROUBLE, 0)})

    def _note(self, it: Row, error: namespaces.Failed) -> None:
        """Keeps a failure for the row that follows, perhaps of another start."""
        self._last = error
        noted = self._noted(it)
        noted["failures"] += not isinstance(error, TooSlow)
        if isinstance(error, Disturbed):
            noted["retries"] += error.lagged + error.waiting
            noted["retries_cpu"] += error.waiting
        self._keep([*(r for r in self._failed if r is not noted), noted])

    def _keep(self, noted: list[Row]) -> None:
        self._failed = noted
        if noted:
            write(failed(self.path), noted)
        else:
            failed(self.path).unlink(missing_ok=True)


def turn(row: Row) -> tuple[int, str]:
    """What paired rows have in common: runs of other programs were at another time, perhaps on a busier machine."""
    return row["repetition"], row["binary"]


def gains(base: list[Row], other: list[Row], key: str) -> list[float]:
    """other / base of a figure, turn by turn."""
    first = {turn(row): row[key] for row in base}
    return [row[key] / first[turn(row)] for row in other if turn(row) in first]


def each(rows: list[Row], count: Callable[[Row], int]) -> str:
    """A sum over rows, and by contender if it is not zero: what discards runs of one contender alone favours it."""
    by = {c: n for c in dict.fromkeys(r["contender"] for r in rows) if (n := sum(count(r) for r in rows if r["contender"] == c))}
    return str(sum(by.values())) + f" ({', '.join(f'{c} {n}' for c, n in by.items())})" * bool(by)


def rowless(path: pathlib.Path) -> str:
    """Tells what the rows of PATH lack because it failed each time."""
    some = read(failed(path))
    return f"Runs without a row, because they failed each time: {each(some, lambda r: 1)}." if some else ""


def notes(rows: list[Row]) -> str:
    """Notes for the reader of a table of rows."""
    builds = len({r["binary"] for r in rows})
    text = (f"{len(rows)} runs{f' of {builds} builds; each ratio is of runs of one build' * (builds > 1)}."
            f" The emulator's mean lag is at most {max(r['lag_ms'] for r in rows):.2f} ms."
            f"\nDiscarded runs: {each(rows, lambda r: r['retries'] - r.get('retries_cpu', 0))} for a mean lag of {medium.LAG_LIMIT_MS:g} ms or more,"
            f" {each(rows, lambda r: r.get('retries_cpu', 0))} because the ends waited for a processor in {100 * CPU_LIMIT:.0f} % of the time or more."
            f" Repeated after a failure: {each(rows, lambda r: r['failures'])}.")
    above = sum(r["cpu_pressure"] >= CPU_LIMIT for r in rows)
    if above:
        text += (f"\nIn {above} of the runs, the ends waited for a processor as long as that: the experiment counts all runs, or the run is older than"
                 " the rule, and its figure is of the whole machine (docs/lab.md).")
    busy = [r["load"] for r in rows if r.get("load", 0) > BUSY_LOAD]
    if busy:
        text += f"\nIn {len(busy)} of the runs, the machine had other work (load average above {BUSY_LOAD:g}, up to {max(busy):.1f})."
    return text


def main(
    name: str, about: str, repetitions: tuple[int, int], results: pathlib.Path, quick_results: pathlib.Path,
    run: Callable[[argparse.Namespace, pathlib.Path], list[Row]], report: Callable[[list[Row]], str],
    draw: Callable[[list[Row]], None], parts: Sequence[str] = (),
) -> int:
    """The command line of all experiments in real time. REPETITIONS: of the full and the quick set. PARTS: the parts that
    --part selects from; without --part, all of them run in turn."""
    p = options(about, "fewer settings and repetitions")
    p.add_argument("--repetitions", type=int, help=f"of each run ({repetitions[0]}; quick: {repetitions[1]})")
    if parts:
        p.add_argument("--part", choices=parts, help="only this one; the rows of the others stay")
    args = p.parse_args()
    if args.repetitions is None:
        args.repetitions = repetitions[args.quick]
    if args.repetitions < 1:
        p.error("--repetitions: at least 1")
    path = quick_results if args.quick else results
    if not args.report:
        namespaces.exit_on_signals()
        medium.build()
        selected: Sequence[str | None] = [args.part] if parts and args.part else parts or [None]
        for args.part in selected:
            run(args, path)
    return show(name, path, read(path), lambda rows: "\n".join(filter(None, (report(rows), rowless(path)))), None if args.quick else draw)
