"""What a leader does to a pool with scheduled dispatch: ingress → pending → ready, under its term.

`Store` inherits it; the caller is `queueapp.scheduler.dispatching`. Every write is refused (`Fenced`) under a term that
is over, and changes nothing then. Who lost a reply repeats the call: `admit` finds the jobs admitted, `dispatch` fills
only what is free, `flush_policy` knows its own number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import redis
from redis.exceptions import ResponseError

from queueapp.store.calls import Reply
from queueapp.store.connection import translate_errors
from queueapp.store.leader_records import Admitted, Correction, Dispatched, IngressEntry, MirrorLane, Taken, Term
from queueapp.store.scripts import Argument
from queueapp.store.sending import Sender

GROUP = "leader"
ADMIT_MOST = 250
"""Entries of one call of `admit`."""
DISPATCH_MOST = 250
"""Jobs of one call of `dispatch`."""
NUDGE_TTL_MS = 60_000
SHORTEST_S = 0.005
"""BZPOPMIN takes 0 for "for ever"; nothing blocks for less than this."""


class Dispatching(Sender):
    """The part of `Store` that leaders use."""

    def read_ingress(self, consumer: str, most: int = ADMIT_MOST) -> list[IngressEntry]:
        """New jobs in the order of their arrival, at most `most`; those that were read before and not admitted first.

        `consumer` names the reader, a term's nonce for example: what another one read and did not admit is claimed.
        Entries stay until `admit` has seen them.
        """
        with translate_errors():
            try:
                found = self._claim(consumer, most)
            except ResponseError as error:
                if "NOGROUP" not in str(error):
                    raise
                self._make_group()
                found = self._claim(consumer, most)
        return [ingress_entry(entry.decode(), fields) for entry, fields in found]

    def admit(
        self, term: Term, entries: Sequence[tuple[str, str, float | None]], *, order: int | None = None
    ) -> Admitted:
        """Ingress → pending: `(entry, id, rank)`, at most `ADMIT_MOST` a call.

        Where the store knows the policy it ranks the jobs itself, and `rank` and `order` are None. Else `order` says
        for which order of jobs the ranks were made (`Reads.in_force`). Raises `Fenced` and `OrderChanged`.
        """
        rows = [(entry, job_id, "" if rank is None else repr(float(rank))) for entry, job_id, rank in entries]
        admitted, duplicates, garbled, entered, corrected = self._run(
            self._call("admit", {"entries": rows}, epoch=term.epoch, nonce=term.nonce, order=_spelt(order))
        )
        return Admitted(
            admitted=admitted,
            duplicates=duplicates,
            garbled=garbled,
            entered=[mirror_lane(row) for row in entered],
            corrected=[correction(row) for row in corrected],
        )

    def dispatch(
        self,
        term: Term,
        most: int,
        window: int,
        picks: Sequence[tuple[str, str]] = (),
        *,
        order: int | None = None,
    ) -> Dispatched:
        """Pending → ready, at most `most` jobs and `window` jobs in ready and active together.

        Where the store knows the policy it chooses itself, in the order of direct dispatch, and `picks` is empty. Else
        `picks` are `(tenant, lane)`, and the first job of each that may run is taken; a lane may be named repeatedly.
        `order` as for `admit`. Raises `Fenced` and `OrderChanged`.
        """
        jobs, room, runnable, taken, entered, corrected = self._run(
            self._call(
                "dispatch",
                {"picks": picks},
                epoch=term.epoch,
                nonce=term.nonce,
                order=_spelt(order),
                most=most,
                window=window,
            )
        )
        return Dispatched(
            jobs=jobs,
            room=room,
            runnable=bool(runnable),
            more=runnable == 2,
            taken=[taken_of(row) for row in taken],
            entered=[mirror_lane(row) for row in entered],
            corrected=[correction(row) for row in corrected],
        )

    def mirror(self, cursor: str = "0") -> tuple[str, list[MirrorLane]]:
        """A page of the walk as it is: the lanes of the tenants that run. Answers the next cursor, "0" when done.

        What stands in the walk from the first page to the last is told at least once; what changes meanwhile comes in
        the next `entered`. Changes nothing.
        """
        after, rows = self._run(self._call("mirror", cursor=cursor))
        return after.decode(), [mirror_lane(row) for row in rows]

    def flush_policy(self, term: Term, number: int, blob: bytes, *, order: int | None = None) -> bool:
        """Keeps what a leader's policy holds in memory: replaces what was kept. False: `number` is not above the last.

        `order` as for `admit`. Raises `Fenced` and `OrderChanged`.
        """
        reply = self._run(
            self._call(
                "flush_policy",
                epoch=term.epoch,
                nonce=term.nonce,
                order=_spelt(order),
                number=number,
                blob=blob,
            )
        )
        return bool(reply[0] == b"kept")

    def read_policy(self) -> tuple[int, bytes]:
        """Number and contents of what was last kept; `(0, b"")` when nothing was, `(n, b"")` when it was dropped, as
        another policy came.
        """
        with translate_errors():
            while True:
                number: Any = self.client.hget(self.keys["marks"], "flush")
                if number is None:
                    return 0, b""
                blob: Any = self.client.get(self.keys[f"flushed:{number.decode()}"])
                if blob is not None or self.client.hget(self.keys["marks"], "flush") == number:
                    return int(number), blob or b""

    def nudge(self, scheduler: str) -> None:
        """A token for the thread of this very scheduler that waits in `wait_leader`: something happened that no token
        of a pool tells."""
        name = self.keys[f"nudge:{scheduler}"]
        with translate_errors(), self.client.pipeline() as pipeline:
            pipeline.zadd(name, {"n": 0})
            pipeline.pexpire(name, NUDGE_TTL_MS)
            pipeline.execute()

    def _claim(self, consumer: str, most: int) -> list[tuple[bytes, dict[bytes, bytes]]]:
        """What anybody read and nobody admitted, this reader included; then new entries."""
        name = self.keys["ingress"]
        reply: Any = self.client.xautoclaim(name, GROUP, consumer, min_idle_time=0, start_id="0-0", count=most)
        found = [(entry, fields) for entry, fields in reply[1] if entry is not None]
        if len(found) < most:
            fresh: Any = self.client.xreadgroup(GROUP, consumer, {name: ">"}, count=most - len(found))
            for _, entries in fresh:
                found += entries
        return found

    def _make_group(self) -> None:
        try:
            self.client.xgroup_create(self.keys["ingress"], GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):  # another reader made it
                raise


def wait_leader(
    client: redis.Redis,
    scheduler: str,
    led: Mapping[str, Dispatching],
    others: Mapping[str, Dispatching],
    timeout_s: float,
) -> str | None:
    """Blocks until one of these pools has something for this scheduler, and answers its name; None after `timeout_s`,
    or when the scheduler nudged itself.

    `client` is one of `connection.blocking()` that nobody else uses. Pool name → store: of the pools that are led
    here, whose token says that there is something to do; and of the others, whose token says that their leader has
    gone. A pool is told once for whatever happened until then: its leader works until nothing is left, and asks anew.
    Raises StoreUnavailable.
    """
    by_key: dict[bytes, str | None] = {}
    for name, stores in (("wake:leader", led), ("wake:standby", others)):
        by_key |= {store.keys[name].encode(): pool for pool, store in stores.items()}
    by_key |= {store.keys[f"nudge:{scheduler}"].encode(): None for store in [*led.values(), *others.values()]}
    with translate_errors():
        found: Any = client.bzpopmin(list(by_key), max(SHORTEST_S, timeout_s))
    return by_key[found[0]] if found else None


def _spelt(order: int | None) -> Argument:
    return "" if order is None else order


def ingress_entry(entry: str, fields: Mapping[bytes, bytes]) -> IngressEntry:
    """What `lua/include/ingress.lua` wrote; with id "" when it did not."""
    try:
        parts = fields[b"j"].decode().split("|")
        job_id, tenant, lane, tier, priority, cost, deadline, ready, seq, keys = parts
        return IngressEntry(
            entry=entry,
            id=job_id,
            tenant=tenant,
            lane=lane,
            tier="continue" if tier == "c" else "start",
            priority=int(priority),
            cost=float(cost),
            deadline_ms=int(deadline or 0),
            ready_ms=int(ready),
            seq=int(seq),
            keys=keys == "1",
        )
    except (KeyError, ValueError):
        return IngressEntry(entry=entry)


def mirror_lane(row: Reply) -> MirrorLane:
    """A row of `lua/include/telling.lua`."""
    tenant, lane, runs, rank, seq, cost, tenant_weight, lane_weight = row
    return MirrorLane(
        tenant=tenant.decode(),
        lane=lane.decode(),
        runs=bool(runs),
        rank=float(rank),
        seq=int(seq),
        cost=float(cost),
        tenant_weight=float(tenant_weight),
        lane_weight=float(lane_weight),
    )


def correction(row: Reply) -> Correction:
    """How much more a lane's jobs cost than they were charged."""
    tenant, lane, difference = row
    return Correction(tenant=tenant.decode(), lane=lane.decode(), difference=float(difference))


def taken_of(row: Reply) -> Taken:
    """A row of `lua/include/dispatching.lua`."""
    tenant, lane, outcome, minimum, job_id, rank, cost, lane_now, tenant_runs = row
    return Taken(
        tenant=tenant.decode(),
        lane=lane.decode(),
        outcome=outcome.decode(),
        minimum=bool(minimum),
        id=job_id.decode(),
        rank=float(rank),
        cost=float(cost),
        lane_now=mirror_lane(lane_now) if lane_now else None,
        tenant_runs=bool(tenant_runs),
    )
