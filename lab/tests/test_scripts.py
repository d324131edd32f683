# SPDX-License-Identifier: Apache-2.0
"""What measurements need is installed, also on a machine that has nothing yet; what scripts/test says is true, and it leaves nothing running."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import tempfile
import threading

import pytest

from helpers import of_session
from lab import ROOT, measure, medium, namespaces
from lab.namespaces import wait_until

# Programs that experiments run, and Debian's packages of them, beside those of every system.
PROGRAMS = {
    "chromium": "chromium", "curl": "curl", "dropbear": "dropbear-bin", "ethtool": "ethtool", "firefox-esr": "firefox-esr", "git": "git",
    "nft": "nftables", "ping": "iputils-ping", "pip": "python3-pip", "pytest": "python3-pytest", "socat": "socat", "ssh": "openssh-client",
    "sysctl": "procps", "tc": "iproute2", "tcpdump": "tcpdump", "venv": "python3-venv", "wget": "wget",
}


@pytest.mark.parametrize("group, sources", [
    ("demo", ["lab/measure.py", "lab/namespaces.py", "lab/servers.py", "lab/topology.py"]),
    ("bench", ["lab/*.py", "lab/experiments/starved.py", "package/wifirr-sched/test/bench.py", "package/wifirr-sched/test/test_faults.py"]),
    ("browsers", ["lab/flows/*.py", "lab/experiments/browsers.py", "lab/chromium.py"]),
])
def test_what_experiments_run_is_installed(group: str, sources: list[str], tmp_path: pathlib.Path) -> None:
    """On a machine that has nothing yet, install-deps asks for each program's package."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".cache/venv").mkdir(parents=True)
    for name in ("install-deps", "tool-path", "requirements.txt"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    shutil.copy(ROOT / "scripts/requirements.txt", tmp_path / ".cache/venv")
    for name, text in (("dpkg-query", "exit 1"), ("apt-get", "exit 0"), ("sudo", 'exec "$@"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    said = subprocess.run([tmp_path / "scripts/install-deps", group], env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
                          capture_output=True, text=True, check=True).stdout
    asked = set(said.partition("Debian packages:")[2].partition("\n")[0].split())
    text = "".join(path.read_text() for source in sources for path in ROOT.glob(source))
    text += '"venv"' * ("python=yes" in re.findall(rf"^\t{group}\).*", (ROOT / "scripts/install-deps").read_text(), re.M)[0])
    wanted = {package for name, package in PROGRAMS.items() if re.search(rf'"{name}"|\b{name} -|^import {name}$', text, re.M)}
    assert len(wanted) > 3 and not sorted(wanted - asked)


@pytest.mark.parametrize("experiment, modules", [("browsers", "aioquic, cryptography"), ("why", "matplotlib, sklearn")])
def test_bench_runs_with_a_python_that_has_what_is_imported(experiment: str, modules: str, tmp_path: pathlib.Path) -> None:
    for directory in ("scripts", "lab/experiments"):
        (tmp_path / directory).mkdir(parents=True)
    for name in ("bench", "tool-path"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    (tmp_path / ".cache").symlink_to(ROOT / ".cache")
    (tmp_path / f"lab/experiments/{experiment}.py").write_text(f"import {modules}\n")
    (tmp_path / "lab/report.py").touch()
    done = subprocess.run([tmp_path / "scripts/bench", experiment], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_ends_bench_ends_what_it_runs(number: signal.Signals, tmp_path: pathlib.Path) -> None:
    """Of make bench-full that was told to end, an experiment went on for hours, before all other work of the machine."""
    for directory in ("scripts", "lab/experiments"):
        (tmp_path / directory).mkdir(parents=True)
    for name in ("bench", "tool-path"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    begun = tmp_path / "begun"
    (tmp_path / "lab/experiments/why.py").write_text(f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(600)\n")
    process = subprocess.Popen([tmp_path / "scripts/bench", "why"], stderr=subprocess.DEVNULL, start_new_session=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))

    try:
        wait_until("the experiment", begun.exists, 60)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        assert process.wait(60) == 128 + number and not of_session(process.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def suite(directory: pathlib.Path, part: str) -> pathlib.Path:
    """scripts/test with parts that do what PART says."""
    (directory / "scripts").mkdir()
    (directory / "package/wifirr-sched/src").mkdir(parents=True)
    (directory / "package/wifirr-sched/src/Makefile").write_text("all:\n")
    shutil.copy(ROOT / "scripts/test", directory / "scripts")
    scripts = {name: f"#!/bin/sh\n#\n# It holds.\n{part}\n" for name in re.findall(r"^[\w-]+", subprocess.run(
        [ROOT / "scripts/test", "--list"], capture_output=True, text=True, check=True).stdout, re.M)}
    for name, text in {**{f"test-{name}": text for name, text in scripts.items()}, "build-bquic": "#!/bin/sh\n", "tool-path": '#!/bin/sh\necho "$PATH"\n'}.items():
        (directory / "scripts" / name).write_text(text)
        (directory / "scripts" / name).chmod(0o755)
    return directory / "scripts/test"


# A part that says who it is.
WAITS = "echo $$ >$0.pid; exec sleep 600"


def part_pids(directory: pathlib.Path) -> list[int]:
    """The processes of all parts that have begun, of a suite of WAITS."""
    return [int(text) for file in (directory / "scripts").glob("*.pid") if (text := file.read_text())]


def test_ctrl_c_ends_all_parts(tmp_path: pathlib.Path) -> None:
    """A terminal sends SIGINT to all processes of its foreground group."""
    test = suite(tmp_path, WAITS)
    process = subprocess.Popen([test], stdout=subprocess.DEVNULL, start_new_session=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a shell's background jobs ignore it

    try:
        wait_until("five parts", lambda: len(part_pids(tmp_path)) == 5, 60)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
        wait_until("their end", lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in part_pids(tmp_path)), 60)
    finally:
        for pid in part_pids(tmp_path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_no_part_begins_after_ctrl_c(tmp_path: pathlib.Path) -> None:
    """The parts may end before the suite itself has seen its signal. Here, it never does."""
    test = suite(tmp_path, WAITS)
    process = subprocess.Popen([test], stdout=subprocess.DEVNULL, start_new_session=True)

    try:
        wait_until("five parts", lambda: len(part_pids(tmp_path)) == 5, 60)
        for pid in part_pids(tmp_path):
            os.kill(pid, signal.SIGINT)
        assert process.wait(60) == 1 and len(part_pids(tmp_path)) == 5
    finally:
        for pid in part_pids(tmp_path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("names", [[], ["vm"]])
def test_the_suite_ends_by_sigterm_as_by_ctrl_c(names: list[str], tmp_path: pathlib.Path) -> None:
    """Whoever cancels a job ends only the first process. The parts went on for twenty minutes, beside the next job's."""
    test = suite(tmp_path, "sleep 600; true")
    files = tmp_path / "files"
    files.mkdir()
    process = subprocess.Popen([test, *names], stdout=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(files)}, start_new_session=True)

    try:
        wait_until("the parts", lambda: of_session(process.pid).count("sleep 600") == (len(names) or 5), 60)
        process.terminate()
        assert process.wait(60) == 143
        wait_until("the parts' end", lambda: not of_session(process.pid), 60)
        assert not list(files.iterdir())
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_the_suite_tells_what_it_is_at(tmp_path: pathlib.Path) -> None:
    """For the first minutes, no part has ended."""
    test = suite(tmp_path, 'while [ ! -e "$0.over" ]; do sleep 0.1; done')

    def end() -> None:
        for part in list((tmp_path / "scripts").glob("test-*")):
            part.with_name(f"{part.name}.over").touch()

    process = subprocess.Popen([test], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    later = threading.Timer(60, end)
    later.start()
    said: list[str] = []
    while said[-1:] != [""] and sum(line.startswith("begins ") for line in said) < 5:
        said.append(process.stdout.readline())
    later.cancel()
    end()
    assert len(said) == 6 and not [line for line in said if line.startswith("passed")], said
    process.communicate()
    assert process.returncode == 0


def test_what_only_computes_takes_what_others_leave(tmp_path: pathlib.Path) -> None:
    """Beside four parts that mostly wait, processors were idle. What is in real time must not wait for the fifth."""
    test = suite(tmp_path, 'nice >"$0.new" && mv "$0.new" "$0.nice"; exec sleep 600')
    process = subprocess.Popen([test], stdout=subprocess.DEVNULL, start_new_session=True)

    def nice() -> dict[str, int]:
        return {path.stem: int(path.read_text()) for path in (tmp_path / "scripts").glob("*.nice")}

    try:
        wait_until("five parts", lambda: len(nice()) == 5, 60)
        own = os.nice(0)
        assert nice().pop("test-packages") == min(19, own + 10) and sorted(nice().values())[:4] == 4 * [own]
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.parametrize("script", ["test", "test-vm", "test-vm-bridge", "test-cross", "test-quic-go", "../luci-app-bquic/test/run", "build-bquic", "install-deps",
                                    "../package/bquic-gateway/quic-go/prepare"])
def test_ctrl_c_leaves_no_files(script: str, tmp_path: pathlib.Path) -> None:
    """Debian's sh runs the trap for its end only where it does not end by the signal."""
    files = tmp_path / "files"
    files.mkdir()
    text = (ROOT / "scripts" / script).read_text()
    # What it makes, and its traps; everything that it runs is a wait for Ctrl-C.
    made = "\n".join(re.findall(r"^\w+=\$\(mktemp.*?\)|^trap .*", text, re.M))
    waits = tmp_path / "waits"
    waits.write_text(f"{made}\ngateway=\nsh -c 'touch {tmp_path}/waiting; exec sleep 600'\n")
    process = subprocess.Popen(["sh", waits], env={**os.environ, "TMPDIR": str(files)}, start_new_session=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    wait_until("the script", (tmp_path / "waiting").exists, 60)
    assert list(files.iterdir())
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) == 130 and not list(files.iterdir())


@pytest.mark.parametrize("part, code", [("exit 0", 0), ("exit 77", 0), ("exit 1", 1), ('kill -9 "$PPID"', 1)])
def test_a_part_counts_only_if_its_result_is_known(part: str, code: int, tmp_path: pathlib.Path) -> None:
    """What ran the part may have been killed, for lack of memory."""
    assert subprocess.run([suite(tmp_path, part)], capture_output=True, start_new_session=True).returncode == code


def test_parts_read_english(tmp_path: pathlib.Path) -> None:
    """They look for words of readelf's, which has a Catalan translation, and of the C library's."""
    test = suite(tmp_path, 'ls "$0/none" 2>&1 | grep -q "Not a directory"')
    done = subprocess.run([test, "docs"], env={**stub(tmp_path), "LANG": "C.UTF-8", "LANGUAGE": "ca"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_lint_of_nothing_is_no_lint(tmp_path: pathlib.Path) -> None:
    """git refuses a repository of another user: where a container's root tests what somebody else has cloned, it had nothing to object to."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "package/bquic-gateway/quic-go").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/test-lint", tmp_path / "scripts")
    stub(tmp_path / "package/bquic-gateway/quic-go", prepare="")
    environment = stub(tmp_path, gofmt="", git="echo fatal: detected dubious ownership >&2; exit 128")
    done = subprocess.run([tmp_path / "scripts/test-lint"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "dubious ownership" in done.stderr


def dependencies(directory: pathlib.Path) -> dict[str, str]:
    """install-deps for a machine that has all packages but no new Go, which it can download; its environment."""
    (directory / "scripts").mkdir()
    for name in ("install-deps", "tool-path"):
        shutil.copy(ROOT / "scripts" / name, directory / "scripts")
    environment = stub(directory, dpkg_query="echo installed", dpkg="echo amd64", go="""
case $1 in
version) echo go version go1.19 linux/amd64 ;;
mod) mkdir -p "$GOMODCACHE/$3/bin" "$GOMODCACHE/$3/pkg/tool/x" && touch "$GOMODCACHE/$3/bin/go" "$GOMODCACHE/$3/pkg/tool/x/vet" ;;
esac""")
    (directory / "files").mkdir()
    return {**environment, "XDG_CACHE_HOME": str(directory / "cache"), "TMPDIR": str(directory / "files")}


@pytest.mark.parametrize("target", ["demo", "test", "test-lab", "bench", "bench-browsers"])
def test_who_is_not_root_installs_nothing(target: str) -> None:
    """He was told so after Go and a hundred packages."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        (directory / "scripts").mkdir()
        for file in ("Makefile", "version.mk"):
            shutil.copy(ROOT / file, directory)
        stub(directory / "scripts", install_deps="echo installed; exit 1", tool_path='echo "$PATH"')
        directory.chmod(0o755)
        done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", "make", "-C", directory, target], capture_output=True, text=True)
    assert done.returncode and f"must be root, for network namespaces: sudo make {target}\n" in done.stderr and "installed" not in done.stdout


def test_lint_needs_no_root() -> None:
    """It installed a hundred packages, and then said that it must be root for network namespaces, of which it makes none."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        (directory / "scripts").mkdir()
        for file in ("Makefile", "version.mk", "scripts/test"):
            shutil.copy(ROOT / file, directory / file)
        stub(directory / "scripts", install_deps="", tool_path='echo "$PATH"', test_lint="echo linted")
        directory.chmod(0o755)
        done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", "make", "-C", directory, "lint"], capture_output=True, text=True)
    assert done.returncode == 0 and "linted" in done.stdout, done.stderr


def test_half_a_go_is_none(tmp_path: pathlib.Path) -> None:
    """Where the disk was full, or Ctrl-C came, half of Go counted as installed, and no build worked any more."""
    environment = dependencies(tmp_path)
    stub(tmp_path, mv='mkdir -p "$2" && cp -r "$1/bin" "$2" && echo no space left on device >&2; exit 1')

    def installed() -> str:
        return subprocess.run([tmp_path / "scripts/install-deps", "build"], env=environment, capture_output=True, text=True).stdout

    assert "install-deps: Go " in installed()
    assert "install-deps: Go " in installed()  # it tries again
    (tmp_path / "mv").unlink()
    assert "install-deps: Go " in installed() and not installed()
    assert [path.name for path in (tmp_path / "cache/bquic").glob("go-*/*")] and not list((tmp_path / "files").iterdir())


def test_what_apt_is_at_is_told(tmp_path: pathlib.Path) -> None:
    """Nothing was for minutes."""
    environment = dependencies(tmp_path)
    over = tmp_path / "over"
    stub(tmp_path, dpkg_query="exit 1", apt_get=f"echo Unpacking something; while [ ! -e {over} ]; do sleep 0.1; done", sudo='exec "$@"')
    process = subprocess.Popen([tmp_path / "scripts/install-deps", "build"], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        assert "Debian packages" in process.stdout.readline()
        assert select.select([process.stdout], [], [], 60)[0] and process.stdout.readline() == "Unpacking something\n"
    finally:
        over.touch()
        process.communicate()
    assert process.returncode == 0 and not list((tmp_path / "files").iterdir())


def test_a_program_that_is_built_anew_can_be_started_meanwhile(tmp_path: pathlib.Path) -> None:
    """Four parts of the suite build the same one. Where /tmp is another file system, go writes it in place: "text file busy"."""
    for directory in ("scripts", "package/bquic-gateway/quic-go", "package/bquic-gateway/runtime", "package/bquic-gateway/src"):
        (tmp_path / directory).mkdir(parents=True)
    shutil.copy(ROOT / "scripts/build-bquic", tmp_path / "scripts")
    shutil.copy(ROOT / "version.mk", tmp_path)
    for directory in ("quic-go", "runtime"):
        stub(tmp_path / "package/bquic-gateway" / directory, prepare="")
    environment = stub(tmp_path, git="exit 1", go=f"""
while [ "$1" != -o ]; do shift; done
echo half >"$2"
touch {tmp_path}/half
while [ ! -e {tmp_path}/over ]; do sleep 0.1; done
echo whole >"$2"
""")
    program = tmp_path / "bquic"
    program.write_text("whole, and old")
    process = subprocess.Popen([tmp_path / "scripts/build-bquic", program], env=environment)
    try:
        wait_until("half of the program", (tmp_path / "half").exists, 60)
        assert program.read_text() == "whole, and old"
    finally:
        (tmp_path / "over").touch()
        process.wait()
    assert program.read_text() == "whole\n" and not [path for path in tmp_path.iterdir() if ".new" in path.name]


def test_rows_do_not_make_another_program(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program named the commit, and whether anything was changed, so make bench-NAME began anew after an interruption: its own rows had made another program."""
    for directory in ("scripts", "results", "bin", "package/bquic-gateway/quic-go", "package/bquic-gateway/runtime", "package/bquic-gateway/src"):
        (tmp_path / directory).mkdir(parents=True)
    shutil.copy(ROOT / "scripts/build-bquic", tmp_path / "scripts")
    shutil.copy(ROOT / "version.mk", tmp_path)
    for directory in ("quic-go", "runtime"):
        stub(tmp_path / "package/bquic-gateway" / directory, prepare="")
    environment = stub(tmp_path / "bin", go='while [ "$1" != -ldflags ]; do shift; done; echo "$2" >"$4"')
    monkeypatch.setattr(measure, "ROOT", tmp_path)

    def git(*command: str) -> None:
        subprocess.run(["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=b", *command], check=True, capture_output=True)

    def built() -> tuple[str, str]:
        """What the program says, and what a row does."""
        subprocess.run([tmp_path / "scripts/build-bquic", tmp_path / "program"], env=environment, check=True)
        return (tmp_path / "program").read_text(), measure.commit()

    rows, source = tmp_path / "results/rows.json", tmp_path / "package/bquic-gateway/src/main.go"
    for file in (rows, source):
        file.touch()
    git("init", "-q")
    git("add", "results", "package", "scripts", "version.mk")
    git("commit", "-q", "-m", "first")
    before = built()
    rows.write_text("[]")
    assert built() == before and "changed" not in before[0] and "+" not in before[1]
    git("commit", "-q", "-a", "-m", "rows")
    assert built()[0] == before[0]
    source.write_text("package main")
    program, row = built()
    assert "changed" in program and row.endswith("+")


def test_a_daemon_that_runs_can_be_built_anew() -> None:
    """make demo beside an experiment in which wifirrd runs: "Text file busy"."""
    program = ROOT / "build/wifirrd"
    shutil.copy("/bin/sleep", program)
    process = subprocess.Popen([program, "600"])
    try:
        done = subprocess.run(["make", "-s", "-C", ROOT, "build"], capture_output=True, text=True)
    finally:
        process.kill()
        process.wait()
    assert done.returncode == 0 and program.read_bytes() == (ROOT / "package/wifirr-sched/src/wifirrd").read_bytes(), done.stderr


def test_a_program_that_runs_can_be_built_anew(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parts of the suite run the same program under load."""
    program = tmp_path / "program"
    shutil.copy("/bin/sleep", program)
    monkeypatch.setenv("PATH", stub(tmp_path, go='while [ "$1" != -o ]; do shift; done; echo new >"$2"')["PATH"])
    process = subprocess.Popen([program, "600"])
    try:
        medium.build_go(program, "./test/stress")
        assert program.read_text() == "new\n"
        monkeypatch.setenv("PATH", stub(tmp_path, go="exit 1")["PATH"])
        with pytest.raises(namespaces.Failed):
            medium.build_go(program, "./test/stress")
    finally:
        process.kill()
        process.wait()
    assert program.read_text() == "new\n" and not [path for path in tmp_path.iterdir() if ".new" in path.name]


def stub(directory: pathlib.Path, **programs: str) -> dict[str, str]:
    """An environment of a German machine with these programs."""
    for name, text in programs.items():
        (directory / name.replace("_", "-")).write_text(f"#!/bin/sh\n{text}\n")
        (directory / name.replace("_", "-")).chmod(0o755)
    return {**{name: value for name, value in os.environ.items() if not name.startswith("LC_")}, "LANG": "de_DE.UTF-8", "PATH": f"{directory}:{os.environ['PATH']}"}


ENGLISH = '[ "${LC_ALL:-$LANG}" = C ]'


def test_the_virtual_machine_finds_its_kernel_in_any_language(tmp_path: pathlib.Path) -> None:
    (tmp_path / "lab/vm").mkdir(parents=True)
    for name in ("run", "init"):
        shutil.copy(ROOT / "lab/vm" / name, tmp_path / "lab/vm")
    environment = stub(tmp_path, apt_get="echo nothing to be had >&2; exit 100", apt_cache=(
        f"{ENGLISH} && echo '  Depends: linux-image-6.1.0-1-amd64' || echo '  Hängt ab von: linux-image-6.1.0-1-amd64'"))
    done = subprocess.run([tmp_path / "lab/vm/run", "/bin/true"], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (77, "lab/vm/run: no kernel 6.1: nothing to be had\n")


def test_half_a_kernel_is_none(tmp_path: pathlib.Path) -> None:
    """Where the disk was full, the tests in the virtual machine were skipped from then on."""
    (tmp_path / "lab/vm").mkdir(parents=True)
    for name in ("run", "init"):
        shutil.copy(ROOT / "lab/vm" / name, tmp_path / "lab/vm")
    asked = tmp_path / "asked"
    environment = stub(
        tmp_path, apt_cache="echo '  Depends: linux-image-6.1.0-1-amd64'", depmod="", apt_get=f"echo >>{asked}; touch linux-image.deb",
        dpkg_deb='mkdir -p "$3/boot" "$3/lib/modules/6.1.0-1-amd64" "$3/usr/src/linux-headers-6.1.0-1-amd64" && touch "$3/usr/src/linux-headers-6.1.0-1-amd64/Makefile"',
        mv='mkdir -p "$2" && cp -r "$1/usr" "$2" && echo no space left on device >&2; exit 1')
    for times in (1, 2):
        assert subprocess.run([tmp_path / "lab/vm/run", "/bin/true"], env=environment, capture_output=True).returncode == 77
        assert asked.read_text().count("\n") == times


def test_what_qemu_cannot_run_is_skipped_in_any_language(tmp_path: pathlib.Path) -> None:
    for directory in ("scripts", "package/bquic-gateway/quic-go", "package/bquic-gateway/src", "lab/vm"):
        (tmp_path / directory).mkdir(parents=True)
    shutil.copy(ROOT / "scripts/test-vm", tmp_path / "scripts")
    stub(tmp_path / "package/bquic-gateway/quic-go", prepare="")
    stub(tmp_path / "lab/vm", run="exit 77")
    environment = stub(tmp_path, go="", make=f"{ENGLISH} && echo 'make: *** [x] Error 77' || echo 'make: *** [x] Fehler 77'; exit 2")
    assert subprocess.run([tmp_path / "scripts/test-vm"], env=environment, capture_output=True).returncode == 77


@pytest.mark.parametrize("name", ["abuse", "cpu", "fleet", "load", "soak"])
def test_who_asks_for_a_report_starts_no_attack(name: str, tmp_path: pathlib.Path) -> None:
    """Nor who asks for help, or mistypes an option: all of that measured for minutes, and replaced the results."""
    experiment = ROOT / f"lab/experiments/{name}.py"
    environment = stub(tmp_path, go="echo built >&2; exit 1")  # without a build, nothing can be measured

    def said(option: str) -> tuple[int, str]:
        done = subprocess.run(["python3", experiment, option], env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout

    code, told = said("--report")
    assert code == 0 and len(told.splitlines()) > 1 and said("--help")[0] == 0 and said("--frob")[0] == 2


def test_a_build_that_fails_is_told(tmp_path: pathlib.Path) -> None:
    """Without a network, what the compiler said was above a traceback."""
    environment = stub(tmp_path, go="echo no such module >&2; exit 1")
    done = subprocess.run(["python3", ROOT / "lab/experiments/load.py", "--quick"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "no such module" in done.stderr and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["flows", "sessions"])
def test_tables_of_browsers_flows_need_no_browser(name: str) -> None:
    """With Debian's Python, which has the libraries that draw and learn."""
    done = subprocess.run(["/usr/bin/python3", ROOT / f"lab/experiments/{name}.py", "--report"], capture_output=True, text=True)
    assert done.returncode == 0 and len(done.stdout.splitlines()) > 3, done.stderr
