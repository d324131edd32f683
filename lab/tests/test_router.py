# SPDX-License-Identifier: Apache-2.0
"""The emulated router: it counts instructions, and the report uses the counts correctly."""

from __future__ import annotations

import contextlib
import importlib
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from lab import command, namespaces
from lab.router import board, cells

router: Any = importlib.import_module("router")


def test_the_boards_clock_counts_instructions_and_a_failed_script_is_told(tmp_path: pathlib.Path) -> None:
    # The kernel calibrates a loop of two instructions, "BogoMIPS", by its clock.
    script = tmp_path / "script"
    script.write_text("sed -n 's/^BogoMIPS.*: //p' /proc/cpuinfo; echo $1; ls -1 /job; echo why it failed; exit 3\n")
    said: list[str] = []
    with pytest.raises(namespaces.Failed, match="exit code 3\n(.*\n)*why it failed"):
        try:
            with board.run(script, ["7"], {"data": script}, seconds=900) as lines:
                said.extend(lines)
        except board.CannotRun as error:
            pytest.skip(str(error))
    assert float(said[0]) == pytest.approx(1e3 / board.NS_PER_INSTRUCTION, rel=0.02)
    assert said[1:] == ["7", "arguments", "data", "main", "why it failed"]


def test_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    said = ["fetch-byte 800", "gateway-byte 400", "fetch-data 2800", "gateway-data 8400", "fetch-data 2700", "fetch-data 9000",
            "gateway-rss 12000", "a remark"]

    @contextlib.contextmanager
    def run(*_: Any, **__: Any) -> Iterator[Iterator[str]]:
        yield iter(said)

    monkeypatch.setattr(board, "run", run)
    gateway, fetch = cells.count(tmp_path, "file", "down", "bquic", "off", size=1000)
    assert (gateway["what"], gateway["instructions_per_byte"], gateway["rss_kib"]) == ("gateway serving a file", 1000.0, 12000)
    assert (fetch["what"], fetch["instructions_per_byte"], fetch["handshake_instructions"]) == ("fetch", 250.0, 100000)


@pytest.mark.parametrize("end, code", [(KeyboardInterrupt(), 130), (namespaces.Failed("the board died"), "router: the board died"),
                                       (board.CannotRun("no QEMU"), 77)])
def test_an_end_is_no_traceback(end: BaseException, code: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any) -> None:
        raise end

    monkeypatch.setattr(router, "run", run)
    monkeypatch.setattr(sys, "argv", ["router", "--bquic", "a binary"])
    with pytest.raises(SystemExit) as ended:
        command(router.main)
    assert ended.value.code == code


def test_one_row_about_the_same() -> None:
    def row(step: str, per_byte: float, **more: Any) -> dict[str, Any]:
        return {"what": "relay", "direction": "down", "profile": "bquic", "offload": "off", "step": step,
                "instructions_per_byte": per_byte, "rss_kib": 1, **more}

    rows = router.merge([row("today", 400.0), row("runtime", 270.0)], [row("runtime", 250.0)])
    assert [r["instructions_per_byte"] for r in rows] == [400.0, 250.0]
    report = [line.split() for line in router.report(rows).splitlines()]
    assert "relay, down bquic off 400 250".split() in report
    assert "AR9344 560 4.5 to 7.2 7.2 to 11.5".split() in report  # 560 MHz * 0.5 * 0.8 * 8 / 400
