# SPDX-License-Identifier: Apache-2.0
"""The documents hold: links lead somewhere, words are English or known, and commands do what is shown."""

import ast
import datetime
import json
import os
import pathlib
import re
import shlex
import socket
import subprocess
from collections.abc import Iterator

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
BQUIC = REPO / "build/bquic"
WIFIRRD = REPO / "package/wifirr-sched/src/wifirrd"
WORDS = pathlib.Path(__file__).with_name("words.txt")
PAGES = [REPO / "README.md", REPO / "CHANGELOG.md", *sorted(REPO.glob("docs/*.md")), *sorted(REPO.glob("lab/*/README.md"))]

BLOCK = re.compile(r"^([ \t]*)```\w*\n(.*?)^[ \t]*```$", re.M | re.S)
page = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(REPO)))


def output(*command: str | pathlib.Path, input: str | None = None, cwd: pathlib.Path | None = None) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, input=input, cwd=cwd).stdout


def prose(text: str) -> str:
    """A page without code, names of files, addresses, comments and whatever has a digit in it; without 's."""
    text = re.sub(r"<!--.*?-->", "", BLOCK.sub("", text), flags=re.S)
    text = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", " ", text, flags=re.S)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"https?://\S+|[\w./-]+\.(?:c|go|json|md|mk|py|svg|yml)\b|\\\w+|\b\w*\d\w*", "", text)
    return text.replace("'s", "")


def anchors(text: str) -> set[str]:
    """Of a page's headings, as they are made by those who show it."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.*)$", BLOCK.sub("", text), re.M):
        name = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
        one, n = name, 0
        while one in found:
            n += 1
            one = f"{name}-{n}"
        found.add(one)
    return found


@page
def test_links(page: pathlib.Path) -> None:
    """Of links within the repository; what is elsewhere is not asked for."""
    text = re.sub(r"`[^`\n]*`", "", BLOCK.sub("", page.read_text()))
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            broken.append(target)
        elif anchor and anchor not in anchors(file.read_text()):
            broken.append(target)
    assert not broken


@page
def test_spelling(page: pathlib.Path) -> None:
    """British English. What aspell does not know, and is right, belongs in words.txt beside this file."""
    unknown = output("aspell", "--lang=en_GB", "--encoding=utf-8", f"--personal={WORDS}", "list", input=prose(page.read_text()))
    assert not sorted(set(unknown.split()))


def test_word_list_is_sorted() -> None:
    words = WORDS.read_text().splitlines()[1:]
    assert words == sorted(set(words))


@page
def test_named_files(page: pathlib.Path) -> None:
    """A path of this repository that is named in code exists."""
    tops = "|".join(re.escape(p.name) for p in REPO.iterdir() if p.is_dir() and p.name not in ("build", "dist") and not p.name.startswith("."))
    missing = []
    for path in re.findall(rf"`((?:{tops})/[a-z\d./_-]+)[` ]", page.read_text()):
        made = "src/quic-go" in path  # by quic-go/prepare
        if not made and not (REPO / path.rstrip("./")).exists():
            missing.append(path)
    assert not missing


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command in a page's blocks and in its inline code, if the program is one of ours, or make."""
    lines: list[str] = []
    for _, block in BLOCK.findall(text):
        shown = block.splitlines()
        prompts = [line for line in shown if line.startswith("# bquic")]  # the others are what it prints
        lines += prompts or shown
    lines += re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))
    for line in lines:
        for part in re.split(r"&&|;|\|", line):
            try:
                words = shlex.split(part.strip().removeprefix("# "), comments=True)
            except ValueError:  # a quotation mark of prose
                continue
            if words and pathlib.PurePath(words[0]).name in ("bquic", "wifirrd", "make"):
                yield words


def targets() -> set[str]:
    """Of the Makefile, with those that a pattern stands for."""
    fixed = set(re.findall(r"^([a-z-]+):", (REPO / "Makefile").read_text(), re.M))
    fixed |= {f"test-{name}" for name in re.findall(r"^[\w-]+", output(REPO / "scripts/test", "--list"), re.M)}
    return fixed | {f"bench-{name}" for name in output(REPO / "scripts/bench", "--list").split()} | {"test-vm-bridge"}


