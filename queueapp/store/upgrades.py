"""From one schema of a shard to the next: what `manage.py ductor upgrade` does, and what others are told meanwhile.

A release that changes the layout of rows or keys raises `scripts.SCHEMA`, names the old number in `scripts.EARLIER`
while its scripts still understand both, and adds a `Converter` here. Deploys then go: new processes start and work on
the old layout; the upgrade runs; processes of the old release are refused from its first moment on and say so.

While a shard is converted its schema reads "1>2", which no script accepts: nothing changes under the conversion, and
all others wait (`Upgrading`). The cursor of the last finished batch stands in the shard, so that an upgrade that was
interrupted goes on there, in whatever process. One process converts at a time; its claim runs out if it dies.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import redis
from redis.exceptions import WatchError

from queueapp.errors import Obliterating, SchemaMismatch, StoreError, Upgrading
from queueapp.store import scripts
from queueapp.store.connection import translate_errors
from queueapp.store.keys import ShardKeys

BATCH = 500
CLAIM_MS = 60_000
"""How long a silent process keeps others from going on with its upgrade. A batch must take less."""
TRIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one batch did."""

    cursor: str
    """Where the next one begins; "" when there is none."""
    converted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Converter:
    """One step from a schema to the next."""

    source: str
    target: str
    title: str
    """What changes, in a few words."""
    batch: Callable[[redis.Redis, ShardKeys, str, int], Step]
    """Converts up to so many records from a cursor on, "" being the beginning.

    A batch is repeated when its process died before the cursor was noted: what is converted already must stay as it is.
    """


CONVERTERS: dict[str, Converter] = {}
"""By the schema that they convert from. Empty: the first schema is the current one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What stands between a shard and the schema of this release."""

    schema: str
    """As the shard has it, "1>2" in the middle of an upgrade; "" when nothing was ever written to it."""
    steps: tuple[Converter, ...]

    @property
    def interrupted(self) -> bool:
        return ">" in self.schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a step is."""

    step: Converter
    converted: int
    """Records since this process began with the step."""
    done: bool


def mismatch(schema: str, script: str = "") -> StoreError:
    """The refusal of a script that met another schema than those of its release."""
    note = f" ({script})" if script else ""
    if schema == scripts.OBLITERATING:
        return Obliterating(
            "The pool is being emptied: nothing can be done with it until `manage.py ductor obliterate` is through. If "
            f"that was interrupted, run it again: it goes on.{note}"
        )
    if ">" in schema:
        source, _, target = schema.partition(">")
        return Upgrading(
            f"The pool's shard is being converted from schema {source} to {target}; it can be used when `manage.py "
            f"ductor upgrade` is through. If that was interrupted, run it again: it goes on where it stopped.{note}"
        )
    if _newer(schema):
        return SchemaMismatch(
            f"The pool's shard has schema {schema}, and this release knows {scripts.SCHEMA} at most: this process is "
            f"too old. Deploy the release that the others run; there is no way back to an older schema.{note}"
        )
    return SchemaMismatch(
        f"The pool's shard has schema {schema}, and this release works with {scripts.accepted()}: run "
        f"`manage.py ductor upgrade`.{note}"
    )


def plan(client: redis.Redis, keys: ShardKeys) -> Plan:
    """What has to be done to this shard. Raises SchemaMismatch when it is newer than this release, or too old."""
    with translate_errors():
        schema = _text(client.hget(keys["conf"], "schema"))
    if schema == scripts.OBLITERATING:
        raise mismatch(schema)
    steps = []
    at = schema.partition(">")[0]
    if schema and _newer(schema.rpartition(">")[2]):
        raise mismatch(schema.rpartition(">")[2])
    while at not in ("", scripts.SCHEMA):
        step = CONVERTERS.get(at)
        if step is None:
            raise SchemaMismatch(
                f"The pool's shard has schema {schema}, and this release converts from "
                f"{', '.join(sorted(CONVERTERS)) or 'none'}: run `ductor upgrade` of a release between them first."
            )
        steps.append(step)
        at = step.target
    return Plan(schema=schema, steps=tuple(steps))


def convert(client: redis.Redis, keys: ShardKeys, planned: Plan, *, batch: int = BATCH) -> Iterator[Progress]:
    """Carry the plan out, batch by batch; whoever stops iterating interrupts it without harm.

    Raises StoreError when another process is at it, or took it over.
    """
    token = secrets.token_hex(8)
    for step in planned.steps:
        cursor = _begin(client, keys, step, token)
        converted, first = 0, True
        while cursor or first:
            with translate_errors():
                result = step.batch(client, keys, cursor, batch)
            first, cursor, converted = False, result.cursor, converted + result.converted
            _note(client, keys, step, token, cursor)
            yield Progress(step=step, converted=converted, done=not cursor)


def scan(client: redis.Redis, keys: ShardKeys, name: str, cursor: str, limit: int) -> tuple[str, list[str]]:
    """For converters: a batch of the shard's keys that match `name` (such as "result:*"), and the next cursor."""
    following, found = client.scan(int(cursor or 0), match=keys[name], count=limit)
    return ("" if following == 0 else str(following)), [_text(key) for key in found]


