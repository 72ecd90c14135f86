"""How a tree of jobs is cut into calls, and how one goes to another pool. Pure.

A tree of up to `MAX_JOBS_PER_CALL` jobs and about a megabyte is one call: all of it is there, or nothing. A larger one
is cut into pages, parents before their children. A parent with children on a later page is held: it waits for more
until that page is there, so that nothing is ever released too early; and should that page never come, it dies
(`incomplete`) instead of waiting for ever.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from queueapp.errors import InvalidOption
from queueapp.store.calls import MAX_BYTES_PER_CALL, MAX_JOBS_PER_CALL
from queueapp.store.family_records import Away, Node, Page
from queueapp.store.ids import LENGTH
from queueapp.store.records import DebounceUse, KeyUse, NewJob, SingletonUse

VERSION = 1
"""Of the form in which a tree goes to another pool."""
MAX_PACKED_BYTES = 4_000_000


def pages(
    nodes: Sequence[Node],
    away: Sequence[Away] = (),
    *,
    outer: str = "",
    most: int = MAX_JOBS_PER_CALL,
    most_bytes: int = MAX_BYTES_PER_CALL,
) -> list[Page]:
    """The pages of a tree whose parents come before their children; at least one.

    `outer` is a parent that is there already, and that is held by whoever adds the first page where there are more.
    """
    by_parent: dict[str, list[Away]] = {}
    for child in away:
        by_parent.setdefault(child.parent, []).append(child)
    items: list[Node | Away] = list(by_parent.pop(outer, ())) if outer else []
    for node in nodes:
        items.append(node)
        items += by_parent.pop(node.job.id, ())
    chunks = list(_chunks(items, most, most_bytes)) or [[]]
    own: dict[str, int] = {outer: 0} if outer else {}
    last: dict[str, int] = {}
    for number, chunk in enumerate(chunks):
        for item in chunk:
            if isinstance(item, Node) and item.waits:
                own[item.job.id] = number
            if item.parent:
                last[item.parent] = number
    held = {parent: last[parent] for parent, first in own.items() if last.get(parent, first) > first}
    return [
        Page(
            nodes=[item for item in chunk if isinstance(item, Node)],
            away=[item for item in chunk if isinstance(item, Away)],
            held=frozenset(parent for parent in held if own[parent] == number),
            filled=tuple(parent for parent, end in held.items() if end == number),
        )
        for number, chunk in enumerate(chunks)
    ]


def _chunks(items: Sequence[Node | Away], most: int, most_bytes: int) -> Iterator[list[Node | Away]]:
    chunk: list[Node | Away] = []
    size = 0
    for item in items:
        weight = len(item.job.payload if isinstance(item, Node) else item.tree)
        if chunk and (len(chunk) >= most or size + weight > most_bytes):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += weight
    if chunk:
        yield chunk


def pack(nodes: Sequence[Node], away: Sequence[Away]) -> bytes:
    """A tree for another pool. Raises InvalidOption for one that is too large to go there in one piece."""
    packed = written(nodes, away)
    if len(packed) > MAX_PACKED_BYTES:
        raise InvalidOption(
            f"A job in another pool goes there with all of its children in one piece; this one has {len(packed):,} "
            f"bytes, and {MAX_PACKED_BYTES:,} are possible. Give it fewer children, or let it add them when it runs "
            "(context.add_children)."
        )
    return packed


def written(nodes: Sequence[Node], away: Sequence[Away]) -> bytes:
    """A tree as JSON, however large."""
    return json.dumps(
        {
            "version": VERSION,
            "nodes": [_packed_node(node) for node in nodes],
            "away": [{**asdict(child), "tree": _text(child.tree)} for child in away],
        },
        separators=(",", ":"),
    ).encode()


def unpack(packed: bytes) -> tuple[list[Node], list[Away]]:
    """Reverses `pack` and `written`. ValueError for what a newer release packed, or nobody."""
    found = json.loads(packed)
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise ValueError(f"not a tree of this release: {packed[:80]!r}")
    try:
        nodes = [_node(**given) for given in found["nodes"]]
        away = [Away(**{**given, "tree": base64.b64decode(given["tree"])}) for given in found["away"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a tree of this release: {error}") from error
    return nodes, away


def every(nodes: Sequence[Node], away: Sequence[Away], address: str = "") -> Iterator[tuple[str, Node]]:
    """All jobs of a tree, also those in other pools, by public id; `address` stands before ids of the root's pool."""
    left = [(address, nodes, away)]
    while left:
        before, here, elsewhere = left.pop()
        for node in here:
            yield f"{before}{node.job.id}", node
        left += [(child.id[:-LENGTH], *unpack(child.tree)) for child in elsewhere]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _packed_node(node: Node) -> dict[str, Any]:
    packed = asdict(node)
    packed["job"]["payload"] = _text(node.job.payload)
    return packed


def _node(*, job: dict[str, Any], **given: Any) -> Node:
    debounce, singleton = job.pop("debounce"), job.pop("singleton")
    new = NewJob(
        **{
            **job,
            "payload": base64.b64decode(job["payload"]),
            "keys": tuple(KeyUse(**key) for key in job["keys"]),
            "debounce": debounce and DebounceUse(**debounce),
            "singleton": singleton and SingletonUse(**singleton),
        }
    )
    return Node(job=new, **given)