HELP: dict[str, str] = {}


def flags(*command: str | pathlib.Path) -> set[str]:
    key = " ".join(map(str, command))
    if key not in HELP:
        HELP[key] = output(*command)
    return set(re.findall(r"--([a-z][a-z-]*)", HELP[key]))


@page
def test_commands_exist(page: pathlib.Path) -> None:
    """Subcommands, options and targets that a page names are there."""
    bquic = set(re.findall(r"^  bquic (\w+)", output(BQUIC, "help"), re.M)) | {"help", "--help", "--version"}
    make = targets()
    wrong = []
    for words in commands(page.read_text()):
        given = {w.split("=")[0].removeprefix("--") for w in words if re.match(r"--[a-z]", w)}
        program = pathlib.PurePath(words[0]).name
        if program == "make":
            if words[1:2] == ["-C"]:
                continue
            wrong += [f"make {w}" for w in words[1:] if re.fullmatch(r"[a-z][a-z-]*", w) and w not in make]
        elif program == "bquic" and len(words) > 1 and words[1] not in bquic:
            wrong.append(f"bquic {words[1]}")
        elif program == "bquic" and len(words) > 1:
            wrong += [f"bquic {words[1]} --{f}" for f in given - flags(BQUIC, "help", words[1]) - {"help", "version"}]
        elif program == "wifirrd":
            wrong += [f"wifirrd --{f}" for f in given - flags(WIFIRRD, "--help")]
    assert not wrong


@page
def test_files_can_be_fetched_again(page: pathlib.Path) -> None:
    """OpenWrt's wget refuses to overwrite a file that -O does not name; GNU's writes beside it, and the next command reads the old one."""
    fetched = [line for _, block in BLOCK.findall(page.read_text()) for line in block.splitlines() if "wget " in line]
    assert not [line for line in fetched if not re.search(r"wget -\w*O", line)]


def configurations() -> list[tuple[str, str]]:
    found = []
    for one in PAGES:
        for indent, block in BLOCK.findall(one.read_text()):
            block = re.sub(f"^{indent}", "", block, flags=re.M)
            if re.match(r"config (gateway|site|peer|relay|upstream|profile)\b", block):
                found.append((one.name, block))
    return found


# What a relay needs beside the gateways of an example.
RELAY = "config relay 'relay'\n\toption token 'choose-a-long-secret'\n\tlist pin 'sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='\n"


