"""Emptying a pool: every job in whatever state goes, with all that was kept of it. Called by every skin.

What is configured stays, in the rows and in force. While it lasts, nobody else can use the pool: enqueueing is refused
(`Obliterating`; what was sent on commit waits in the outbox), workers and schedulers wait. Whoever is interrupted
leaves it so; the same call again goes on, in whatever process.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from queueapp.errors import StillRunning
from queueapp.store import shards

LIMIT = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Obliteration:
    """How far it is."""

    jobs: int
    keys: int
    done: bool


def obliterate(
    pool: str,
    *,
    force: bool = False,
    most_s: float | None = None,
    progress: Callable[[Obliteration], None] = lambda _: None,
) -> Obliteration:
    """Removes every job of the pool, in shares of up to 1,000 keys. Raises StillRunning while jobs run, unless `force`:
    then their bodies go on to their end, and what they say afterwards is refused.

    `most_s`: for a request, which cannot go on for ever; what is not done then is done by the next one.
    """
    store, token = shards.store(pool), secrets.token_hex(8)
    ends_at = None if most_s is None else time.monotonic() + most_s
    so_far, cursor = Obliteration(jobs=0, keys=0, done=False), "0"
    while True:
        share = store.obliterate(token, force=force, cursor=cursor, limit=LIMIT)
        if share.word == "running":
            raise StillRunning(
                f"{share.jobs:,} job{'s' if share.jobs != 1 else ''} of the pool {pool!r} run: drain it first "
                "(`manage.py ductor drain`), or force it; what they say afterwards is refused then."
            )
        cursor = share.cursor
        so_far = Obliteration(jobs=so_far.jobs + share.jobs, keys=so_far.keys + share.keys, done=share.word == "done")
        progress(so_far)
        if so_far.done or (ends_at is not None and time.monotonic() >= ends_at):
            return so_far
