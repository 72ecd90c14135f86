"""The server, asked: everything that its own words (`fitness`), its clock and its rights tell about keeping a queue.

Called by `manage.py ductor doctor`; changes nothing. What a server does not tell (managed ones refuse CONFIG, some INFO
and ACL) is `unknown`, which is no fault.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import redis
from redis.exceptions import ResponseError

from queueapp.store import scripts
from queueapp.store.connection import translate_errors
from queueapp.store.fitness import Remark, of_info
from queueapp.store.keys import ShardKeys
from queueapp.store.sentinels import of_sentinels

CLOCK_WARN_MS, CLOCK_ERROR_MS, CLOCK_CLAMPED_MS = 2_000, 60_000, 5_000
CALLED_BY_CLIENTS = frozenset(
    {
        "BLPOP",
        "BZPOPMIN",
        "DEL",
        "EVAL",
        "EVALSHA",
        "EXEC",
        "EXPIRE",
        "FCALL",
        "FUNCTION",
        "GET",
        "GETRANGE",
        "HGET",
        "HGETALL",
        "HMGET",
        "HSCAN",
        "HSET",
        "HSETNX",
        "INFO",
        "LPOP",
        "LRANGE",
        "MULTI",
        "PING",
        "PUBSUB",
        "SCAN",
        "SCARD",
        "SCRIPT",
        "SET",
        "SMEMBERS",
        "SSCAN",
        "SSUBSCRIBE",
        "SUBSCRIBE",
        "TIME",
        "WATCH",
        "XAUTOCLAIM",
        "XGROUP",
        "XLEN",
        "XRANGE",
        "XREADGROUP",
        "ZCARD",
        "ZCOUNT",
        "ZMSCORE",
        "ZRANGE",
        "ZRANGEBYSCORE",
        "ZREVRANGE",
        "ZREVRANGEBYSCORE",
        "ZSCAN",
        "ZSCORE",
    }
)
"""Commands that no script calls, or not only scripts. What scripts call is read from their text."""
OPTIONAL = {
    "FCALL": "calls go as scripts, which takes the server more time",
    "FUNCTION": "calls go as scripts, which takes the server more time",
    "SUBSCRIBE": "the death of a worker or a leader shows when its lease ends, not at once",
    "SSUBSCRIBE": 'only LEADER_PRESENCE "shard" needs it',
    "PUBSUB": "the death of a worker or a leader shows when its lease ends, not at once",
    "INFO": "nobody can be warned of an unsafe server, and who empties a pool does not notice a failover",
}
"""Without these Ductor works, but …"""
SUBCOMMANDS = {"FUNCTION": ("LOAD", "x"), "SCRIPT": ("LOAD", "x"), "PUBSUB": ("NUMSUB",), "XGROUP": ("CREATE",)}


def of_server(client: redis.Redis, keys: ShardKeys) -> Iterator[Remark]:
    """Every rule. Raises StoreError when the server cannot be asked at all."""
    with translate_errors():
        client.ping()
    info = _asked(lambda: client.info("everything"))
    config = _asked(lambda: client.config_get("*")) or {}
    if info is None:
        yield Remark(check="info", level="unknown", text="INFO could not be read: version, memory and persistence.")
    else:
        yield from of_info(info, {_text(name): _text(value) for name, value in config.items()})
    yield from of_sentinels(info or {})
    yield _clock(client)
    yield from _commands(client)
    yield from _rights(client, keys)
    yield _libraries(client)


def _clock(client: redis.Redis) -> Remark:
    before = time.time()
    with translate_errors():
        seconds, micros = client.time()
    after = time.time()
    there = seconds + micros / 1e6
    off_ms = max(0.0, before - there, there - after) * 1000
    if off_ms < CLOCK_WARN_MS:
        return Remark(check="clock", level="well", text="The server's clock agrees with this machine's.")
    return Remark(
        check="clock",
        level="error" if off_ms >= CLOCK_ERROR_MS else "warning",
        text=f"The server's clock and this machine's differ by {off_ms / 1000:.1f} s: times of `run_after` are by one, "
        "leases by the other.",
        remedy="Let both machines set their clocks by NTP.",
    )


def called() -> list[str]:
    """Every command that scripts and clients use."""
    found = set(CALLED_BY_CLIENTS)
    for name in scripts.names():
        found |= set(re.findall(r"redis\.p?call\('([A-Z]+)'", scripts.script(name).text.decode()))
    return sorted(found)


def _commands(client: redis.Redis) -> Iterator[Remark]:
    names = called()
    found = _asked(lambda: client.execute_command("COMMAND"))
    if found is None:
        yield Remark(check="commands", level="unknown", text="COMMAND could not be asked: which commands there are.")
        return
    known = {_text(name).upper() for name in found}
    missing = [name for name in names if name not in known]
    yield from _lacking("commands", missing, "The server has no command {name}.", "Ask who runs the server for it.")
    if not missing:
        yield Remark(check="commands", level="well", text=f"The server has all {len(names)} commands that are used.")


def _rights(client: redis.Redis, keys: ShardKeys) -> Iterator[Remark]:
    """What the user of the connection may do, by ACL DRYRUN, on a key of ours and on a channel of ours."""
    user = _asked(lambda: client.execute_command("ACL", "WHOAMI"))
    infos = _asked(lambda: client.execute_command("COMMAND"))
    if user is None or not isinstance(infos, dict):
        yield Remark(check="rights", level="unknown", text="ACL could not be asked: what the user may do.")
        return
    denied = []
    for name in called():
        entry = infos.get(name.lower()) or infos.get(name.lower().encode())
        if entry is None:
            continue
        try:
            with translate_errors():
                answer = client.execute_command("ACL", "DRYRUN", user, name, *_sample(name, entry, keys))
        except Exception as error:
            if not isinstance(error.__cause__, ResponseError) or "no permission" in str(error.__cause__).lower():
                yield Remark(check="rights", level="unknown", text="ACL DRYRUN is refused: what the user may do.")
                return
            continue  # our sample was not to its taste
        if _text(answer) != "OK":
            denied.append(name)
    pattern = f"~{{{keys.namespace}:*"
    yield from _lacking(
        "rights",
        denied,
        f"The user {_text(user)!r} may not call {{name}} on the keys and channels of {keys.namespace!r}.",
        f"Give it `{pattern} ~{keys.namespace}:* &{{{keys.namespace}:*` and `+{{lower}}` (docs/operations.md).",
    )
    if not denied:
        yield Remark(check="rights", level="well", text=f"The user {_text(user)!r} may do all that is needed.")


def _lacking(check: str, names: Sequence[str], text: str, remedy: str) -> Iterator[Remark]:
    for name in names:
        without = OPTIONAL.get(name)
        yield Remark(
            check=check,
            level="note" if name == "SSUBSCRIBE" else "warning" if without else "error",
            text=text.format(name=name) + (f" Without it {without}." if without else ""),
            remedy=remedy.replace("{lower}", name.lower()),
        )


def _sample(name: str, entry: Mapping[str, Any], keys: ShardKeys) -> list[Any]:
    """Arguments with which a command would be called, of the right number, with a key of ours where it has one."""
    key = keys["doctor"]
    if name in ("SUBSCRIBE", "SSUBSCRIBE"):
        return [keys["presence:doctor"]]
    if name in ("EVAL", "EVALSHA", "FCALL"):
        return ["x", 1, key]
    if name in ("XREADGROUP",):
        return ["GROUP", "g", "c", "STREAMS", key, ">"]
    if name in SUBCOMMANDS:
        return [*SUBCOMMANDS[name], *([key, "g", "$"] if name == "XGROUP" else [])]
    number = max(abs(int(entry.get("arity", 1))) - 1, 0)
    arguments: list[Any] = ["1"] * number
    first = int(entry.get("first_key_pos", 0))
    if 0 < first <= number:
        arguments[first - 1] = key
    return arguments


def _libraries(client: redis.Redis) -> Remark:
    found = _asked(lambda: client.execute_command("FUNCTION", "LIST", "LIBRARYNAME", f"{scripts.PREFIX}*"))
    if found is None:
        return Remark(check="functions", level="unknown", text="FUNCTION LIST could not be asked.")
    ours = {scripts.script(name).function for name in scripts.names()}
    names = {library_name(entry) for entry in found}
    others = len(names - ours)
    old = f"; {others} of other releases, which the next scheduler that starts removes" if others else ""
    return Remark(
        check="functions",
        level="note" if others else "well",
        text=f"{len(names & ours)} of {len(ours)} functions are loaded, the others when they are first called{old}.",
    )


def library_name(entry: Any) -> str:
    fields = entry if isinstance(entry, dict) else dict(zip(entry[::2], entry[1::2], strict=True))
    return bytes(fields[b"library_name"]).decode()


def clock_mark(client: redis.Redis, keys: ShardKeys) -> Remark | None:
    """A shard remembers the last moment; a server whose clock is behind it was set back, or is another one."""
    with translate_errors():
        stored = client.hget(keys["marks"], "clock")
        seconds, micros = client.time()
    ahead_ms = int(stored or 0) - (seconds * 1000 + micros // 1000)
    if ahead_ms <= 1_000:
        return None
    clamped = ahead_ms <= CLOCK_CLAMPED_MS
    return Remark(
        check="clock",
        level="note" if clamped else "warning",
        text=f"The server's clock is {ahead_ms / 1000:.1f} s behind the last moment that the pool has seen: it was set "
        "back, or another server has taken over.",
        remedy="It is made up for." if clamped else "Leases last longer by as much. Look at the server's NTP.",
    )


def _asked(call: Callable[[], Any]) -> Any:
    """None: the server does not tell (not permitted, or renamed away, as managed ones do)."""
    try:
        return call()
    except ResponseError:
        return None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