@pytest.mark.parametrize("name, block", configurations(), ids=lambda value: value.split("\n")[0])
def test_configurations(name: str, block: str, tmp_path: pathlib.Path) -> None:
    """An example of a configuration has no mistake."""
    if "config upstream" in block:
        block += RELAY
    file = tmp_path / "bquic"
    file.write_text(block.replace("'/www'", f"'{tmp_path}'"))
    assert "good: " in output(BQUIC, "check", "--config", file)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The first gateway of docs/gateway.md, on a loopback of its own, with 10 MB to load: its pin and socket."""
    root = tmp_path_factory.mktemp("gateway")
    (root / "10MB").write_bytes(os.urandom(10_000_000))
    conf = next(block for name, block in configurations() if name == "gateway.md")
    conf = conf.replace("'/www'", f"'{root}'").replace("':8443'", "'127.0.0.1:8443'")
    conf = conf.replace("\noption", "\n\toption").replace("config site", f"\toption state_dir '{root}/state'\n\toption status_socket '{root}/sock'\n\nconfig site", 1)
    (root / "bquic").write_text(conf)
    (root / "state").mkdir()
    (root / "qlog").mkdir()
    daemon = subprocess.Popen([BQUIC, "gateway", "--config", root / "bquic"], env={**os.environ, "QLOGDIR": str(root / "qlog")}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = ""
    while "gateway ready" not in said:
        line = daemon.stdout.readline() if daemon.stdout else ""
        assert line, said
        said += line
    try:
        yield {"log": said, "socket": str(root / "sock"), "pin": re.findall(r'pin="?([^" ]+)', said)[0], "root": str(root)}
    finally:
        daemon.terminate()
        daemon.wait()


def shape(text: str) -> list[str]:
    """The words that a sample and a run have in common: no figures, no spaces."""
    return re.findall(r"[A-Za-z]{3,}", re.sub(r'(sha256[:/]\S+|"[^"]*"|\S*=\S*|/\S+)', "", text))


def sample(command: str) -> str:
    """What docs/gateway.md shows below a command."""
    for _, block in BLOCK.findall((REPO / "docs/gateway.md").read_text()):
        for part in re.split(r"^(?=# bquic )", block, flags=re.M):
            if part.startswith(f"# {command}"):
                return part.partition("\n")[2]
    raise AssertionError(f"docs/gateway.md does not show {command}")


def test_gateway_starts_as_shown(gateway: dict[str, str]) -> None:
    assert shape(gateway["log"].replace("time=", "\n")) == shape(sample("bquic gateway"))


def test_fetch_prints_as_shown(gateway: dict[str, str]) -> None:
    said = output(BQUIC, "fetch", "--pin", gateway["pin"], "https://127.0.0.1:8443/10MB")
    assert shape(said) == shape(sample("bquic fetch"))


def test_bench_prints_as_shown(gateway: dict[str, str]) -> None:
    said = output(BQUIC, "bench", "--pin", gateway["pin"], "https://127.0.0.1:8443/10MB")
    assert set(shape(said)) == set(shape(sample("bquic bench")))


def test_trace_prints_as_shown(gateway: dict[str, str]) -> None:
    output(BQUIC, "fetch", "--pin", gateway["pin"], "https://127.0.0.1:8443/10MB")
    recorded = max(pathlib.Path(gateway["root"], "qlog").iterdir(), key=lambda p: p.stat().st_size)
    assert recorded.name.endswith("_server.sqlog")
    said = output(BQUIC, "trace", recorded)
    for label in re.findall(r"^  (\w[\w ]*?)  ", sample("bquic trace"), re.M):
        assert f"  {label} " in said


def test_status_prints_as_shown(gateway: dict[str, str]) -> None:
    def facts(text: str) -> list[str]:
        """The lines above the tables, without the values, and without what differs between gateways: address and pin."""
        return [re.sub(r"[\d.]+( [kMG]?B)?", "#", line) for line in text.split("\n\n")[0].splitlines()[1:] if not re.match(r"  (listen|pin) ", line)]

    shown, printed = facts(sample("bquic status")), facts(output(BQUIC, "status", "--socket", gateway["socket"]))
    assert len(shown) > 5 and shown == printed


def test_status_of_a_relay_prints_as_shown(tmp_path: pathlib.Path) -> None:
    """For an answer with the values shown."""
    now = datetime.datetime.now(datetime.UTC)
    since = (now - datetime.timedelta(days=3, hours=4, minutes=1)).isoformat()
    later = (now - datetime.timedelta(hours=2, minutes=5, seconds=30)).isoformat()
    sessions = [(since, 1, 12.4, 4.1, 812006, 14)] + [(later, *rest) for rest in (
        (1, 11.8, 4.1, 96210, 3), (1, 12.1, 4.1, 81322, 2), (1, 11.9, 4.2, 77400, 4), (1, 13.0, 4.1, 60154, 1), (1, 12.6, 4.1, 58803, 0),
        (0, 5.2, 4.2, 2014, 0), (0, 4.9, 4.1, 1987, 0))]
    answer = {
        "role": "relay", "version": "0.2.0", "profile": "bquic", "uptime_s": 273700, "gateway": "10.1.2.3:8443", "state": "up", "since": since, "taking": True,
        "processor": {"takes": "all", "why": "", "carries_bps": 42e6, "path_bps": 25e6, "share": 0.5, "used": 0.09}, "refused": 3,
        "carried": {"now": 6, "total": 12480, "up_bytes": 812_000_000, "down_bytes": 31_400_000_000},
        "direct": {"now": 0, "total": 658, "up_bytes": 41_200_000, "down_bytes": 1_660_000_000},
        "proof": {"verdict": "faster", "days": 7, "overall": {"carried": 12480, "direct": 655, "complete": {"change": -0.18, "low": -0.23, "high": -0.12}}},
        "gateways": [{"address": "10.1.2.3:8443", "weight": 1000, "state": "up", "streams": 6}],
        "connections": [
            {"remote": "10.1.2.3:8443", "since": begun, "state": "up", "streams": streams, "rtt_ns": round(rtt * 1e6),
             "burst": {"packets_sent": sent, "packets_lost": lost, "min_rtt_ns": round(least * 1e6)}}
            for begun, streams, rtt, least, sent, lost in sessions
        ],
        "clients": [
            {"address": "10.20.0.11", "connections": 4, "sent": 602_000_000, "received": 21_000_000_000, "direct": 980_000_000},
            {"address": "10.20.0.12", "connections": 2, "sent": 210_000_000, "received": 10_400_000_000, "direct": 680_000_000},
        ],
    }
    path = tmp_path / "sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(30)
        asking = subprocess.Popen([BQUIC, "status", "--socket", path], stdout=subprocess.PIPE, text=True)
        with listener.accept()[0] as daemon:
            daemon.recv(100)
            daemon.sendall(json.dumps(answer).encode())
        printed = asking.communicate()[0]
    assert [line.rstrip() for line in printed.rstrip().splitlines()] == sample("bquic status --socket").rstrip().splitlines()


def test_token_prints_as_shown() -> None:
    said = output(BQUIC, "token")
    assert shape(re.sub(r"'[^']*'", "", said)) == shape(re.sub(r"'[^']*'", "", sample("bquic token")))


def test_refused_without_a_pin_with_the_pin_to_give(gateway: dict[str, str]) -> None:
    assert gateway["pin"] in output(BQUIC, "fetch", "https://127.0.0.1:8443/10MB")


def functions(path: pathlib.Path, lines: list[str]) -> Iterator[tuple[str, int]]:
    """Names and lengths of a file's functions: of Go and C as their formatters leave them."""
    if path.suffix == ".py":
        for node in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(node, ast.FunctionDef) and node.end_lineno:
                yield node.name, node.end_lineno - node.lineno + 1
        return
    name, first = "", None
    for number, line in enumerate(lines):
        if path.suffix == ".go" and (found := re.match(r"func (?:\([^)]*\) )?(\w+)", line)) and not line.endswith("}"):
            name, first = found[1], number
        elif path.suffix != ".go" and (found := re.match(r"(?:\w.*?[ *:])?(\w+) ?\((?!.*;$)", line)):
            name = found[1]
        elif path.suffix != ".go" and line == "{":
            first = number
        elif line == "}" and first is not None:
            yield name, number - first + 1
            first = None


