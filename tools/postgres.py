"""A PostgreSQL server of one's own for a run of tests: private directory, unix socket only, ended with the run.

`make test-all` uses it. Standard library only. PostgreSQL refuses to run as root: there it runs as the user that its
package made, or as nobody.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

USERS = ("postgres", "nobody")
START_S = 60


def find() -> Path | None:
    """The directory with `initdb` and `postgres`: that of the PATH, else the newest where Debian keeps them."""
    on_path = shutil.which("initdb")
    candidates = [Path(on_path).resolve().parent] if on_path else []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    return next((where for where in candidates if (where / "initdb").exists() and (where / "postgres").exists()), None)


@contextmanager
def server(programs: Path) -> Iterator[str]:
    """Runs a server; yields a DATABASE_URL for it. RuntimeError, with what it said, when it does not start."""
    directory = Path(tempfile.mkdtemp(prefix="ductor-pg-"))
    become = _unprivileged(directory)
    log = directory / "log"
    process: subprocess.Popen[bytes] | None = None
    try:
        make = [str(programs / "initdb"), "-D", str(directory / "data"), "-U", "ductor", "-A", "trust", "-E", "UTF8",
                "--locale=C", "--no-sync", *_sorting(programs)]  # fmt: skip
        _run(make, log, become)
        serve = [str(programs / "postgres"), "-D", str(directory / "data"), "-k", str(directory)]
        for setting in ("listen_addresses=", "fsync=off", "max_connections=200"):
            serve += ["-c", setting]
        with log.open("ab") as out:
            process = subprocess.Popen(serve, cwd="/", stdout=out, stderr=out, preexec_fn=become)
        _wait(process, directory / ".s.PGSQL.5432", log)
        yield f"postgres://ductor@/ductor?host={directory}"
    finally:
        if process is not None and process.poll() is None:
            process.send_signal(2)  # SIGINT: connections are cut, the data is left whole
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(str(directory), ignore_errors=True)


def _version(programs: Path) -> list[int]:
    return [int(part) for part in programs.parent.name.split(".") if part.isdigit()]


def _sorting(programs: Path) -> list[str]:
    """Text sorts as in most databases out there, and unlike bytes, where this server can do so."""
    said = subprocess.run([str(programs / "postgres"), "--version"], stdout=subprocess.PIPE, check=True).stdout.decode()
    number = next((word for word in said.split() if word[0].isdigit()), "0")
    return ["--locale-provider=icu", "--icu-locale=en-US"] if int(number.split(".")[0]) >= 15 else []


def _unprivileged(directory: Path) -> Callable[[], None] | None:
    """What a child calls before it becomes the server. None where we are nobody special anyway."""
    if os.getuid() != 0:
        return None
    import pwd

    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = next(known[name] for name in USERS if name in known)
    os.chown(str(directory), user.pw_uid, user.pw_gid)

    def become() -> None:
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)

    return become


def _run(command: list[str], log: Path, become: Callable[[], None] | None) -> None:
    with log.open("ab") as out:
        code = subprocess.call(command, cwd="/", stdout=out, stderr=out, preexec_fn=become)
    if code != 0:
        raise RuntimeError(_said(log))


def _wait(process: subprocess.Popen[bytes], socket: Path, log: Path) -> None:
    """Until it takes connections: the socket is there from the moment on at which it does."""
    deadline = time.monotonic() + START_S
    while b"ready to accept connections" not in log.read_bytes() or not socket.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(_said(log))
        time.sleep(0.05)


def _said(log: Path) -> str:
    return "PostgreSQL did not start:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-15:])
