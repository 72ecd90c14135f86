"""Pipelined reads of one shard for inspection: they change nothing and take no lock, so that what they answer may be a
moment old. The one read path below `inspection`, REST, admin and results.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import redis
import redis.asyncio
from redis.exceptions import ResponseError

from queueapp.errors import StoreError
from queueapp.store.connection import translate_errors
from queueapp.store.keys import ShardKeys
from queueapp.store.queues import QueueReads, change_of
from queueapp.store.rates import unpack_front
from queueapp.store.records import (
    GroupEntry,
    JobRecord,
    KeyLimits,
    PoolConf,
    PoolOverview,
    ScopeLimits,
    TenantEntry,
    WorkerEntry,
)
from queueapp.store.rows import job_record
from queueapp.store.store import Store

logger = logging.getLogger(__name__)

PARTS_PER_JOB = 6
HEADER_BYTES = 400
MAX_TENANTS = 1_000
MAX_WORKERS = 200


def queue_job_reads(pipeline: Any, keys: ShardKeys, ids: Sequence[str]) -> None:
    """Adds the commands that read these jobs to a pipeline (sync or async): six for each, then the names of tasks."""
    for job_id in ids:
        pipeline.get(keys.job(job_id))
        pipeline.hgetall(keys.run(job_id))
        pipeline.get(keys[f"result:{job_id}"])
        pipeline.lrange(keys[f"errors:{job_id}"], 0, -1)
        pipeline.hgetall(keys[f"data:{job_id}"])
        pipeline.zscore(keys["scheduled"], job_id)
    pipeline.hgetall(keys["names"])


class WrongType(ResponseError):
    """A key of ours holds a value of another type: another program writes under the same names."""


def check_replies(replies: Sequence[Any]) -> None:
    """Raises the first of the errors among the replies of a pipeline that was told not to; WrongType for that kind."""
    for reply in replies:
        if isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE"):
            raise WrongType(str(reply)) from reply
        if isinstance(reply, Exception):
            raise reply


def read_jobs(
    ids: Sequence[str], replies: Sequence[Any], names: Mapping[bytes, bytes], *, lenient: bool = False
) -> list[JobRecord | None]:
    """The records behind the replies of `queue_job_reads` for each of `ids`; `names` is the hash of task names.

    A row that is none of this release's raises StoreError; `lenient`, for lists: it is left out, so that the others
    are seen.
    """
    task_names = {number: name.decode(errors="replace") for number, name in names.items()}
    records = []
    for position, job_id in enumerate(ids):
        first = position * PARTS_PER_JOB
        text, run, result, errors, data, due = parts = replies[first : first + PARTS_PER_JOB]
        try:
            check_replies(parts)
            record = job_record(
                job_id,
                text,
                run,
                result=result,
                errors=errors,
                data=data,
                due_ms=int(due or 0),
                task_names=task_names,
            )
        except (ValueError, KeyError, WrongType) as error:
            fault = StoreError(
                f"The row of job {job_id} cannot be read by this release ({type(error).__name__}): a newer one has "
                "written it, or another program writes under the same names."
            )
            if not lenient:
                raise fault from error
            logger.warning(str(fault), extra={"job_id": job_id})
            record = None
        records.append(record)
    return records


class StoredLimits(NamedTuple):
    """What the store keeps of a scope's limits. `counted` = its slots are kept and complete."""

    weight: float
    ceiling: int | None
    paused: bool
    counted: bool
    min_share: int


def unpack_limits(packed: bytes) -> StoredLimits:
    weight, ceiling, paused, minimum, filling = packed.decode().split("|")
    return StoredLimits(
        weight=float(weight),
        ceiling=int(ceiling) if ceiling else None,
        paused=paused == "1",
        counted=bool(ceiling or minimum) and filling != "1",
        min_share=int(minimum or 0),
    )


def _clock_ms(clock: tuple[int, int]) -> int:
    return clock[0] * 1000 + clock[1] // 1000


