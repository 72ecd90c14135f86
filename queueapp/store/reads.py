"""Pipelined reads of one shard for inspection: they change nothing and take no lock, so that what they answer may be a
moment old. The one read path below `inspection`, REST, admin and results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import redis
import redis.asyncio

from queueapp.store.connection import translate_errors
from queueapp.store.keys import ShardKeys
from queueapp.store.records import JobRecord, PoolConf, PoolOverview, ScopeLimits, WorkerEntry
from queueapp.store.rows import job_record

PARTS_PER_JOB = 6
MAX_TENANTS = 1_000
MAX_WORKERS = 200


def queue_job_reads(pipeline: Any, keys: ShardKeys, job_id: str) -> None:
    """Adds the six commands that read one job to a pipeline (sync or async)."""
    pipeline.get(keys.job(job_id))
    pipeline.hgetall(keys.run(job_id))
    pipeline.get(keys[f"result:{job_id}"])
    pipeline.lrange(keys[f"errors:{job_id}"], 0, -1)
    pipeline.hgetall(keys[f"data:{job_id}"])
    pipeline.zscore(keys["scheduled"], job_id)


def read_jobs(ids: Sequence[str], replies: Sequence[Any], names: Mapping[bytes, bytes]) -> list[JobRecord | None]:
    """The records behind the replies of `queue_job_reads` for each of `ids`; `names` is the hash of task names."""
    task_names = {number: name.decode() for number, name in names.items()}
    records = []
    for position, job_id in enumerate(ids):
        first = position * PARTS_PER_JOB
        text, run, result, errors, data, due = replies[first : first + PARTS_PER_JOB]
        records.append(
            job_record(
                job_id,
                text,
                run,
                result=result,
                errors=errors,
                data=data,
                due_ms=int(due or 0),
                task_names=task_names,
            )
        )
    return records


class Reads:
    """Reads of one shard. `client` must not decode replies."""

    def __init__(self, client: redis.Redis, keys: ShardKeys) -> None:
        self.client = client
        self.keys = keys

    def job(self, job_id: str) -> JobRecord | None:
        """One job; None when the store knows none of this id."""
        return self.jobs([job_id])[0]

    def jobs(self, ids: Sequence[str]) -> list[JobRecord | None]:
        """Many jobs in one round trip."""
        with translate_errors():
            pipeline = self.client.pipeline(transaction=True)
            for job_id in ids:
                queue_job_reads(pipeline, self.keys, job_id)
            pipeline.hgetall(self.keys["names"])
            *replies, names = pipeline.execute()
        return read_jobs(ids, replies, names)

    def dead(self, *, tenant: str = "", offset: int = 0, count: int = 50) -> list[JobRecord]:
        """A page of dead letters, newest first; of one tenant when one is given."""
        name = f"dead:{tenant}" if tenant else "dead"
        with translate_errors():
            found: Any = self.client.zrevrange(self.keys[name], offset, offset + count - 1)
        records = self.jobs([job_id.decode() for job_id in found]) if found else []
        return [record for record in records if record is not None]

    def dead_count(self, *, tenant: str = "") -> int:
        """Number of dead letters, of one tenant when one is given."""
        with translate_errors():
            size: Any = self.client.zcard(self.keys[f"dead:{tenant}" if tenant else "dead"])
        return int(size)

    def configured(self) -> PoolConf:
        """The pool's configuration in force."""
        with translate_errors():
            stored: Any = self.client.hgetall(self.keys["conf"])
        conf = {name.decode(): value.decode() for name, value in stored.items()}
        return PoolConf(
            policy=conf.get("policy", "tiered"),
            paused=conf.get("paused") == "1",
            max_in_flight=int(conf["max"]) if conf.get("max") else None,
            cost_unit=conf.get("unit", "ms"),
            default_cost=float(conf.get("cost", 50)),
            default_weight=float(conf.get("weight", 1)),
        )

    def version(self) -> int:
        """Version of the configuration in force; 0 = never configured."""
        with translate_errors():
            stored: Any = self.client.hget(self.keys["conf"], "version")
        return int(stored or 0)

    def scope_limits(self) -> dict[tuple[str, str], ScopeLimits]:
        """What is configured for tenants `(tenant, "")` and lanes `(tenant, lane)`."""
        limits = {}
        with translate_errors():
            for field, packed in self.client.hscan_iter(self.keys["limits"], count=1_000):
                kind, _, name = field.decode().partition(":")
                tenant, _, lane = name.partition("|") if kind == "l" else (name, "", "")
                weight, ceiling, paused, _ = packed.decode().split("|")
                limits[tenant, lane] = ScopeLimits(
                    tenant=tenant,
                    lane=lane,
                    weight=float(weight),
                    max_in_flight=int(ceiling) if ceiling else None,
                    paused=paused == "1",
                )
        return limits

    def overview(self) -> PoolOverview:
        """Sizes, tenants, workers, totals and leader, in three round trips."""
        keys = self.keys
        with translate_errors():
            pipeline = self.client.pipeline(transaction=False)
            for name in ("active", "scheduled", "dead", "ended"):
                pipeline.zcard(keys[name])
            pipeline.hget(keys["counts"], "w")
            pipeline.hscan(keys["counts"], 0, match="w:*", count=MAX_TENANTS)
            pipeline.hgetall(keys["stats"])
            pipeline.hmget(keys["leader"], "owner", "until")
            pipeline.zrevrange(keys["workers"], 0, MAX_WORKERS - 1, withscores=True)
            pipeline.scard(keys["quarantine"])
            pipeline.time()
            active, scheduled, dead, ended, waiting, page, stats, leader, workers, quarantined, clock = (
                pipeline.execute()
            )
            for worker, _ in workers:
                pipeline.scard(keys[f"held:{worker.decode()}"])
                pipeline.hgetall(keys[f"worker:{worker.decode()}"])
            details = pipeline.execute() if workers else []
        now_ms = clock[0] * 1000 + clock[1] // 1000
        until_ms = int(leader[1] or 0)
        return PoolOverview(
            waiting=int(waiting or 0),
            active=active,
            scheduled=scheduled,
            dead=dead,
            ended=ended,
            tenants={field.decode()[2:]: int(value) for field, value in page[1].items()},
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
            quarantined=quarantined,
            now_ms=now_ms,
        )