def test_what_is_long_is_listed() -> None:
    section = (REPO / "docs/architecture.md").read_text().partition("## What is long, and why")[2].partition("\n## ")[0]
    files, _, others = section.partition("| function |")
    listed = {word.rsplit("/", 1)[-1] for word in re.findall(r"^\| `([^`]+)`", files, re.M)}
    for row in re.findall(r"^\| (`.*?) \|", others, re.M):
        listed |= {word for word in re.findall(r"`([^`]+)`", row) if not re.search(r"[/.]", word)}
    long = set()
    for file in output("git", "ls-files", "*.go", "*.c", "*.cc", "*.h", "*.py", "*.js", cwd=REPO).split():
        path = REPO / file
        if re.search(r"_test\.|/test_|\.test\.|_fuzz\.", file):
            continue
        lines = path.read_text().splitlines()
        over = {name for name, length in functions(path, lines) if length > 60}
        long |= over | ({path.name} if len(lines) > 500 else set())
    assert long == listed


def test_architecture_names_each_file_of_wifirrd() -> None:
    section = (REPO / "docs/architecture.md").read_text().partition("\n## wifirrd\n")[2].partition("\n## ")[0]
    missing = {path.name for path in (REPO / "package/wifirr-sched/src").glob("*.c")} - set(re.findall(r"\w+\.c\b", section))
    assert not missing
