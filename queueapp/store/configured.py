"""Reads of what is configured in one shard: the pool, its tenants and lanes, its concurrency keys.

`reads.Reads` is built on it. `sync` compares what it answers with what the database wants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import redis

from queueapp.names import SYSTEM_TENANT, SYSTEM_WEIGHT
from queueapp.policies.registry import DIRECT
from queueapp.store.configuration import KeyLimits, PoolConf, Rate, ScopeLimits
from queueapp.store.connection import translate_errors
from queueapp.store.keys import ShardKeys
from queueapp.store.rates import unpack_dispatch, unpack_front


class StoredLimits(NamedTuple):
    """What the store keeps of a scope's limits. `counted` = its slots are kept and complete."""

    weight: float
    ceiling: int | None
    paused: bool
    counted: bool
    min_share: int
    dispatch_rate: Rate | None


def unpack_limits(packed: bytes) -> StoredLimits:
    weight, ceiling, paused, minimum, filling, *dispatch = packed.decode().split("|")
    return StoredLimits(
        weight=float(weight),
        ceiling=int(ceiling) if ceiling else None,
        paused=paused == "1",
        counted=bool(ceiling or minimum) and filling != "1",
        min_share=int(minimum or 0),
        dispatch_rate=unpack_dispatch(dispatch[0]) if dispatch else None,
    )


def default_weight(tenant: str, pool: bytes | None) -> float:
    """The weight of a tenant without limits of its own; `pool`: as the pool's configuration keeps it."""
    return SYSTEM_WEIGHT if tenant == SYSTEM_TENANT else float(pool or 1)


def unlimited(client: redis.Redis, keys: ShardKeys, scopes: Sequence[tuple[str, str]]) -> tuple[int, list[bool]]:
    """The version of the configuration, and of each (tenant, lane) whether nothing in it holds its jobs back: pause,
    ceiling, guaranteed minimum, rate or room, of the pool, the tenant or the lane; nor a leader who chooses.

    One round trip, the version first: with what came later, it is too old, and the next answer of `cycle` says so.
    """
    tenants, lanes = [f"t:{tenant}" for tenant, _ in scopes], [f"l:{tenant}|{lane}" for tenant, lane in scopes]
    with translate_errors():
        pipeline = client.pipeline(transaction=False)
        pipeline.hmget(keys["conf"], "version", "paused", "max", "room", "mode", "policy")
        for names in (tenants, lanes):
            pipeline.hmget(keys["limits"], names)
            pipeline.hmget(keys["limits"], [f"f{name}" for name in names])
        (version, paused, ceiling, room, mode, policy), *found = pipeline.execute()
    closed = paused == b"1" or ceiling or room or mode == b"scheduled" or (policy and policy.decode() not in DIRECT)
    return int(version or 0), [
        not (closed or _holds_back(tenant, tenant_front) or _holds_back(lane, lane_front))
        for tenant, tenant_front, lane, lane_front in zip(*found, strict=True)
    ]


def _holds_back(packed: bytes | None, front: bytes | None) -> bool:
    if packed is None:
        return front is not None
    stored = unpack_limits(packed)
    return bool(front or stored.paused or stored.ceiling is not None or stored.min_share or stored.dispatch_rate)


class ConfigurationReads:
    """Reads of one shard. `client` must not decode replies."""

    def __init__(self, client: redis.Redis, keys: ShardKeys) -> None:
        self.client = client
        self.keys = keys

    def weights(self, tenants: Sequence[str]) -> dict[str, float]:
        """The weights of these tenants, configured or the pool's default. One round trip."""
        with translate_errors():
            pipeline = self.client.pipeline(transaction=False)
            pipeline.hget(self.keys["conf"], "weight")
            pipeline.hmget(self.keys["limits"], [f"t:{tenant}" for tenant in tenants])
            default, packed = pipeline.execute()
        return {
            tenant: default_weight(tenant, default) if limits is None else unpack_limits(limits).weight
            for tenant, limits in zip(tenants, packed, strict=True)
        }

    def configured(self) -> PoolConf:
        """The pool's configuration in force."""
        return self.in_force()[0]

    def in_force(self) -> tuple[PoolConf, int]:
        """The pool's configuration in force, and the version of the one that began the order in which jobs wait."""
        with translate_errors():
            stored: Any = self.client.hgetall(self.keys["conf"])
        conf = {name.decode(): value.decode() for name, value in stored.items()}
        found = PoolConf(
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
        return found, int(conf.get("order", 0))

    def is_paused(self, tenant: str = "", lane: str = "") -> bool:
        """Whether the pool is paused, as far as the store knows; with `tenant` whether that, or its `lane`, is."""
        with translate_errors():
            if not tenant:
                paused: Any = self.client.hget(self.keys["conf"], "paused")
                return bool(paused == b"1")
            field = f"l:{tenant}|{lane}" if lane else f"t:{tenant}"
            packed: Any = self.client.hget(self.keys["limits"], field)
        return packed is not None and unpack_limits(packed).paused

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
                    told, _, text = packed.decode().partition("|")
                    ceiling, _, dispatch = told.partition(",")
                    keys[name] = KeyLimits(
                        pattern=name,
                        text=text,
                        max_in_flight=int(ceiling) if ceiling else None,
                        dispatch_rate=unpack_dispatch(dispatch),
                    )
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
                    dispatch_rate=stored.dispatch_rate,
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
