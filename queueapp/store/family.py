"""Parents and children in one shard (lua/include/kin.lua). Part of `Store`.

What other pools must hear of stands in the outbox of the shard until it is relayed (`families`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from queueapp.store import calls, trees
from queueapp.store.calls import Call, Reply
from queueapp.store.connection import translate_errors
from queueapp.store.family_records import (
    ON_FAILURE,
    POLICIES,
    Away,
    ChildEnd,
    Ended,
    Mode,
    Node,
    Note,
    Page,
    Planted,
)
from queueapp.store.records import Word
from queueapp.store.scripts import Argument
from queueapp.store.sending import Sender

CHILDREN_PER_READ = 500
REOPENED = b"reopened"


def rows(page: Page) -> dict[str, Sequence[Sequence[Argument]]]:
    """The groups of `enqueue_flow` and `add_children` for a page of a tree."""
    return {
        "nodes": [_node_row(node, held=node.job.id in page.held) for node in page.nodes],
        "away": [
            (child.id, child.parent, POLICIES[child.on_failure], child.position, child.tenant, child.tree)
            for child in page.away
        ],
    }


def _node_row(node: Node, *, held: bool) -> Sequence[Argument]:
    job = node.job
    return (
        job.id,
        job.task,
        job.tenant,
        job.lane,
        job.priority,
        job.tier,
        calls.number(job.cost),
        job.due_ms,
        job.delay_ms,
        job.expires_after_ms,
        job.max_attempts,
        job.max_crashes,
        job.deadline_ms,
        calls.packed_keys(job.keys),
        calls.packed_front(job),
        job.fingerprint,
        job.payload,
        node.parent,
        POLICIES[node.on_failure],
        node.position,
        "+" if held else "w" if node.waits else "",
    )


def planting(page: Page, mode: Mode, clock_ms: int) -> Call[Planted]:
    """One call of `enqueue_flow`. The idempotency key of the first node counts in mode `new`."""
    root = page.nodes[0].job if page.nodes and mode == "new" else None

    def read(reply: Reply) -> Planted:
        word, job_id, wait_ms = reply
        return Planted(outcome=word.decode(), id=job_id.decode(), wait_ms=wait_ms)

    return calls.call(
        "enqueue_flow",
        clock_ms,
        read,
        {**rows(page), "filled": [(parent,) for parent in page.filled]},
        mode=mode,
        idempotency=root.idempotency if root else "",
        idempotency_ttl_ms=root.idempotency_ttl_ms if root else 0,
    )


def plantings(nodes: Sequence[Node], away: Sequence[Away], mode: Mode, clock_ms: int) -> Iterator[Call[Planted]]:
    """The calls for a tree, to be made one after the other, for as long as each is answered by `enqueued`."""
    for number, page in enumerate(trees.pages(nodes, away)):
        yield planting(page, "more" if number else mode, clock_ms)


class Family(Sender):
    """Trees of jobs."""

    def enqueue_flow(self, nodes: Sequence[Node], away: Sequence[Away] = (), mode: Mode = "new") -> Planted:
        """A tree, parents before their children → waiting, its leaves into line: all of it, or nothing.

        `mode` "sent": for another pool, where the parent of the root waits; it was accepted there. A tree of more than
        one page is there as a whole when the last call is answered (`trees`).
        """
        first: Planted | None = None
        for call in plantings(nodes, away, mode, self._clock_ms()):
            answer = self._run(call)
            first = first or answer
            if answer.outcome != "enqueued":
                return answer
        assert first is not None
        return first

    def add_children(
        self,
        parent: str,
        nodes: Sequence[Node],
        away: Sequence[Away] = (),
        *,
        attempts: int | None = None,
        cost: float = 0,
    ) -> Word:
        """Children of a job that runs, under its lease → it waits for them; without `attempts`, of one that waits.

        Words: done (now or before), cancelled (it was told to stop, so that it ended), stale, gone. Raises
        `NotWaiting`.
        """
        first, *more = trees.pages(nodes, away, outer=parent)
        word: Word = self._run(
            self._call(
                "add_children",
                rows(first),
                lambda reply: reply[0].decode(),
                parent=parent,
                attempts="" if attempts is None else attempts,
                cost=calls.number(cost),
                hold=int(bool(more)),
            )
        )
        if word == "done":
            for page in more:
                self._run(planting(page, "more", self._clock_ms()))
        return word

    def child_done(self, ends: Sequence[ChildEnd]) -> list[int]:
        """Children of parents here ended elsewhere. For each how many its parent still waits for, -1 = it does not."""
        given = [
            (end.parent, end.child, POLICIES[end.on_failure], end.position, end.outcome, end.result or b"", end.entry)
            for end in ends
        ]
        left: list[int] = []
        for first in range(0, len(given), calls.MAX_IDS_PER_CALL):
            page = given[first : first + calls.MAX_IDS_PER_CALL]
            left += self._run(self._call("child_done", {"ended": page}, lambda reply: list(reply[0])))
        return left

    def outbox(self, most: int = 100, after: str = "") -> list[Note]:
        """What other pools must hear of, the oldest first, behind the entry `after`."""
        with translate_errors():
            found: Any = self.client.xrange(self.keys["outbox"], min=f"({after}" if after else "-", count=most)
        return [_note(entry.decode(), fields) for entry, fields in found]

    def relayed(self, entries: Sequence[str]) -> int:
        """They have heard of these. How many of them nobody had taken away before."""
        if not entries:
            return 0
        with translate_errors():
            taken: Any = self.client.xdel(self.keys["outbox"], *entries)
        return int(taken)

    def children(self, parent: str) -> list[Ended]:
        """Those of its children that have ended, by position. Read in pages; nothing is changed."""
        found: dict[str, Ended] = {}
        with translate_errors():
            for name, packed in self.client.hscan_iter(self.keys[f"children:{parent}"], count=CHILDREN_PER_READ):
                position, letter, outcome, _, result = packed.split(b"|", 4)
                if outcome == REOPENED:
                    continue
                found[name.decode()] = Ended(
                    child=name.decode(),
                    position=int(position),
                    on_failure=ON_FAILURE[letter.decode()],
                    outcome=outcome.decode(),
                    result=result or None,
                )
        return sorted(found.values(), key=lambda child: (child.position, child.child))


def _note(entry: str, fields: dict[bytes, bytes]) -> Note:
    kind, to = fields[b"k"].decode(), fields[b"to"].decode()
    if kind == "made":
        return Note(entry=entry, kind="made", to=to, tree=fields[b"b"])
    if kind == "cancel":
        return Note(entry=entry, kind="cancel", to=to)
    if kind == "failed":
        return Note(entry=entry, kind="failed", to=to)
    end = ChildEnd(
        parent=to[-22:],
        child=fields[b"id"].decode(),
        on_failure=ON_FAILURE[fields[b"p"].decode()],
        position=int(fields[b"n"]),
        outcome=fields[b"o"].decode(),
        result=fields[b"r"] or None,
        entry=entry,
    )
    return Note(entry=entry, kind="ended", to=to, end=end)
