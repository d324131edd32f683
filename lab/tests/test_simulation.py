# SPDX-License-Identifier: Apache-2.0
"""The simulation in lab/ns3: its medium, its determinism for a seed, its rows."""

import json
import os
import pathlib
import re
import subprocess
from typing import Any

import pytest

import dense_download
import interactive
import sensitivity
from lab import ROOT, carry, namespaces, results, simulation

SMALL: dict[str, Any] = {"stations": 6, "file_mb": 0.2}


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    simulation.build()


@pytest.mark.parametrize("stations, cwmin", [(5, 15), (10, 31), (30, 127), (30, 1023)])
def test_collisions_are_as_many_as_bianchi_says(stations: int, cwmin: int) -> None:
    seconds = 9 if cwmin > 127 else 3  # fewer collisions need more time for the same count
    done = subprocess.run([simulation.BIANCHI, f"--stations={stations}", f"--cwmin={cwmin}", f"--seconds={seconds}"],
                          capture_output=True, text=True, check=True)
    row = json.loads(done.stdout)
    assert row["simulated"] == pytest.approx(row["model"], rel=0.1)


@pytest.mark.parametrize("form", ["none", "wifirr", "wifirr-htb", "middlebox", "ap", "wifox"])
def test_a_seed_decides_every_figure(form: str) -> None:
    rows = [simulation.dense({**SMALL, "form": form, "seed": seed}) for seed in (1, 1, 2)]
    assert rows[0] == rows[1]
    assert rows[0]["worst_s"] != rows[2]["worst_s"]
    assert rows[0]["unfinished"] == 0


