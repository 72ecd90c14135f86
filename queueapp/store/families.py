"""What one pool must hear from another about parents and children: relayed from the outbox of the pool that says it.

No script reaches two pools. So a parent's pool notes in its outbox which children are to be made elsewhere, and a
child's pool that the child has ended; both in the script that does the thing itself. `deliver`, called by whoever made
a tree, and `share`, called by every scheduler, tell the other pool and then take the note away. Each note may be told
twice, by several at once: children have their ids from the beginning, and their ends are marked by those. That a parent
died of a child is noted, too, for whoever listens to signals: that is told once at most.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from queueapp.errors import StoreError
from queueapp.repeats import Repeats
from queueapp.store import shards, transit, trees
from queueapp.store.family_records import ChildEnd, Note
from queueapp.store.ids import LENGTH
from queueapp.store.keys import split_public_id
from queueapp.store.store import Store

logger = logging.getLogger(__name__)

CHUNK = 100
REFUSED = "refused"
_told = Repeats()


class OutboxStore(Protocol):
    """The methods of `store.Store` that the pool which says it is asked for."""

    def outbox(self, most: int = 100, after: str = "") -> list[Note]: ...

    def relayed(self, entries: Sequence[str]) -> int: ...

    def child_done(self, ends: Sequence[ChildEnd]) -> list[int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What became of a page of the outbox."""

    relayed: int
    cursor: str
    """Behind which entry the next page begins; "" = this was the last."""
    pools: frozenset[str] = frozenset()
    """Where children were made: these may have something to say, too."""
    fault: StoreError | None = None
    """Of the first pool that refused; what goes elsewhere went."""


def share(
    pool: str, store: OutboxStore, after: str = "", failed: Callable[[str, Sequence[str]], None] | None = None
) -> Share:
    """Relays a page. What cannot be told stays, and holds up nothing else.

    `failed` is called with the pool and ids of parents in it that died of a child, once for each death: whoever takes
    the note away calls it, and should it die before it has, nobody does. Without it these notes stay for others.
    """
    notes = store.outbox(CHUNK, after)
    by_pool: dict[str, list[Note]] = {}
    for note in notes:
        if note.kind == "failed":
            continue
        target = _target(note.to)
        if target is None:
            _tell(pool, note.to)
        else:
            by_pool.setdefault(target, []).append(note)
    done, fault = 0, None
    if failed is not None and (dead := [note for note in notes if note.kind == "failed"]):
        mine = [note.to[-LENGTH:] for note in dead if store.relayed([note.entry])]
        done += len(mine)
        failed(pool, mine)
    made: set[str] = set()
    for target, those in by_pool.items():
        try:
            for heard in _tell_all(store, target, those):
                store.relayed([note.entry for note in heard])
                done += len(heard)
                if any(note.kind == "made" for note in heard):
                    made.add(target)
        except StoreError as error:
            fault = fault or error
    cursor = notes[-1].entry if len(notes) == CHUNK else ""
    return Share(relayed=done, cursor=cursor, pools=frozenset(made), fault=fault)


def deliver(pool: str) -> None:
    """All that a pool has to say, and what others have by this. Raises the first StoreError when all was tried."""
    fault: StoreError | None = None
    left, seen = [pool], {pool}
    while left:
        name = left.pop()
        cursor = ""
        while True:
            done = share(name, shards.store(name), cursor)
            fault = fault or done.fault
            left += sorted(done.pools - seen)
            seen |= done.pools
            cursor = done.cursor
            if not cursor:
                break
    if fault is not None:
        raise fault


def untold(pool: str, tenant: str) -> int:
    """How many jobs of a tenant this pool has noted that are yet to be made in others."""
    store, after, number = shards.store(pool), "", 0
    while notes := store.outbox(CHUNK, after):
        after = notes[-1].entry
        for note in notes:
            if note.kind == "made":
                number += sum(node.job.tenant == tenant for _, node in trees.every(*trees.unpack(note.tree)))
    return number


def _tell_all(store: OutboxStore, target: str, notes: Sequence[Note]) -> Iterator[Sequence[Note]]:
    """Tells one pool; those that it has heard, as soon as it has."""
    there = shards.store(target)
    # A child may have been cancelled since it was to be made.
    for note in notes:
        if note.kind == "made" and _make(store, there, note):
            yield [note]
    if ends := [(note, note.end) for note in notes if note.end is not None]:
        there.child_done([end for _, end in ends])
        yield [note for note, _ in ends]
    if cancelled := [note for note in notes if note.kind == "cancel"]:
        transit.cancel(target, [note.to[-22:] for note in cancelled])
        yield cancelled


def _make(store: OutboxStore, there: Store, note: Note) -> bool:
    """A child and all below it. What its pool can never take has ended, as its parent is told."""
    try:
        nodes, away = trees.unpack(note.tree)
    except ValueError as error:
        logger.error("A child for another pool cannot be read: %s", error, extra={"job_id": note.to})
        return False
    outcome = there.enqueue_flow(nodes, away, "sent").outcome
    if outcome == "conflict":
        root = nodes[0]
        end = ChildEnd(
            parent=root.parent[-22:],
            child=note.to,
            on_failure=root.on_failure,
            position=root.position,
            outcome=REFUSED,
        )
        store.child_done([end])
    return outcome in ("enqueued", "exists", "conflict")


def _target(public_id: str) -> str | None:
    """Name of the pool of this job."""
    parts = split_public_id(public_id)
    if parts is None:
        return None
    code, shard, _ = parts
    name = shards.pools_of([code]).get(code)
    return name if name is not None and shard == shards.SHARD else None


def _tell(pool: str, to: str) -> None:
    if _told.due((pool, to[:6])):
        logger.error(
            "Parents and children in another pool cannot be told of each other: nobody knows that pool.",
            extra={"pool": pool, "job_id": to},
        )
