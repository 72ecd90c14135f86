"""Pipelined reads of one shard for inspection: they change nothing and take no lock, so that what they answer may be a
moment old. The one read path below `inspection`, REST, admin and results.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import redis
import redis.asyncio

from queueapp.store.configured import ConfigurationReads, unpack_limits
from queueapp.store.connection import translate_errors
from queueapp.store.job_reads import check_replies, queue_job_reads, read_jobs
from queueapp.store.keys import ShardKeys
from queueapp.store.queues import QueueReads, change_of
from queueapp.store.store import Store
from queueapp.store.views import GroupEntry, JobRecord, PoolOverview, TenantEntry, WorkerEntry

logger = logging.getLogger(__name__)

HEADER_BYTES = 400
MAX_TENANTS = 1_000
MAX_WORKERS = 200


def _clock_ms(clock: tuple[int, int]) -> int:
    return clock[0] * 1000 + clock[1] // 1000


class Reads(ConfigurationReads):
    """Reads of one shard. `client` must not decode replies."""

    def __init__(self, client: redis.Redis, keys: ShardKeys) -> None:
        super().__init__(client, keys)
        scripts = Store(client, keys)
        self.browse, self.browse_each, self.peek, self.oldest, self.explain = (
            scripts.browse,
            scripts.browse_each,
            scripts.peek,
            scripts.oldest,
            scripts.explain,
        )
        self.queues = QueueReads(client, keys)

    def job(self, job_id: str) -> JobRecord | None:
        """One job; None when the store knows none of this id."""
        return self._jobs([job_id], lenient=False)[0]

    def jobs(self, ids: Sequence[str]) -> list[JobRecord | None]:
        """Many jobs in one round trip; None also for a row that nobody can read."""
        return self._jobs(ids, lenient=True)

    def _jobs(self, ids: Sequence[str], *, lenient: bool) -> list[JobRecord | None]:
        with translate_errors():
            pipeline = self.client.pipeline(transaction=True)
            queue_job_reads(pipeline, self.keys, ids)
            *replies, names = pipeline.execute(raise_on_error=False)
            check_replies([names])
        return read_jobs(ids, replies, names, lenient=lenient)

    def checkpoint(self, job_id: str) -> bytes | None:
        """What a run of the job saved for the next one, as JSON; None: nothing, or the job has ended."""
        with translate_errors():
            found: Any = self.client.get(self.keys[f"checkpoint:{job_id}"])
        return None if found is None else bytes(found)

    def has_key(self, job_id: str, digest: str) -> bool:
        """Whether a leased job has the concurrency key of this digest."""
        with translate_errors():
            key_set: Any = self.client.hget(self.keys.run(job_id), "k")
            lines: Any = self.client.hget(self.keys["keysets"], key_set) if key_set else None
        return lines is not None and any(line.startswith(f"{digest} ") for line in lines.decode().splitlines())

    def letters(self, ids: Sequence[str]) -> list[JobRecord | None]:
        """Many jobs in one round trip, without their contents: no payload, no result, the last error only."""
        with translate_errors():
            pipeline = self.client.pipeline(transaction=True)
            for job_id in ids:
                pipeline.getrange(self.keys.job(job_id), 0, HEADER_BYTES - 1)
                pipeline.hgetall(self.keys.run(job_id))
                pipeline.lrange(self.keys[f"errors:{job_id}"], -1, -1)
            pipeline.hgetall(self.keys["names"])
            *replies, names = pipeline.execute(raise_on_error=False)
            check_replies([names])
        parts: list[Any] = []
        for first in range(0, len(replies), 3):
            text, run, errors = replies[first : first + 3]
            parts += [text, run, None, errors, {}, None]
        return [record and replace(record, payload=None) for record in read_jobs(ids, parts, names, lenient=True)]

    def sizes(self, indices: Sequence[str]) -> list[int]:
        """How many jobs stand in each of these indices, which are no queues."""
        with translate_errors():
            pipeline = self.client.pipeline(transaction=False)
            for index in indices:
                pipeline.zcard(self.keys[index])
            return [int(size) for size in pipeline.execute()]

    def pending_count(self) -> int:
        """How many jobs are pending."""
        with translate_errors():
            pipeline = self.client.pipeline(transaction=True)
            pipeline.hget(self.keys["counts"], "w")
            pipeline.zcard(self.keys["scheduled"])
            pipeline.zcard(self.keys["backlog"])
            waiting, scheduled, parked = pipeline.execute()
        return max(0, int(waiting or 0) - int(scheduled) - int(parked))

    def running_and_waiting(self) -> tuple[int, int]:
        """How many jobs are leased, and how many wait in whatever state. One round trip."""
        with translate_errors():
            pipeline = self.client.pipeline(transaction=True)
            pipeline.zcard(self.keys["active"])
            pipeline.hget(self.keys["counts"], "w")
            running, waiting = pipeline.execute()
        return int(running), int(waiting or 0)

    def behind(self, index: str) -> int:
        """A moment behind everything that an index by time of death or end holds now, in ms."""
        with translate_errors():
            pipeline = self.client.pipeline(transaction=False)
            pipeline.zrevrange(self.keys[index], 0, 0, withscores=True)
            pipeline.time()
            newest, clock = pipeline.execute()
        return 1 + max(_clock_ms(clock), int(newest[0][1]) if newest else 0)

    def now_ms(self) -> int:
        """The server's clock."""
        with translate_errors():
            clock: Any = self.client.time()
        return _clock_ms(clock)

    def submission(self) -> int:
        """The last number of submission that was given."""
        with translate_errors():
            stored: Any = self.client.hget(self.keys["marks"], "seq")
        return int(stored or 0)

    def still_dead(self, ids: Sequence[str]) -> int:
        """How many of these jobs are dead letters now. One round trip."""
        if not ids:
            return 0
        with translate_errors():
            found: Any = self.client.zmscore(self.keys["dead"], list(ids))
        return sum(at is not None for at in found)

    def waiting_tenants(self, count: int = 1_000) -> Iterator[list[str]]:
        """All tenants with waiting jobs, in bounded pages; who has some all the while is met, perhaps twice."""
        cursor = 0
        while True:
            with translate_errors():
                found: Any = self.client.zscan(self.keys["tenants"], cursor, count=count)
            cursor, page = found
            names = [tenant.decode() for tenant, waiting in page if waiting > 0]
            if names:
                yield names
            if cursor == 0:
                return

    def set_aside(self, count: int = 250) -> Iterator[list[str]]:
        """All ids of rows that could not be read, in bounded pages; perhaps one twice."""
        cursor = 0
        while True:
            with translate_errors():
                found: Any = self.client.sscan(self.keys["quarantine"], cursor, count=count)
            cursor, page = found
            if page:
                yield [job_id.decode(errors="replace") for job_id in page]
            if cursor == 0:
                return

    def seen_tenants(self, cursor: int, count: int) -> tuple[int, list[str]]:
        """About so many of the tenants that have jobs or dead letters, and where to go on; 0 = from the beginning."""
        with translate_errors():
            found: Any = self.client.zscan(self.keys["tenants"], cursor, count=count)
        return int(found[0]), [tenant.decode() for tenant, _ in found[1]]

    def dead_groups(self, *, offset: int, count: int) -> tuple[list[GroupEntry], int]:
        """A page of the groups of dead letters, by newest death; and how many groups there are. Two round trips."""
        with translate_errors():
            pipeline = self.client.pipeline(transaction=False)
            pipeline.zcard(self.keys["deadgroups"])
            pipeline.zrevrange(self.keys["deadgroups"], offset, offset + count - 1)
            total, found = pipeline.execute()
            groups = [group.decode() for group in found]
            for group in groups:
                pipeline.zcard(self.keys[f"deadgroup:{group}"])
                pipeline.zrange(self.keys[f"deadgroup:{group}"], 0, 0, withscores=True)
                pipeline.zrevrange(self.keys[f"deadgroup:{group}"], 0, 0, withscores=True)
            details = pipeline.execute() if groups else []
        entries = []
        for position, group in enumerate(groups):
            size, first, last = details[position * 3 : position * 3 + 3]
            if size:
                [(_, first_ms)], [(newest, last_ms)] = first, last
                entries.append(
                    GroupEntry(
                        group=group, size=size, first_ms=int(first_ms), last_ms=int(last_ms), newest=newest.decode()
                    )
                )
        return entries, int(total)

    def tenants(self, *, offset: int, count: int) -> tuple[list[TenantEntry], int]:
        """A page of the tenants that were seen, those with most waiting jobs first, and how many. Two round trips."""
        keys = self.keys
        with translate_errors():
            pipeline = self.client.pipeline(transaction=False)
            pipeline.zcard(keys["tenants"])
            pipeline.zrevrange(keys["tenants"], offset, offset + count - 1, withscores=True)
            total, found = pipeline.execute()
        waiting = {name.decode(): int(count) for name, count in found}
        return self._tenant_entries(waiting), int(total)

    def tenants_of(self, names: Sequence[str]) -> list[TenantEntry]:
        """How these tenants stand, seen or not, in their order. Two round trips."""
        if not names:
            return []
        with translate_errors():
            found: Any = self.client.zmscore(self.keys["tenants"], list(names))
        return self._tenant_entries({name: int(count or 0) for name, count in zip(names, found, strict=True)})

    def _tenant_entries(self, waiting: Mapping[str, int]) -> list[TenantEntry]:
        """The rest of what is known of tenants whose waiting jobs are, in one round trip."""
        keys = self.keys
        with translate_errors():
            pipeline = self.client.pipeline(transaction=False)
            for tenant in waiting:
                pipeline.zcard(keys[f"dead:{tenant}"])
                pipeline.zcard(keys[f"slots:t:{tenant}"])
                pipeline.hget(keys["limits"], f"t:{tenant}")
                pipeline.zcard(keys[f"bl:{tenant}"])
                pipeline.zcard(keys[f"blc:{tenant}"])
            details = pipeline.execute() if waiting else []
        entries = []
        for position, (tenant, count) in enumerate(waiting.items()):
            dead, slots, packed, *parked = details[position * 5 : position * 5 + 5]
            counted = packed is not None and unpack_limits(packed).counted
            entries.append(
                TenantEntry(
                    tenant=tenant,
                    waiting=count,
                    parked=sum(parked),
                    dead=dead,
                    active=slots if counted else None,
                )
            )
        return entries

    def live_workers(self, shards: Sequence[ShardKeys], since_ms: int) -> list[int]:
        """How many workers of each of these shards called since then, in one round trip."""
        with translate_errors():
            pipeline = self.client.pipeline(transaction=False)
            for keys in shards:
                pipeline.zcount(keys["workers"], since_ms, "+inf")
            return [int(number) for number in pipeline.execute()]

    def ingress(self, after: str, count: int) -> tuple[int, list[tuple[str, str, str]]]:
        """How many entries there are, and `(entry, id, tenant)` of those behind the entry `after`; "" = from the first.

        An entry that is none of ours has no id. One round trip.
        """
        with translate_errors():
            pipeline = self.client.pipeline(transaction=False)
            pipeline.xlen(self.keys["ingress"])
            pipeline.xrange(self.keys["ingress"], f"({after}" if after else "-", "+", count)
            total, found = pipeline.execute()
        entries = []
        for entry, fields in found:
            job_id, _, rest = fields.get(b"j", b"").decode(errors="replace").partition("|")
            entries.append((entry.decode(), job_id, rest.partition("|")[0]))
        return int(total), entries

    def live_slots(self, live_ms: int) -> int:
        """How many jobs the workers that called within `live_ms` can run at once, as far as they said. Two trips."""
        keys = self.keys
        with translate_errors():
            pipeline = self.client.pipeline(transaction=False)
            pipeline.time()
            pipeline.zrevrange(keys["workers"], 0, MAX_WORKERS - 1, withscores=True)
            clock, workers = pipeline.execute()
            live = [worker.decode() for worker, last in workers if last > _clock_ms(clock) - live_ms]
            for worker in live:
                pipeline.hget(keys[f"worker:{worker}"], "slots")
            found = pipeline.execute() if live else []
        return sum(int(slots) for slots in found if slots is not None and slots.isdigit())

    def overview(self) -> PoolOverview:
        """Sizes, tenants, workers, totals and leader, in three round trips."""
        keys = self.keys
        with translate_errors():
            pipeline = self.client.pipeline(transaction=False)
            for name in ("active", "scheduled", "dead", "ended"):
                pipeline.zcard(keys[name])
            pipeline.hget(keys["counts"], "w")
            pipeline.zrevrangebyscore(keys["tenants"], "+inf", "(0", 0, MAX_TENANTS, withscores=True)
            pipeline.zcount(keys["tenants"], "(0", "+inf")
            pipeline.hgetall(keys["stats"])
            pipeline.hmget(keys["leader"], "owner", "until", "fault")
            pipeline.hmget(keys["fence"], "epoch", "tick")
            pipeline.zrevrange(keys["workers"], 0, MAX_WORKERS - 1, withscores=True)
            pipeline.scard(keys["quarantine"])
            pipeline.xlen(keys["ingress"])
            pipeline.zcard(keys["ready"])
            pipeline.hmget(keys["conf"], "old", "moved")
            pipeline.zcard(keys["backlog"])
            pipeline.zcard(keys["moving"])
            pipeline.zrange(keys["moving"], 0, 0, withscores=True)
            pipeline.zcard(keys["timers"])
            pipeline.zcard(keys["waiting"])
            pipeline.time()
            active, scheduled, dead, ended, *rest = pipeline.execute()
            waiting, tenants, tenant_count, stats, leader, term, workers, quarantined, *rest = rest
            ingress, ready, change, parked, moving, longest, throttled, parents, clock = rest
            for worker, _ in workers:
                pipeline.scard(keys[f"held:{worker.decode()}"])
                pipeline.hgetall(keys[f"worker:{worker.decode()}"])
            details = pipeline.execute() if workers else []
        now_ms = _clock_ms(clock)
        until_ms = int(leader[1] or 0)
        return PoolOverview(
            waiting=int(waiting or 0),
            active=active,
            scheduled=scheduled,
            parked=parked,
            throttled=throttled,
            dead=dead,
            ended=ended,
            tenants={tenant.decode(): int(number) for tenant, number in tenants},
            tenant_count=tenant_count,
            workers=[
                WorkerEntry(
                    id=worker.decode(),
                    last_ms=int(last),
                    held=details[position * 2],
                    info={name.decode(): value.decode() for name, value in details[position * 2 + 1].items()},
                )
                for position, (worker, last) in enumerate(workers)
            ],
            stats={name.decode(): int(value) for name, value in stats.items()},
            leader=leader[0].decode() if leader[0] and until_ms > now_ms else "",
            leader_fault=(leader[2] or b"").decode(),
            leader_until_ms=until_ms,
            leader_epoch=int(term[0] or 0),
            last_tick_ms=int(term[1] or 0),
            quarantined=quarantined,
            moving=moving,
            moving_since_ms=int(longest[0][1]) if longest else 0,
            ingress=ingress,
            ready=ready,
            reranking=change_of(*change),
            parents=parents,
            now_ms=now_ms,
        )
