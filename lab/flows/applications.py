# SPDX-License-Identifier: Apache-2.0
"""The applications that make connections: browsers with pages, a video and a poll; curl and Python for updates and files; ssh; dialogues over TLS."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import random
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from typing import Any

from lab import flows, pages
from lab.chromium import Chromium
from lab.flows import dialogues, uploads
from lab.flows.firefox import Firefox
from lab.namespaces import Failed, own_group, wait_until

DIALOGUES = 8853  # ports of servers
SSH = 2222
PLAIN = 8080
VIDEO_BYTES = 40_000_000
REPOSITORIES, WHEELS = 8, 8
# Segments of a video, as its player requests them: audio is small.
VIDEO = """
const over = arguments[0];
(async () => {
	let at = 0;
	for (let i = 0; i < %d; i++) {
		const bytes = i %% 2 ? %d : %d;
		await (await fetch('/video', {headers: {Range: `bytes=${at}-${at + bytes - 1}`}, cache: 'no-store'})).arrayBuffer();
		at += bytes;
		await new Promise((done) => setTimeout(done, %d));
	}
	over(at);
})()"""
# The repeated requests of an open page.
POLL = """
const over = arguments[0];
(async () => {
	for (let i = 0; i < %d; i++) {
		await (await fetch('/answers/' + (i * 7 + %d) %% 20, {cache: 'no-store'})).arrayBuffer();
		await new Promise((done) => setTimeout(done, %d));
	}
	over(1);
})()"""

# Some pages of a site, one after the other, each in a frame.
VISIT = """
const over = arguments[0];
(async () => {
	for (const path of %s) {
		const frame = document.createElement('iframe');
		frame.src = path;
		await new Promise((done) => { frame.onload = done; document.body.append(frame); });
		await new Promise((done) => setTimeout(done, %d));
		frame.remove();
	}
	over(1);
})()"""
# A page that gets longer as it is read: some files at a time.
SCROLL = """
const over = arguments[0];
(async () => {
	for (let i = 0; i < %d; i++) {
		await Promise.all([...Array(%d).keys()].map(async (k) => (await fetch('/packages/' + (i * 7 + k + %d) %% 60, {cache: 'no-store'})).arrayBuffer()));
		await new Promise((done) => setTimeout(done, %d));
	}
	over(1);
})()"""

Rows = list[dict[str, Any]]


def prepare(bench: flows.Bench) -> None:
    """Makes files, and starts servers other than the gateway."""
    source = random.Random("files")
    (bench.root / "empty.html").write_text('<!doctype html><title>empty</title><link rel="icon" href="data:,">')
    (bench.root / "video").write_bytes(source.randbytes(VIDEO_BYTES))
    for name, median, count in (("answers", 1500, 20), ("packages", 60_000, 60)):
        (bench.root / name).mkdir()
        for i in range(count):
            (bench.root / name / str(i)).write_bytes(source.randbytes(dialogues.size(source, median, 1.5, 100)))
    (bench.root / "packages/index").write_bytes(source.randbytes(180_000))
    for name in pages.KNOWN:
        pages.write(bench.root, name)
    repositories(bench)
    wheels(bench)
    server = bench.lab.start(
        bench.server, sys.executable, dialogues.__file__, "serve", str(DIALOGUES), str(bench.certificate), str(bench.key),
        log="dialogues.log")
    bench.lab.start(bench.server, sys.executable, "-m", "http.server", "--protocol", "HTTP/1.1", "--directory", str(bench.root), str(PLAIN),
                    log="plain.log")
    bench.lab.start(bench.server, sys.executable, uploads.__file__, str(flows.UPLOADS_PORT), log="uploads.log")
    key = bench.path("id")
    subprocess.run(["dropbearkey", "-t", "ed25519", "-f", str(bench.path("host"))], check=True, capture_output=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    # sshd admits this machine's users by the keys in their homes, so root gets another home, only in the server's namespaces.
    bench.lab.start(
        bench.server, "sh", "-c", 'mount -t tmpfs -o mode=700 none ~root && mkdir -m 700 ~root/.ssh && cp "$1" ~root/.ssh/authorized_keys && '
        'chmod 600 ~root/.ssh/authorized_keys && exec dropbear -F -E -s -r "$2" -P "$3" -p "$4"', "sh", f"{key}.pub", str(bench.path("host")),
        str(bench.path("ssh.pid")), str(SSH), log="ssh.log")
    wait_until("servers", lambda: all(f":{port} " in bench.lab.run(bench.server, "ss", "-Hltn") for port in (DIALOGUES, PLAIN, SSH, flows.UPLOADS_PORT)), 30)
    if server.poll() is not None:
        raise Failed(bench.lab.tail("dialogues.log"))


class Browser:
    """One of both browsers, with one version of HTTP."""

    def __init__(self, bench: flows.Bench, name: str, http2: bool) -> None:
        self._chromium = Chromium(bench.lab, bench.phone, bench.spki, [], http2=http2) if name == "chromium" else None
        self._firefox = None if self._chromium else Firefox(bench.lab, bench.phone, http2)

    def load(self, url: str, objects: int) -> None:
        if self._chromium:
            self._chromium.load(url, objects)
        else:
            assert self._firefox
            self._firefox.load(url)

    def visit(self, url: str) -> None:
        """Loads a page as a user does, with the cache and the connections of earlier ones."""
        if self._chromium:
            self._chromium.visit(url)
        else:
            assert self._firefox
            self._firefox.load(url)

    def run(self, url: str, script: str) -> None:
        """Opens a page of one object, and runs a script there that passes a value to arguments[0]."""
        if self._chromium:
            self._chromium.run(url, script)
        else:
            assert self._firefox
            self._firefox.load(url)
            self._firefox.run(script)

    def close(self) -> None:
        (self._chromium or self._firefox).close()  # type: ignore[union-attr]


def browsed(bench: flows.Bench, name: str, http2: bool, delays: list[int], seed: int, names: list[str]) -> Rows:
    """Pages, a video and a poll in a browser, each from a different port, with all connections closed at the end."""
    source = random.Random(f"{name} {http2} {seed}")
    browser = Browser(bench, name, http2)
    recorders = []
    try:
        for page in names:
            recorder = bench.record(delay_ms=source.choice(delays))
            url = f"https://{recorder.address}:{recorder.port}"
            recorders.append((page, recorder))
            what = page.partition(" of ")[0]
            if page in pages.KNOWN:
                browser.load(f"{url}/pages/{page.replace(' ', '-')}/", pages.objects(page))
            elif what == "video":
                browser.run(f"{url}/empty.html", VIDEO % (source.randint(4, 16), source.randint(60_000, 250_000), source.randint(300_000, 1_500_000), source.choice([0, 300])))
            elif what == "radio":
                browser.run(f"{url}/empty.html", VIDEO % (2 * source.randint(4, 12), *[source.choice([40_000, 80_000, 160_000])] * 2, source.choice([0, 100])))
            elif what == "poll":
                browser.run(f"{url}/empty.html", POLL % (source.randint(2, 25), seed, source.choice([20, 200])))
            elif what == "scroll":
                browser.run(f"{url}/empty.html", SCROLL % (source.randint(2, 6), source.randint(3, 12), source.randint(0, 50), source.choice([50, 300])))
            else:  # a visit
                there = [p for p in {"visit": pages.DRAWN, "reading": pages.MORE, "browsing": pages.MORE, "looking around": pages.STILL_MORE, "stopping by": pages.HELD_OUT}[what] if pages.size(p) < 3_000_000]
                paths = [f"/pages/{p.replace(' ', '-')}/" for p in source.sample(there, source.randint(2, 4))]
                browser.run(f"{url}/empty.html", VISIT % (json.dumps(paths), source.choice([100, 600])))
    finally:
        browser.close()
    return [row(name, page.partition(" of ")[0], http2, recorder) for page, recorder in recorders]


def row(application: str, what: str, http2: bool | None, recorder: flows.Recorder) -> dict[str, Any]:
    found = [r["flow"] for r in recorder.end()]
    if not found:
        raise Failed(f"{application}: no connection for {what}")
    return {"class": "other" if http2 is None else "http2" if http2 else "http1", "application": application, "what": what, "flows": found}


def quiet(bench: flows.Bench, *command: str, stdin: bytes | None = None) -> None:
    done = subprocess.run(own_group("ip", "netns", "exec", bench.phone, *command), input=stdin, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, timeout=120, start_new_session=True)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: {done.stderr.decode()[-500:]}")


def curled(bench: flows.Bench, what: str, delays: list[int], source: random.Random, http2: bool) -> dict[str, Any]:
    """Downloads by curl, over one connection at a time."""
    recorder = bench.record(delay_ms=source.choice(delays))
    url = f"https://{recorder.address}:{recorder.port}"
    curl = ["curl", "-sSk", "--http2" if http2 else "--http1.1", "-A", source.choice(["curl/7.88.1", "opkg", "Debian APT-HTTP/1.3 (2.6.1)", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"])]

    def files(names: list[str]) -> list[str]:
        return [part for name in names for part in ("-o", "/dev/null", f"{url}/{name}")]

    def upload(name: str, size: int) -> list[str]:
        (bench.lab.dir / name).write_bytes(source.randbytes(size))
        return ["-T", str(bench.path(name)), "-o", "/dev/null", f"https://{flows.UPLOADS}:{recorder.port}/{name}"]

    to = ["--resolve", f"{flows.UPLOADS}:{recorder.port}:{recorder.address}"]
    if what == "updates":
        quiet(bench, *curl, *files(["packages/index", *(f"packages/{source.randrange(60)}" for _ in range(source.randint(0, 12)))]))
    elif what == "file":
        quiet(bench, *curl, *files([f"packages/{source.randrange(60)}"]))
    elif what == "answers":
        quiet(bench, *curl, *files([f"answers/{source.randrange(20)}" for _ in range(source.choice([1, 1, 2, 5, 12]))]))
    elif what == "uploads":
        for _ in range(source.choice([1, 1, 2])):
            quiet(bench, *curl, *to, *(
                part for i in range(source.choice([1, 1, 3, 8])) for part in upload(f"upload{i}", dialogues.size(source, 40_000, 1.5, 100, 1_000_000))))
    elif what == "sync":  # a list, then files in both directions, each named on the command line, over one connection
        parts = [*curl, *to, "-o", "/dev/null", f"https://{flows.UPLOADS}:{recorder.port}/list"]
        for i in range(source.randint(1, 6)):
            more = upload(f"sync{i}", dialogues.size(source, 20_000, 1.3, 100, 500_000)) if source.random() < 0.5 else [
                "-o", "/dev/null", f"https://{flows.UPLOADS}:{recorder.port}/{dialogues.size(source, 20_000, 1.3, 100, 500_000)}"]
            parts += ["--next", *curl[1:], *to, *more]
        quiet(bench, *parts)
    elif what == "playlist":
        for i in range(source.randint(1, 3)):
            quiet(bench, *curl, *files([f"answers/{i}", *(f"packages/{source.randrange(60)}" for _ in range(source.randint(2, 8)))]))
    else:  # byte ranges
        at, parts = 0, []
        for _ in range(source.randint(3, 14)):
            length = source.randint(50_000, 1_500_000)
            parts += ["--next", "-sSk", "--http2" if http2 else "--http1.1", "-r", f"{at}-{at + length - 1}", "-o", "/dev/null", f"{url}/video"]
            at += length
        quiet(bench, "curl", *parts[1:])
    return row("curl", what, http2, recorder)


def plain(bench: flows.Bench, delays: list[int], source: random.Random) -> dict[str, Any]:
    """Packages without TLS, as opkg's and apk's downloaders fetch them: one connection each."""
    recorder = bench.record(PLAIN, source.choice(delays))
    for name in ["index", *(str(source.randrange(60)) for _ in range(source.randint(0, 4)))]:
        quiet(bench, "curl", "-sS", "-A", source.choice(["uclient-fetch", "Wget/1.21.3", "libfetch/2.0"]), "-o", "/dev/null", f"http://{recorder.address}:{recorder.port}/packages/{name}")
    return row("curl", "plain updates", False, recorder)


def ssh_command(bench: flows.Bench) -> list[str]:
    return ["ssh", "-q", "-i", str(bench.path("id")), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-F", "/dev/null"]


def ssh(bench: flows.Bench, what: str, delays: list[int], source: random.Random) -> dict[str, Any]:
    recorder = bench.record(SSH, source.choice(delays))
    command = [*ssh_command(bench), "-p", str(recorder.port), f"root@{recorder.address}"]
    size = dialogues.size(source, 150_000, 1.5, 200, 3_000_000)
    if what == "ssh download":
        quiet(bench, *command, f"head -c {size} /dev/zero")
    elif what == "ssh upload":
        quiet(bench, *command, "cat >/dev/null", stdin=source.randbytes(size))
    else:  # typing, with an echo and the output of commands
        shell = subprocess.Popen(own_group("ip", "netns", "exec", bench.phone, *command, "cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert shell.stdin and shell.stdout
        for _ in range(source.randint(1, 8)):
            for _ in range(source.randint(2, 20)):
                shell.stdin.write(b"x")
                shell.stdin.flush()
                shell.stdout.read(1)
                time.sleep(source.choice([0, 0.02, 0.05]))
            output = dialogues.size(source, 400, 1.2, 10, 60_000)
            shell.stdin.write(bytes(output))
            shell.stdin.flush()
            shell.stdout.read(output)
        shell.stdin.close()
        shell.wait(60)
        shell.stdout.close()
    return row("ssh", what, None, recorder)


def forward(bench: flows.Bench, delays: list[int], source: random.Random) -> dict[str, Any]:
    """Downloads from a web server through ssh."""
    recorder = bench.record(SSH, source.choice(delays))
    requests = ""
    for more in range(source.randint(0, 3), -1, -1):
        end = "" if more else "Connection: close\r\n"
        requests += f"GET /packages/{source.randrange(60)} HTTP/1.1\r\nHost: packages\r\n{end}\r\n"
    quiet(bench, *ssh_command(bench), "-p", str(recorder.port), "-W", f"127.0.0.1:{PLAIN}", f"root@{recorder.address}", stdin=requests.encode())
    return row("ssh", "ssh forward", None, recorder)


def dialogue(bench: flows.Bench, what: str, delays: list[int], source: random.Random) -> dict[str, Any]:
    recorder = bench.record(DIALOGUES, source.choice(delays))
    quiet(bench, sys.executable, dialogues.__file__, "talk", recorder.address, str(recorder.port), what, str(source.randrange(1 << 30)))
    return row("dialogue", what, None, recorder)


def repositories(bench: flows.Bench) -> None:
    """Some repositories of git, with a few commits each."""
    source = random.Random("repositories")
    environment = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(bench.lab.dir)}
    for name in ("author", "committer"):
        environment |= {f"GIT_{name.upper()}_NAME": name, f"GIT_{name.upper()}_EMAIL": f"{name}@example.org"}
    for i in range(REPOSITORIES):
        work, bare = bench.lab.dir / f"work{i}", bench.root / f"repository{i}.git"
        subprocess.run(("git", "init", "-q", str(work)), check=True, env=environment)
        for _ in range(source.randint(2, 12)):
            for _ in range(source.randint(1, 6)):
                (work / f"file{source.randrange(20)}").write_bytes(source.randbytes(dialogues.size(source, 8000, 1.5, 50, 600_000)))
            subprocess.run(("git", "-C", str(work), "add", "."), check=True, env=environment)
            subprocess.run(("git", "-C", str(work), "commit", "-q", "--allow-empty", "-m", "more"), check=True, env=environment)
        subprocess.run(("git", "clone", "-q", "--bare", str(work), str(bare)), check=True, env=environment)
        if i % 2:
            subprocess.run(("git", "-C", str(bare), "repack", "-q", "-a", "-d"), check=True, env=environment)
        else:  # each object is a file, as after many pushes
            packs = list((bare / "objects/pack").glob("*.pack"))
            for pack in packs:
                data = pack.read_bytes()
                for file in (bare / "objects/pack").glob("*"):
                    file.unlink()
                subprocess.run(("git", "-C", str(bare), "unpack-objects", "-q"), input=data, check=True, env=environment)
        subprocess.run(("git", "-C", str(bare), "update-server-info"), check=True, env=environment)


def wheels(bench: flows.Bench) -> None:
    """Packages for pip, with their index."""
    source = random.Random("wheels")
    for i in range(WHEELS):
        name, directory = f"thing{i}", bench.root / f"simple/thing{i}"
        directory.mkdir(parents=True)
        links = ""
        for version in range(source.randint(1, 40)):
            file = f"{name}-1.{version}-py3-none-any.whl"
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w") as wheel:
                wheel.writestr(f"{name}.py", source.randbytes(dialogues.size(source, 60_000, 1.5, 500, 2_000_000)).hex()[::2])
                about = f"{name}-1.{version}.dist-info"
                wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.{version}\n")
                wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
                wheel.writestr(f"{about}/RECORD", "")
            (directory / file).write_bytes(packed.getvalue())
            links += f'<a href="{file}#sha256={hashlib.sha256(packed.getvalue()).hexdigest()}">{file}</a><br>'
        (directory / "index.html").write_text(f"<!doctype html><title>{name}</title>{links}")


def pip(bench: flows.Bench, delays: list[int], source: random.Random) -> dict[str, Any]:
    """Packages for Python: for each its index and the newest version, over one connection of HTTP/1.1."""
    recorder = bench.record(delay_ms=source.choice(delays))
    quiet(bench, "/usr/bin/python3", "-m", "pip", "download", "-q", "--no-cache-dir", "--no-deps", "--disable-pip-version-check",
          "--trusted-host", f"{recorder.address}:{recorder.port}", "--index-url", f"https://{recorder.address}:{recorder.port}/simple/",
          "--dest", str(bench.path(f"pip{recorder.port}")), *(f"thing{i}" for i in source.sample(range(WHEELS), source.randint(1, 4))))
    return row("pip", "pip", None, recorder)


def clone(bench: flows.Bench, how: str, delays: list[int], source: random.Random) -> dict[str, Any]:
    """git itself, over files by HTTP or over ssh."""
    recorder = bench.record(SSH if how == "ssh" else flows.WEB, source.choice(delays))
    name, to = f"repository{source.randrange(REPOSITORIES)}.git", str(bench.path(f"clone{recorder.port}"))
    if how == "ssh":
        quiet(bench, "env", f"GIT_SSH_COMMAND={' '.join(ssh_command(bench))} -p {recorder.port}", "git", "-c", "safe.directory=*", "clone", "-q",
              f"root@{recorder.address}:{bench.root / name}", to)
    else:
        quiet(bench, "git", "-c", "http.sslVerify=false", "-c", f"http.version=HTTP/{'2' if how == '2' else '1.1'}", "clone", "-q",
              f"https://{recorder.address}:{recorder.port}/{name}", to)
    return row("git", f"git clone by {'ssh' if how == 'ssh' else 'HTTP'}", None, recorder)


def copy(bench: flows.Bench, delays: list[int], source: random.Random) -> dict[str, Any]:
    """scp of some files, up or down."""
    recorder = bench.record(SSH, source.choice(delays))
    files = [bench.path(f"copy{recorder.port}-{i}") for i in range(source.randint(1, 5))]
    for file in files:
        file.write_bytes(source.randbytes(dialogues.size(source, 60_000, 1.5, 100, 2_000_000)))
    up = source.random() < 0.5
    remote = f"root@{recorder.address}:"
    there = bench.path(f"copied{recorder.port}")
    there.mkdir()
    names = [str(f) if up else remote + str(f) for f in files]
    quiet(bench, "scp", "-O", *ssh_command(bench)[1:], "-P", str(recorder.port), *names, remote + str(there) if up else str(there))
    return row("scp", "scp", None, recorder)


def mirror(bench: flows.Bench, delays: list[int], source: random.Random) -> dict[str, Any]:
    """wget fetches some files, over one connection of HTTP/1.1."""
    recorder = bench.record(delay_ms=source.choice(delays))
    quiet(bench, "wget", "-q", "--no-check-certificate", "-O", "/dev/null",
          *(f"https://{recorder.address}:{recorder.port}/packages/{source.randrange(60)}" for _ in range(source.randint(1, 8))))
    return row("wget", "wget", None, recorder)


Make = Callable[[flows.Bench, list[int], random.Random], dict[str, Any]]


def of(make: Callable[[flows.Bench, str, list[int], random.Random], dict[str, Any]], what: str) -> Make:
    return lambda bench, delays, source: make(bench, what, delays, source)


OTHERS: dict[str, Make] = {
    **{f"curl {what} {version}": of(functools.partial(curled, http2=version == 2), what)
       for what in ("updates", "file", "answers", "ranges", "uploads", "sync", "playlist") for version in (1, 2)},
    "plain updates": plain,
    **{what: of(ssh, what) for what in ("ssh download", "ssh upload", "ssh typing")},
    "pip": pip, "scp": copy, "wget": mirror, "ssh forward": forward,
    **{f"git clone {how}": of(clone, how) for how in ("1", "2", "ssh")},
    **{what: of(dialogue, what) for what in dialogues.PROTOCOLS | dialogues.DRAWN},
}
# For judging a classifier only (lab/experiments/flows.py).
HELD_OUT = {what: of(dialogue, what) for what in dialogues.HELD_OUT}
