"""Who is measured: each queue with what its environment holds and the ways in which its worker is run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DRIVERS = Path(__file__).resolve().parent / "drivers"
SLOTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One queue. Each of its `variants` is a way to run its worker; of each figure the better one counts."""

    name: str
    title: str
    requirements: Sequence[str]
    """What is installed, in the words of its installer; the first is the queue itself. Ductor has none: it is here."""
    variants: Mapping[str, str]
    """What the driver's `work` takes → what it is, for people."""
    node: bool = False
    chunk: int = 1_000
    """Jobs of one bulk call. From 100 to 2,500 none was clearly faster than another, for any of them."""

    @property
    def driver(self) -> Path:
        return DRIVERS / f"{self.name}_driver.{'mjs' if self.node else 'py'}"

    @property
    def package(self) -> str:
        """The name of the queue's own package, whose version is told."""
        found = re.match(r"[\w-]+", self.requirements[0])
        assert found is not None
        return found[0]


OURS = "ductor"
STRONGEST = "bullmq"
"""The outsider that targets name."""

PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(name=OURS, title="Ductor", requirements=(), variants={"bench": "threads"}),
        Peer(
            name="celery",
            title="Celery",
            requirements=("celery[redis]~=5.7.0", "hiredis~=3.5"),
            variants={"threads": "threads", "prefork": "processes"},
        ),
        Peer(
            name="rq",
            title="RQ",
            requirements=("rq~=3.0.0", "hiredis~=3.5"),
            variants={"simple": "pool of processes"},
        ),
        Peer(
            name="dramatiq",
            title="Dramatiq",
            requirements=("dramatiq[redis]~=2.2.1", "hiredis~=3.5"),
            variants={"1000": "threads"},
        ),
        Peer(
            name="huey",
            title="Huey",
            requirements=("huey~=3.5.4", "redis~=8.1", "hiredis~=3.5"),
            variants={"thread": "threads"},
        ),
        Peer(
            name="taskiq",
            title="taskiq",
            requirements=("taskiq~=0.13.0", "taskiq-redis~=1.2.4", "hiredis~=3.5", "uvloop~=0.22"),
            variants={"0": "coroutines"},
        ),
        Peer(
            name="streaq",
            title="streaq",
            requirements=("streaq~=7.2.0", "uvloop~=0.22"),
            variants={"0": "coroutines"},
        ),
        Peer(
            name=STRONGEST,
            title="BullMQ",
            requirements=("bullmq@~6.7.0", "ioredis@^5"),
            variants={"node": "Node"},
            node=True,
        ),
    )
}
PYTHON_PEERS = tuple(name for name, peer in PEERS.items() if name != OURS and not peer.node)


def chosen(names: str) -> list[Peer]:
    """Ductor, and of the others `all` or those named, as `a,b`. Raises ValueError, which lists the known ones."""
    others = [name for name in PEERS if name != OURS]
    wanted = others if names == "all" else [name.strip() for name in names.split(",") if name.strip()]
    unknown = sorted(set(wanted) - set(PEERS))
    if unknown or not wanted:
        raise ValueError(
            f"{', '.join(unknown) or 'Nobody'} is no peer; known are {', '.join(others)}, or all of them: all."
        )
    return [peer for name, peer in PEERS.items() if name == OURS or name in wanted]


def home() -> Path:
    """Where environments of peers are made: `.bench` in the directory that the command was called from."""
    return Path(os.getcwd()) / ".bench"