class Reads:
    """Reads of one shard. `client` must not decode replies."""

    def __init__(self, client: redis.Redis, keys: ShardKeys) -> None:
        self.client = client
        self.keys = keys
        scripts = Store(client, keys)
        self.browse, self.peek, self.oldest, self.explain = (
            scripts.browse,
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

    def behind(self, index: str) -> int:
        """A moment behind everything that an index by time of death or end holds now, in ms."""
        with translate_errors():
            pipeline = self.client.pipeline(transaction=False)
            pipeline.zrevrange(self.keys[index], 0, 0, withscores=True)
            pipeline.time()
            newest, clock = pipeline.execute()
        return 1 + max(_clock_ms(clock), int(newest[0][1]) if newest else 0)

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

    def weights(self, tenants: Sequence[str]) -> dict[str, float]:
        """The weights of these tenants, configured or the pool's default. One round trip."""
        with translate_errors():
            pipeline = self.client.pipeline(transaction=False)
            pipeline.hget(self.keys["conf"], "weight")
            pipeline.hmget(self.keys["limits"], [f"t:{tenant}" for tenant in tenants])
            default, packed = pipeline.execute()
        return {
            tenant: float(default or 1) if limits is None else unpack_limits(limits).weight
            for tenant, limits in zip(tenants, packed, strict=True)
        }

    def configured(self) -> PoolConf:
        """The pool's configuration in force."""
        with translate_errors():
            stored: Any = self.client.hgetall(self.keys["conf"])
        conf = {name.decode(): value.decode() for name, value in stored.items()}
        return PoolConf(
            policy=conf.get("policy", "tiered"),
            by=conf.get("by", "deadline"),
            step_ms=int(conf.get("step", 60_000)),
            paused=conf.get("paused") == "1",
            max_in_flight=int(conf["max"]) if conf.get("max") else None,
            cost_unit=conf.get("unit", "ms"),
            default_cost=float(conf.get("cost", 50)),
            default_weight=float(conf.get("weight", 1)),
            dispatch="scheduled" if conf.get("mode") == "scheduled" else "direct",
            window=int(conf.get("window", 0)),
            backlog_limit=int(conf["room"]) if "room" in conf else None,
            continue_weight=int(conf.get("draw", 10)),
        )

    def version(self) -> int:
        """Version of the configuration in force; 0 = never configured."""
        with translate_errors():
            stored: Any = self.client.hget(self.keys["conf"], "version")
        return int(stored or 0)

    def scope_limits(self) -> dict[tuple[str, str], ScopeLimits]:
        """What is configured for tenants `(tenant, "")` and lanes `(tenant, lane)`."""
        return self.limits()[0]

    def key_limits(self) -> dict[str, KeyLimits]:
        """What is configured for concurrency keys, by the digest of their pattern."""
        return self.limits()[1]

    def limits(self) -> tuple[dict[tuple[str, str], ScopeLimits], dict[str, KeyLimits]]:
        """Both of these."""
        limits: dict[tuple[str, str], ScopeLimits] = {}
        keys: dict[str, KeyLimits] = {}
        fronts: dict[str, bytes] = {}
        with translate_errors():
            for field, packed in self.client.hscan_iter(self.keys["limits"], count=1_000):
                kind, _, name = field.decode().partition(":")
                if kind in {"ft", "fl", "fk"}:
                    fronts[f"{kind}:{name}"] = packed
                    continue
                if kind == "kp":
                    ceiling, _, text = packed.decode().partition("|")
                    keys[name] = KeyLimits(pattern=name, text=text, max_in_flight=int(ceiling) if ceiling else None)
                    continue
                tenant, _, lane = name.partition("|") if kind == "l" else (name, "", "")
                stored = unpack_limits(packed)
                limits[tenant, lane] = ScopeLimits(
                    tenant=tenant,
                    lane=lane,
                    weight=stored.weight,
                    max_in_flight=stored.ceiling,
                    min_share=stored.min_share,
                    paused=stored.paused,
                )
        for field, packed in fronts.items():
            kind, _, name = field.partition(":")
            rate, backlog_limit = unpack_front(packed)
            if kind == "fk":
                keys[name] = replace(keys[name], rate=rate)
            else:
                tenant, _, lane = name.partition("|")
                limits[tenant, lane] = replace(limits[tenant, lane], rate=rate, backlog_limit=backlog_limit)
        return limits, keys

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
            pipeline.hmget(keys["leader"], "owner", "until")
            pipeline.hmget(keys["fence"], "epoch", "tick")
            pipeline.zrevrange(keys["workers"], 0, MAX_WORKERS - 1, withscores=True)
            pipeline.scard(keys["quarantine"])
            pipeline.xlen(keys["ingress"])
            pipeline.zcard(keys["ready"])
            pipeline.hmget(keys["conf"], "old", "moved")
            pipeline.zcard(keys["backlog"])
            pipeline.time()
            active, scheduled, dead, ended, *rest = pipeline.execute()
            waiting, tenants, tenant_count, stats, leader, term, workers, quarantined, *rest = rest
            ingress, ready, change, parked, clock = rest
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
            leader_until_ms=until_ms,
            leader_epoch=int(term[0] or 0),
            last_tick_ms=int(term[1] or 0),
            quarantined=quarantined,
            ingress=ingress,
            ready=ready,
            reranking=change_of(*change),
            now_ms=now_ms,
        )
