"""Emptying a pool: every job in whatever state goes, with all that was kept of it. Called by every skin.

What is configured stays, in the rows and in force. While it lasts, nobody else can use the pool: enqueueing is refused
(`Obliterating`; what was sent on commit waits in the outbox), workers and schedulers wait. Whoever is interrupted
leaves it so; the same call again goes on, in whatever process. Several may do it at once: whoever is through first
opens the pool, and the others are told that it was opened without them.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from queueapp.errors import DuctorError, Reopened, StillRunning
from queueapp.store import shards
from queueapp.store.records import Obliterated

logger = logging.getLogger(__name__)

LIMIT = 1_000
MOST_OF_REQUEST_S = 20.0
"""How long one web request removes jobs."""


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
    by: str = "",
) -> Obliteration:
    """Removes every job of the pool, in shares of up to 1,000 keys. Raises StillRunning while jobs run, unless `force`:
    then their bodies go on to their end, and what they say afterwards is refused. Raises Reopened when somebody else
    was through first, or when the store has lost what it was told: the pool is at work then, and may hold jobs.

    `most_s`: for a request, which cannot go on for ever; what is not done then is done by the next one. `by` goes to
    the log.
    """
    store, token = shards.store(pool), secrets.token_hex(8)
    ends_at = None if most_s is None else time.monotonic() + most_s
    so_far, cursor = Obliteration(jobs=0, keys=0, done=False), ""
    try:
        while True:
            share = store.obliterate(token, force=force, cursor=cursor, limit=LIMIT)
            if share.word not in ("more", "done"):
                raise _refusal(pool, store.keys.shard, share, so_far)
            cursor, jobs, keys = share.cursor, so_far.jobs + share.jobs, so_far.keys + share.keys
            so_far = Obliteration(jobs=jobs, keys=keys, done=share.word == "done")
            progress(so_far)
            if so_far.done or (ends_at is not None and time.monotonic() >= ends_at):
                return so_far
    finally:  # also where somebody ended it
        counts = {"jobs": so_far.jobs, "keys": so_far.keys}
        words = "Obliterated" if so_far.done else "Obliterated in part" if so_far.keys else "Not obliterated"
        logger.info(words, extra={"pool": pool, "by": by, "force": force, "counts": counts})


def _refusal(pool: str, shard: int, share: Obliterated, so_far: Obliteration) -> DuctorError:
    if share.word == "running":
        return StillRunning(
            f"{share.jobs:,} job{'s' if share.jobs != 1 else ''} of the pool {pool!r} run: drain it first "
            "(`manage.py ductor drain`), or force it; what they say afterwards is refused then."
        )
    where = (
        f"The pool {pool!r} (shard {shard}) is at work again, and this run, which removed {so_far.jobs:,} jobs, over: "
    )
    if share.word == "reopened":
        return Reopened(
            f"{where}another run of `manage.py ductor obliterate` emptied it meanwhile. Jobs that are in it now came "
            "after that; look at them (`manage.py ductor jobs`) before you empty it once more."
        )
    return Reopened(
        f"{where}the store does not know of it any more, as after a failover. Jobs may be left, and others may have "
        f"come: run `manage.py ductor obliterate {pool}` again if all of them are to go."
    )