def test_the_demo_draws_a_crowded_cell() -> None:
    done = subprocess.run([ROOT / "lab/demo-crowd", "--quick"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    latin = subprocess.run([ROOT / "lab/demo-crowd", "--quick"], capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": "latin-1"})
    assert latin.stdout == done.stdout.replace("█", "?")
    drawn = re.findall(r"^  (scheduler off|scheduler on) +(█+) ([0-9.]+) (s|%|kbit/s)$", done.stdout, re.M)
    assert [(who, unit) for who, _, _, unit in drawn] == [
        (who, unit) for unit in ("s", "s", "%", "kbit/s") for who in ("scheduler off", "scheduler on")]
    collided, less = (float(value) for _, _, value, unit in drawn if unit == "%")
    assert less < 0.7 * collided  # it had an effect
    assert {len(bar) for _, bar, value, unit in drawn if (unit, float(value)) == ("%", collided)} == {44}
    assert max(map(len, done.stdout.splitlines())) <= 80  # columns of a terminal


def test_a_changed_rule_changes_what_is_simulated() -> None:
    changes = sensitivity.CHANGES
    assert len({(c.group, c.parameter, c.factor) for c in changes}) == len(changes)
    assert all(sensitivity.replaced(c) != (simulation.POLICY / c.file).read_text() for c in changes)
    two = next(c for c in changes if c.parameter == "K")
    cell = {**SMALL, "form": "wifirr", "file_mb": 0.5}
    assert simulation.dense(cell)["worst_s"] != simulation.dense({**cell, "active": 2})["worst_s"]
    assert simulation.dense(cell, sensitivity.build(two, "test")) == simulation.dense({**cell, "active": 2}) | {"active": 0}
    with pytest.raises(ValueError, match="0 times"):
        sensitivity.replaced(two._replace(old="no such line"))


def test_scheduling_begins_with_more_demand_than_places() -> None:
    # longer than the second for which the condition must hold
    assert simulation.dense({**SMALL, "form": "wifirr", "file_mb": 1})["engagements"] >= 1
    assert simulation.dense({**SMALL, "form": "wifirr", "file_mb": 1, "stations": 3})["engagements"] == 0


@pytest.mark.parametrize("wanted", [
    {"ap": "fifo512"}, {"phy": "11n"}, {"phy": "11n", "rts": True}, {"traffic": "browse", "upload_kbit": 100},
    {"traffic": "spdy", "upload_kbit": 100}, {"rate_control": "aarf", "upload_kbit": 20}, {"neighbour_share": 0.3}, {"interactive": "ssh"},
    {"interactive": "1000"}, {"interactive": "ssh", "interactive_alone": True}, {"interactive": "g711"}, {"interactive": "dns"},
    {"phy": "11n", "driver": "tx-only"}, {"phy": "11n", "driver": "aql", "form": "wifirr"}, {"driver": "aql"}, {"rtt_ms": 50}, {"rtt_ms": 0},
    {"phy": "11n", "windows": "10"}, {"phy": "11n", "windows": "auto", "form": "wifirr", "rts": True}, {"phy": "11n", "sibling": "bss"},
    {"sibling": "mesh", "form": "wifirr"}, {"phy": "11n", "sibling": "mesh", "windows": "auto", "form": "wifirr", "rts": True},
    {"sibling": "mesh", "interactive": "ssh"}, {"sibling": "mesh", "interactive": "g711", "interactive_alone": True}, {"sibling": "mesh", "form": "wifirr-htb"},
    {"distance": "mixed"}, {"phy": "11n", "distance": "mixed"}, {"phy": "11n", "streams": 2}, {"phy": "11n", "streams": 2, "distance": "mixed"},
    {"phy": "11ac", "windows": "auto", "form": "wifirr", "rts": True}, {"phy": "11ac", "streams": 2, "driver": "aql"}, {"phy": "11ac", "sibling": "mesh"},
])
def test_every_kind_of_run_ends_with_a_whole_row(wanted: dict[str, Any]) -> None:
    row = simulation.dense({**SMALL, **wanted})
    assert {key: row[key] for key in wanted} == wanted
    assert row["unfinished"] == 0
    assert row["upload_delivered_kbit"] > 0
    if "interactive" in wanted:
        assert 0 < row["delay_median_ms"] <= row["delay_p99_ms"]


def test_more_load_collides_more() -> None:
    light = simulation.dense({**SMALL, "upload_kbit": 20})
    heavy = simulation.dense({**SMALL, "stations": 20})
    assert light["collided_share"] < heavy["collided_share"]


def test_an_answer_that_waits_for_the_channel_leaves_nobody_dead() -> None:
    """With ns-3's 1 ms for the answer to a block-ack request, four of the six never received a byte."""
    assert simulation.dense({**SMALL, "phy": "11n", "windows": "10"})["unfinished"] == 0


def test_a_call_waits_for_nobodys_turn() -> None:
    """With a low weight for clients that take little, the 99th percentile was eight times as late as without turns."""
    crowd = {"stations": 12, "file_mb": 0.7, "interactive": "g711", "interactive_alone": True}
    without, turns = (simulation.dense({**crowd, "form": form}) for form in ("none", "wifirr"))
    assert turns["engagements"] >= 1
    assert turns["delay_p99_ms"] <= without["delay_p99_ms"]


def test_windows_make_fewer_collisions() -> None:
    crowd = {"phy": "11n", "stations": 20, "file_mb": 0.5}
    own, larger, decided = (simulation.dense({**crowd, "windows": windows}) for windows in ("off", "9", "auto"))
    assert own["window_exponent"] == 4 < decided["window_exponent"]
    assert larger["collided_share"] < own["collided_share"] / 2
    assert decided["collided_share"] < own["collided_share"]
    assert larger["worst_s"] < own["worst_s"]


def test_turns_stand_aside_for_windows() -> None:
    crowd = {"phy": "11n", "stations": 10, "file_mb": 2, "form": "wifirr"}
    assert simulation.dense(crowd)["engagements"] >= 1
    # before the first frames, no client is known to aggregate
    assert simulation.dense({**crowd, "windows": "auto"})["engagements"] == 0


def test_airtime_limits_make_weights_mean_nothing() -> None:
    """Turns gain a factor of 1.3 where the hardware queue is small."""
    crowd = {"phy": "11n", "stations": 20, "file_mb": 1, "upload_goes_on": True, "driver": "aql"}
    without, turns = (simulation.dense({**crowd, "form": form})["worst_s"] for form in ("none", "wifirr"))
    assert turns == pytest.approx(without, rel=0.1)


def test_a_faster_radio_is_faster_and_a_far_client_slower() -> None:
    cell = {"phy": "11n", "traffic": "none", "file_mb": 1}
    far, near, two, wide = (simulation.dense({**SMALL, **cell, **own}) for own in ({"distance": "mixed"}, {}, {"streams": 2}, {"phy": "11ac"}))
    assert far["worst_s"] > 2 * near["worst_s"]
    assert near["worst_s"] > 1.5 * two["worst_s"]
    assert two["worst_s"] > 1.5 * wide["worst_s"]


def test_a_mesh_neighbour_carries_a_third_of_the_clients() -> None:
    """Neither turns nor windows are for it, so it is no slower with them."""
    crowd = {"stations": 12, "file_mb": 0.7, "sibling": "mesh"}
    for phy, form in (("11g", {"form": "wifirr"}), ("11n", {"windows": "8"})):
        without, ours = (simulation.dense({**crowd, "phy": phy, **own}) for own in ({}, form))
        assert 0 < without["sibling_median_s"] <= without["sibling_worst_s"] <= without["worst_s"]
        assert without["sibling_upload_kbit"] == pytest.approx(200, rel=0.2)
        assert ours["sibling_median_s"] <= 1.05 * without["sibling_median_s"]
        assert ours["sibling_upload_kbit"] >= 0.95 * without["sibling_upload_kbit"]


@pytest.mark.parametrize("option, word", [("--form=best", "form"), ("--stations=0", "stations"), ("--upload-kbit=0", "upload-kbit"),
                                          ("--interactive-alone=true", "interactive-alone"), ("--windows=3", "windows"), ("--driver=best", "driver"),
                                          ("--rtt-ms=-1", "rtt-ms"), ("--sibling=wds", "sibling"), ("--streams=2", "streams"), ("--distance=far", "distance"),
                                          ("--phy=11ax", "phy")])
def test_a_wrong_option_is_named(option: str, word: str) -> None:
    done = subprocess.run([simulation.DENSE, option], capture_output=True, text=True)
    assert done.returncode == 2
    assert word in done.stderr and done.stderr.count("\n") == 1


def test_airtime_weights_need_todays_ap() -> None:
    with pytest.raises(namespaces.Failed, match="mac80211"):
        simulation.dense({**SMALL, "ap": "fifo512", "form": "wifirr"})


def test_rows_are_kept_and_reused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rows.json"
    first = simulation.run([SMALL], path, 1)
    again = simulation.run([SMALL, {**SMALL, "seed": 2}], path, 1)
    assert again[0] == first[0]
    assert [row["seed"] for row in results.read(path)] == [1, 2]
    old = [{**row, "digest": "of other sources"} for row in again]
    results.write(path, old, simulation.check)
    assert simulation.run([SMALL], path, 1)[0]["digest"] == simulation.digest("none")


def test_a_restart_costs_no_other_rows(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = simulation.dense(SMALL)
    made: list[int] = []

    def dense(cell: dict[str, Any]) -> dict[str, Any]:
        made.append(cell["seed"])
        return {**row, **cell}

    monkeypatch.setattr(simulation, "dense", dense)
    path = tmp_path / "rows.json"
    simulation.run([{**SMALL, "seed": seed} for seed in (1, 2, 3)], path, 1)
    assert [r["seed"] for r in simulation.run([{**SMALL, "seed": seed} for seed in (2, 2)], path, 1, restart=True)] == [2]
    assert made == [1, 2, 3, 2] and sorted(r["seed"] for r in results.read(path)) == [1, 2, 3]


def test_rows_of_earlier_sources_stay_where_a_sample_comes_out_the_same(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rows.json"
    wanted = [SMALL, {**SMALL, "form": "ap"}, {**SMALL, "traffic": "none"}, {**SMALL, "phy": "11n"}, {**SMALL, "phy": "11n", "windows": "10"},
              {**SMALL, "driver": "aql"}, {**SMALL, "sibling": "bss"}, {**SMALL, "interactive": "ssh"}, {**SMALL, "rtt_ms": 0}, {**SMALL, "seed": 2}]
    rows = simulation.run(wanted, path, 2)
    old = [{**row, "digest": "of other sources", "commit": "then"} for row in rows]
    changed = {1, 4, 5, 6, 7, 8}  # each is another kind than its form's other rows
    for k in changed:
        old[k]["worst_s"] += 1e-6
    results.write(path, old, simulation.check)
    assert carry.carry(path, 2) == {("none", "11g"): (3, 6), ("ap", "11g"): (0, 1), ("none", "11n"): (1, 2)}
    again = results.read(path)
    assert [row["digest"] != simulation.digest(row["form"]) for row in again] == [k in changed for k in range(len(again))]
    assert ["carried" not in row for row in again] == [k in changed for k in range(len(again))]
    assert {row["commit"] for row in again} == {"then"}
    # traffic "none" has no rate, so this is no difference
    assert not carry.differs(rows[2])
    for other in ([{"mbps": 1}], results.read(sensitivity.RESULTS)):
        results.write(path, other)
        with pytest.raises(ValueError, match="rows.json: not the rows of a simulation"):
            carry.carry(path, 1)


def test_rows_of_sources_with_fewer_parameters_get_the_others(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rows.json"
    row = simulation.run([SMALL], path, 1)[0]
    results.write(path, [{key: value for key, value in {**row, "digest": "of other sources"}.items() if key not in ("distance", "streams")}])
    carry.carry(path, 1)
    assert results.read(path) == [{**row, "carried": True}]


def test_a_broken_row_is_refused(tmp_path: pathlib.Path) -> None:
    row = simulation.dense(SMALL)
    for key, value in [("worst_s", None), ("seed", "1"), ("rts", 0), ("best_s", row["worst_s"] + 1)]:
        with pytest.raises(ValueError, match=key if key != "best_s" else "order"):
            results.write(tmp_path / "rows.json", [{**row, key: value}], simulation.check)
    assert not (tmp_path / "rows.json").exists()


def test_committed_rows_hold_what_the_tables_need() -> None:
    for row in results.read(dense_download.RESULTS):
        simulation.check(row)
        assert {"digest", "commit"} <= row.keys()


def test_what_is_later_is_told() -> None:
    call = {**simulation.CENTRE, **dict.fromkeys(simulation.FIGURES, 10), "phy": "11g", "file_mb": 1, "interactive": "g711",
            "interactive_alone": True, "seed": 16}

    def told(p99: float, seeds: int = 3) -> list[str]:
        line: list[str] = interactive.never_later(
            [{**call, **own, "seed": 16 + k} for k in range(seeds) for own in ({}, {"form": "wifirr", "delay_median_ms": 10.5, "delay_p99_ms": p99})])[0]
        return line[6:8]

    assert [told(p99)[1] for p99 in (10, 11, 12)] == ["met", "met", "LATER"]
    assert told(5) == ["1.05, 0.50", "met"]  # the verdict is on both
    assert (told(10, 2)[1], told(12, 1)[1]) == ("too few runs to say", "LATER")
    assert not interactive.never_later([call])


def test_the_crowds_seeds_are_in_no_other_table() -> None:
    """Medians of ssh were over twelve runs with two of the forms, and over five, the first of them, with the others."""
    row = {**simulation.CENTRE, "interactive": "ssh", "interactive_alone": True, "file_mb": interactive.FILE_MB}
    assert interactive.of([{**row, "seed": seed} for seed in (1, 16)], "ssh", True, "none") == [{**row, "seed": 1}]


def test_every_crowd_is_possible_and_has_one_without() -> None:
    rows = dense_download.crowds([16])
    alone = [{**r, "form": "wifirr"} for r in rows if r["form"] == "none"]
    for row in rows:
        assert row["phy"] != "11g" or "windows" not in row
        assert row["form"] == "none" or {k: v for k, v in row.items() if k not in ("windows", "rts")} in alone


def test_the_quick_set_has_the_crowd_of_the_readme() -> None:
    rows = [{**simulation.CENTRE, **row} for row in dense_download.wanted(True, 1)]
    for lever in ({"form": "none"}, simulation.SHIPPED["11n"]):
        assert dense_download.on_reported(rows, {**dense_download.CROWD, **lever, "file_mb": dense_download.CROWD_MB})


def test_no_seed_that_was_looked_at_is_reported() -> None:
    """Windows of 802.11n, whose time of a step was suspected on seeds 16 and 17 (docs/lab.md)."""
    for rows in (dense_download.wanted_crowds(), interactive.wanted_crowds()):
        assert {row["seed"] for row in rows if row["phy"] == "11n"} == {18, 19, 20, 21, 22}
        assert {row["seed"] for row in rows if row["phy"] == "11g"} == {16, 17, 18, 19, 20, 21, 22}
    row = {**simulation.CENTRE, "phy": "11n"}
    assert dense_download.on_reported([{**row, "seed": seed} for seed in (5, 17, 18)], {"phy": "11n"}) == [{**row, "seed": 18}]


def test_losses_are_told() -> None:
    base = {**simulation.CENTRE, **dict.fromkeys(simulation.FIGURES, 1), "worst_s": 10, "unfinished": 0}
    slow = {**base, "form": "wifirr", "worst_s": 11}
    quick = {**base, "form": "wifirr", "worst_s": 5}
    assert dense_download.losses([base, slow])
    assert not dense_download.losses([base, quick])
    rival = {**base, "form": "ap", "worst_s": 4}
    assert dense_download.losses([base, quick, rival])


def test_what_a_neighbour_loses_is_told() -> None:
    mesh = {**simulation.CENTRE, **dict.fromkeys(simulation.FIGURES, 1), **dense_download.OTHERS[1], "worst_s": 10, "unfinished": 0, "seed": 18}

    def told(**differs: float) -> list[str]:
        rows = [{**mesh, "sibling_median_s": 9.7}, {**mesh, **simulation.SHIPPED["11g"], "worst_s": 5, "sibling_median_s": 10, **differs}]
        return [line[2] for line in dense_download.losses(rows)]

    assert not told()
    assert told(sibling_median_s=10.5) == ["sibling slower than with none: 0.92"]
    assert told(own_worst_s=1.25) == ["own clients slower than with none: 0.80"]


@pytest.mark.parametrize("seconds, upload, told", [(11, 1, "slower than none: 0.91"), (5, 0.5, "upload delivered: 0.50 of none's"), (5, 1, None)])
def test_losses_with_the_defaults_are_told(seconds: float, upload: float, told: str | None) -> None:
    """Only turns were looked at, which are not what 802.11n has by default."""
    crowd = {**simulation.CENTRE, **dict.fromkeys(simulation.FIGURES, 1), **dense_download.CROWD, "file_mb": dense_download.CROWD_MB, "worst_s": 10, "unfinished": 0}
    rows = [{**crowd, "seed": 18}, {**crowd, **simulation.SHIPPED["11n"], "seed": 18, "worst_s": seconds, "upload_delivered_kbit": upload}]
    assert [line[1:] for line in dense_download.losses(rows)] == ([["defaults", told]] if told else [])
    assert f"The defaults gain {10 / seconds:.2f} in the geometric mean of 1 crowds. The least gain, {10 / seconds:.2f}, is in phy=11n." in dense_download.report(rows)


def test_what_few_runs_do_not_tell_gets_more() -> None:
    base = [{**simulation.CENTRE, **dict.fromkeys(simulation.FIGURES, 1), "worst_s": 10, "unfinished": 0, "seed": seed}
            for seed in range(1, 6)]

    def more(*times: float) -> list[tuple[str, int]]:
        ours = [{**row, "form": "wifirr", "worst_s": time} for row, time in zip(base, times)]
        return [(row["form"], row["seed"]) for row in dense_download.doubtful([*base, *ours], 5)]

    doubt = [(form, seed) for seed in range(6, dense_download.DOUBT_SEEDS + 1) for form in ("none", "wifirr")]
    assert more(9, 9, 9, 11, 11) == doubt
    assert more(9, 9, 11, 11, 11) == doubt
    assert not more(9, 9, 9, 9, 10)
    assert not more(11, 11, 11, 12, 12)


def test_nothing_is_said_where_nobody_finished() -> None:
    base = {**simulation.CENTRE, **dict.fromkeys(simulation.FIGURES, 1), "worst_s": 600, "unfinished": 3}
    assert not dense_download.gain([base, {**base, "form": "wifirr"}], dense_download.cell(base), "wifirr")
    assert dense_download.gain([base, {**base, "form": "wifirr", "unfinished": 0, "worst_s": 300}],
                               dense_download.cell(base), "wifirr") == [2]
    rows = [{**base, "form": form, "seed": seed, "worst_s": seconds, "unfinished": int(seconds == 600)}
            for form, times in (("none", (600, 600)), ("wifirr", (600, 300))) for seed, seconds in enumerate(times)]
    line = dense_download.overview(rows)[1]
    assert (line[5], line[-1]) == ("2.00", "1/2")
    crowd = [{**row, "phy": "11g", "file_mb": dense_download.CROWD_11G_MB, "seed": seed} for row, seed in zip(rows, (16, 17, 16, 17))]
    line = dense_download.levers(crowd)[1]
    assert (line[5], line[-1]) == ("2.00", "1/2")


def test_no_line_is_of_seeds_of_two_kinds() -> None:
    """A cell of the sweep is a crowd as well: its time without a scheduler was of all seeds, and that with one of the reported ones only."""
    cell = {**simulation.CENTRE, **dict.fromkeys(simulation.FIGURES, 1), "unfinished": 0, "file_mb": dense_download.CROWD_11G_MB}
    rows = [{**cell, "seed": seed, "worst_s": float(seed)} for seed in (1, 2, 16)]
    assert [(line[3], line[-1]) for line in dense_download.overview(rows)] == [("1.5 (1.0 to 2.0)", "2")]
    assert [(line[3], line[-1]) for line in dense_download.levers(rows)] == [("16.0", "1")]


def test_comments_do_not_make_other_sources() -> None:
    source = 'int a; // of "b\nchar *s = "/* no // comment */"; /* one\n two */ char c = \'"\'; // "\n'
    assert simulation.code(source) == 'int a; char *s = "/* no // comment */"; char c = \'"\';'
    assert simulation.code(source.replace("char c", "char  d")) == simulation.code(source).replace("char c", "char d")


@pytest.mark.parametrize("program", [["demo-crowd"], ["experiments/neighbour.py", "--quick"]])
def test_nothing_is_left_of_a_simulation(program: list[str], tmp_path: pathlib.Path) -> None:
    process = subprocess.Popen([ROOT / "lab" / program[0], *program[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env={**os.environ, "TMPDIR": str(tmp_path)})

    pids: list[str] = []

    def running() -> bool:
        pids[:] = subprocess.run(["pgrep", "-P", str(process.pid), "-x", "dense"], capture_output=True, text=True).stdout.split()
        return bool(pids)

    namespaces.wait_until("the simulations", running, 60)
    process.terminate()
    process.wait()
    namespaces.wait_until("the end of the simulations", lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids))
    assert not list(tmp_path.iterdir())
