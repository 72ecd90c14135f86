"""How a tree of jobs stands in a row of the outbox: whole, packed beside its root; and how it comes out again.

No question to a database is asked here.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from queueapp.errors import InvalidOption
from queueapp.store import trees
from queueapp.store.family_records import Away, Node, OnFailure
from queueapp.store.records import NewJob

MAX_BYTES = 64_000_000
"""Of a tree as JSON, before it is compressed."""
TREE, TENANTS = "tree", "tenants"
"""Names in the JSON of a row: the tree, and whose jobs there are in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTree:
    """A tree of the root's pool, parents before their children, and what others hang on it."""

    nodes: Sequence[Node]
    away: Sequence[Away]

    def packed(self) -> dict[str, Any]:
        """As a row holds it. Raises InvalidOption for one that is too large to be kept."""
        written = trees.written(self.nodes, self.away)
        if len(written) > MAX_BYTES:
            raise InvalidOption(
                f"A tree of {len(written):,} bytes is too large to be kept in the outbox, which takes {MAX_BYTES:,}. "
                "Let its jobs add their children when they run (context.add_children)."
            )
        return {
            TREE: base64.b64encode(zlib.compress(written)).decode(),
            TENANTS: sorted({node.job.tenant for _, node in self.all_nodes("")}),
        }

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> KeptTree:
        """Reverses `packed`. Raises ValueError for what no release has written."""
        try:
            nodes, away = trees.unpack(zlib.decompress(base64.b64decode(row[TREE])))
        except zlib.error as error:
            raise ValueError(f"its tree cannot be read: {error}") from error
        return cls(nodes=nodes, away=away)

    def all_nodes(self, address: str) -> Iterator[tuple[str, Node]]:
        """All jobs of it with their public ids; `address` is what stands before the ids of the root's pool."""
        return trees.every(self.nodes, self.away, address)

    def with_jobs(self, change: Callable[[NewJob], NewJob]) -> KeptTree:
        """The same tree with every job replaced by what `change` makes of it."""
        nodes = [replace(node, job=change(node.job)) for node in self.nodes]
        away = []
        for child in self.away:
            below_nodes, below_away = trees.unpack(child.tree)
            below = KeptTree(nodes=below_nodes, away=below_away).with_jobs(change)
            away.append(replace(child, tree=trees.written(below.nodes, below.away)))
        return KeptTree(nodes=nodes, away=away)

    def check(self) -> None:
        """Raises ValueError for what hangs together as no tree does: the store trusts what it is sent."""
        above: set[str] = set()
        for number, node in enumerate(self.nodes):
            if bool(number) != (node.parent in above):
                raise ValueError("a job of its tree hangs on none before it")
            above |= {node.job.id} if node.waits else set()
        if any(child.parent not in above for child in self.away):
            raise ValueError("a child for another pool hangs on none of its jobs")
        links: list[Node | Away] = [*self.nodes, *self.away]
        if any(link.on_failure not in get_args(OnFailure) or type(link.position) is not int for link in links):
            raise ValueError("a job of its tree says not what becomes of its parent")