def _begin(client: redis.Redis, keys: ShardKeys, step: Converter, token: str) -> str:
    """Marks the shard as being converted, by us; the cursor to begin at."""

    def begin(state: Mapping[str, str], now_ms: int) -> dict[str, Any]:
        if state.get("schema") not in (step.source, _mark(step)):
            raise StoreError(f"The shard's schema became {state.get('schema')} meanwhile; run `ductor upgrade` again.")
        if state.get("upgrader", token) != token and int(state.get("upgrader_until", 0)) > now_ms:
            raise StoreError(
                "Another `ductor upgrade` is converting this shard. Should it have died, its claim runs out within "
                f"{CLAIM_MS // 1000} s."
            )
        return {"schema": _mark(step), "upgrader": token, "upgrader_until": now_ms + CLAIM_MS}

    return _change(client, keys, begin).get("upgrade", "")


def _note(client: redis.Redis, keys: ShardKeys, step: Converter, token: str, cursor: str) -> None:
    """Notes a finished batch; with the last one the shard has its new schema."""

    def note(state: Mapping[str, str], now_ms: int) -> dict[str, Any]:
        if state.get("upgrader") != token:
            raise StoreError("Another `ductor upgrade` took this shard over, because this one was silent for too long.")
        if cursor:
            return {"upgrade": cursor, "upgrader_until": now_ms + CLAIM_MS}
        return {"schema": step.target, "upgrade": None, "upgrader": None, "upgrader_until": None}

    _change(client, keys, note)


def _change(
    client: redis.Redis, keys: ShardKeys, change: Callable[[Mapping[str, str], int], dict[str, Any]]
) -> Mapping[str, str]:
    """Read `conf` and write what `change` makes of it, as one step; None removes a field. Answers what was read."""
    name = keys["conf"]
    with translate_errors(), client.pipeline() as transaction:
        for _ in range(TRIES):
            try:
                transaction.watch(name)
                seconds, micros = transaction.time()
                state = {_text(key): _text(value) for key, value in transaction.hgetall(name).items()}
                fields = change(state, seconds * 1000 + micros // 1000)
                transaction.multi()
                if gone := [field for field, value in fields.items() if value is None]:
                    transaction.hdel(name, *gone)
                transaction.hset(name, mapping={field: value for field, value in fields.items() if value is not None})
                transaction.execute()
            except WatchError:
                continue
            return state
    raise StoreError(f"{name} kept changing; run `ductor upgrade` again.")


def _mark(step: Converter) -> str:
    return f"{step.source}>{step.target}"


def _newer(schema: str) -> bool:
    """Whatever is no number comes from a release that this one knows nothing of."""
    return not schema.isdecimal() or int(schema) > int(scripts.SCHEMA)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")
