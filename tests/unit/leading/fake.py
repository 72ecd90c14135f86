"""A store in memory as a leader sees it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from queueapp.errors import OrderChanged
from queueapp.store.configuration import PoolConf
from queueapp.store.leader_records import Admitted, Dispatched, IngressEntry, MirrorLane, Term

TERM = Term(epoch=1, nonce="n1", ttl_ms=5_000)
NEXT_TERM = Term(epoch=2, nonce="n2", ttl_ms=5_000)


def lane(tenant: str, seq: int, *, runs: bool = True) -> MirrorLane:
    return MirrorLane(
        tenant=tenant, lane="main", runs=runs, rank=seq, seq=seq, cost=1.0, tenant_weight=1.0, lane_weight=1.0
    )


class FakeDispatch:
    """One shard as a leader sees it: entries, what it was told, and what it answers. Also stands for its reads."""

    def __init__(self) -> None:
        self.conf = PoolConf(policy="own_ring", dispatch="scheduled", window=10)
        self.order_since = 1
        self.slots = 0
        self.entries: deque[IngressEntry] = deque()
        self.pages: list[list[MirrorLane]] = [[]]
        self.answers: deque[Dispatched] = deque()
        self.calls: list[tuple[Any, ...]] = []
        self.kept: tuple[int, bytes] = (0, b"")
        self.error: Exception | None = None
        self.refuses: dict[str, Exception] = {}
        """Call → what it raises."""
        self.resent = 0
        self.woken = threading.Event()
        self.done = threading.Condition()

    def said(self, name: str) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] == name]

    def _call(self, *call: Any) -> None:
        with self.done:
            self.calls.append(call)
            self.done.notify_all()
        if self.error is not None:
            raise self.error
        if call[0] in self.refuses:
            raise self.refuses[call[0]]

    def read_ingress(self, consumer: str, most: int = 250) -> list[IngressEntry]:
        self._call("read_ingress", consumer)
        return [self.entries.popleft() for _ in range(min(most, len(self.entries)))]

    def admit(
        self, term: Term, entries: Sequence[tuple[str, str, float | None]], *, order: int | None = None
    ) -> Admitted:
        self._call("admit", term.nonce, [*entries])
        self._refuse(order)
        return Admitted(admitted=len(entries), duplicates=0, garbled=0)

    def dispatch(
        self,
        term: Term,
        most: int,
        window: int,
        picks: Sequence[tuple[str, str]] = (),
        *,
        order: int | None = None,
    ) -> Dispatched:
        self._call("dispatch", term.nonce, most, window, [*picks])
        self._refuse(order)
        return self.answers.popleft() if self.answers else Dispatched(jobs=0, room=window, runnable=False)

    def mirror(self, cursor: str = "0") -> tuple[str, list[MirrorLane]]:
        self._call("mirror", cursor)
        page = int(cursor)
        return ("0" if page + 1 >= len(self.pages) else str(page + 1)), self.pages[page]

    def flush_policy(self, term: Term, number: int, blob: bytes, *, order: int | None = None) -> bool:
        self._call("flush_policy", term.nonce, number)
        self._refuse(order)
        fresh = number > self.kept[0]
        if fresh:
            self.kept = (number, blob)
        return fresh

    def read_policy(self) -> tuple[int, bytes]:
        self._call("read_policy")
        return self.kept

    def nudge(self, scheduler: str) -> None:
        self.woken.set()

    def in_force(self) -> tuple[PoolConf, int]:
        self._call("in_force")
        return self.conf, self.order_since

    def _refuse(self, order: int | None) -> None:
        if order not in (None, self.order_since):
            raise OrderChanged

    def live_slots(self, live_ms: int) -> int:
        self._call("live_slots", live_ms)
        return self.slots

    def weights(self, tenants: Sequence[str]) -> dict[str, float]:
        self._call("weights", [*tenants])
        return dict.fromkeys(tenants, 2.0)


def entry(number: int, tenant: str = "ant") -> IngressEntry:
    return IngressEntry(entry=f"{number}-0", id=f"j{number}", tenant=tenant, cost=1.0, seq=number)
