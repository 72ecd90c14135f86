"""Environments of peers: made on demand under `.bench`, once, each with nothing but its queue. Never ours to import.

A stamp in each says what it holds; while it is what is wanted, nothing is done. One that cannot be made is Unavailable
with the reason, and its peer is reported as not measured.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from queueapp.bench.harness import Progress
from queueapp.bench.peers.roster import OURS, Peer

INSTALL_TIMEOUT_S = 600.0
STAMP = "ductor.json"


class Unavailable(Exception):
    """A peer cannot be measured here; the text says why."""


class Environment:
    """A peer's environment that is there: how its programs are started, and which version it holds."""

    def __init__(self, peer: Peer, directory: Path) -> None:
        self.peer, self.directory = peer, directory

    def command(self, *words: str) -> list[str]:
        """The driver with these words."""
        if self.peer.node:
            return ["node", str(self.peer.driver), *words]
        if self.peer.name == OURS:
            return [sys.executable, "-m", f"queueapp.bench.peers.drivers.{self.peer.driver.stem}", *words]
        return [str(python_of(self.directory)), str(self.peer.driver), *words]

    def variables(self) -> dict[str, str]:
        """The process environment. A peer sees none of our settings: Celery would load Django for them."""
        if self.peer.name == OURS:
            return dict(os.environ)
        ours = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "DJANGO_SETTINGS_MODULE", "REDIS_URL", "DATABASE_URL")
        kept = {name: value for name, value in os.environ.items() if name not in ours}
        return kept | {"PEER_MODULES": str(self.directory / "node_modules")}

    def version(self) -> str | None:
        """The version of the queue's own package."""
        if self.peer.name == OURS:
            return None
        if self.peer.node:
            found = self.directory / "node_modules" / self.peer.package / "package.json"
            return str(json.loads(found.read_text())["version"])
        ask = f"from importlib.metadata import version; print(version({self.peer.package!r}))"
        answer = subprocess.run(
            [python_of(self.directory), "-c", ask], capture_output=True, text=True, timeout=60, check=False
        )
        return answer.stdout.strip() or None


def python_of(directory: Path) -> Path:
    return directory / "bin" / "python"


def prepare(peer: Peer, root: Path, progress: Progress) -> Environment:
    """The peer's environment under `root`, made now unless it is there. Raises Unavailable."""
    directory = root / peer.name
    environment = Environment(peer, directory)
    if peer.name == OURS or is_ready(peer, directory):
        return environment
    root.mkdir(exist_ok=True)
    (root / ".gitignore").write_text("*\n")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    begun = time.monotonic()
    try:
        for words in installation(peer, directory):
            _run(words, peer, directory, progress)
    except Unavailable:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    (directory / STAMP).write_text(json.dumps(_wanted(peer)))
    progress.say(f"  {peer.title} {environment.version()} installed ({time.monotonic() - begun:.0f} s)")
    return environment


def is_ready(peer: Peer, directory: Path) -> bool:
    """Whether its environment holds what is wanted."""
    try:
        return bool(json.loads((directory / STAMP).read_text()) == _wanted(peer))
    except (OSError, ValueError):
        return False


def _wanted(peer: Peer) -> dict[str, object]:
    return {"requirements": list(peer.requirements), "python": None if peer.node else sys.version}


def installation(peer: Peer, directory: Path) -> list[list[str]]:
    """The commands that make it. Raises Unavailable where a program for that is missing."""
    if peer.node:
        for program in ("node", "npm"):
            if shutil.which(program) is None:
                raise Unavailable(f"{program} is not installed")
        quiet = ("--no-audit", "--no-fund", "--no-progress", "--loglevel", "error")
        return [["npm", "install", "--prefix", str(directory), *quiet, *peer.requirements]]
    pip = ("-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet")
    return [
        [sys.executable, "-m", "venv", str(directory)],
        [str(python_of(directory)), *pip, *peer.requirements],
    ]


def _run(words: Sequence[str], peer: Peer, directory: Path, progress: Progress) -> None:
    log, begun = directory.parent / f"{peer.name}.log", time.monotonic()
    with log.open("ab") as out:
        try:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        except OSError as error:
            raise Unavailable(f"{words[0]}: {error}") from error
        try:
            while process.poll() is None:
                seconds = time.monotonic() - begun
                if seconds > INSTALL_TIMEOUT_S:
                    raise Unavailable(f"its installation took longer than {INSTALL_TIMEOUT_S:g} s")
                progress.show(f"  {peer.title}: installing in an environment of its own, {seconds:.0f} s")
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode:
        said = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()] or [
            "it said nothing"
        ]
        reason = next((line for line in reversed(said) if "error" in line.lower()), said[-1])
        raise Unavailable(f"its installation failed ({log.name}): {reason[:160]}")
