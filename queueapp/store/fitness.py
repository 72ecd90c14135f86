"""Is this server fit to keep a queue? One rule for each thing that makes it unfit, with what to do about it.

`safety.check_server` warns by the same rules when a worker or a scheduler starts, `examination` shows all of them to
`manage.py ductor doctor`. Pure: what INFO and CONFIG answered is handed in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["well", "note", "unknown", "warning", "error"]
OLDEST = (7, 0)
"""Redis 7.0: functions, and flags of scripts. Valkey reports 7.2 as the Redis version that it is compatible with."""
NEARLY_FULL, FRAGMENTED, FRAGMENTED_LEAST = 0.8, 1.5, 200_000_000
CROWDED = 0.8
"""The share of `maxclients` above which a deploy, which doubles the processes for a while, may find no room."""
SHORT_TIMEOUT_S = 30
"""Connections that rest for less than this are closed: every call then begins with a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What one rule says."""

    check: str
    level: Level
    text: str
    remedy: str = ""
    loses: bool = False
    """The queue, or jobs of it, may be lost: who starts is warned."""

    @property
    def sentence(self) -> str:
        return f"{self.text} {self.remedy}".rstrip()


def version_of(info: Mapping[str, Any]) -> Remark:
    """Too old is an error that no waiting mends."""
    version = str(info.get("redis_version", "0"))
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2] or [0]) < OLDEST:
        return Remark(
            check="version",
            level="error",
            text=f"The server is Redis {version}; Redis 7.0 or any Valkey is the oldest that works.",
        )
    name = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {version}"
    return Remark(check="version", level="well", text=f"The server is {name}.")


def of_info(info: Mapping[str, Any], config: Mapping[str, str]) -> Iterator[Remark]:
    """What INFO tells, and CONFIG where it may be read (else it is empty)."""
    yield version_of(info)
    if int(info.get("cluster_enabled", 0) or 0):
        yield Remark(
            check="cluster",
            level="error",
            text="The server is a node of a cluster, and Ductor does not speak to clusters.",
            remedy="Use a single primary, with Sentinel or a managed fail-over. Never migrate slots of a live pool in "
            "the classic way: it cuts scripts in two (drain first, or use the atomic migration of Valkey 9).",
        )
    if info.get("role", "master") != "master":
        yield Remark(
            check="role",
            level="error",
            text="The server is a replica, which takes no writes.",
            remedy="Name the primary, or its Sentinels, in DUCTOR['REDIS_URL'].",
        )
    yield eviction_of(info)
    yield from persistence_of(info, config)
    yield from _replicas_of(info, config)
    yield from _refusals_of(info, config)
    yield from memory_of(info)
    yield from _clients_of(info)
    yield from _sockets_of(config)


def eviction_of(info: Mapping[str, Any]) -> Remark:
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy == "noeviction":
        return Remark(check="eviction", level="well", text="maxmemory-policy is noeviction.")
    return Remark(
        check="eviction",
        level="error",
        text=f"The server's maxmemory-policy is {policy}: it may silently drop jobs.",
        remedy="Set `maxmemory-policy noeviction`.",
        loses=True,
    )


def persistence_of(info: Mapping[str, Any], config: Mapping[str, str]) -> Iterator[Remark]:
    """The append-only file; a replica stands in for it, a snapshot does for a part."""
    if info.get("aof_enabled"):
        if info.get("aof_last_write_status", "ok") != "ok":
            yield Remark(
                check="persistence",
                level="error",
                text="The server's last write to its append-only file failed.",
                remedy="Look at its disk: until then it refuses writes, or loses what comes.",
            )
        fsync = config.get("appendfsync", "")
        if fsync == "no":
            yield Remark(
                check="persistence",
                level="warning",
                text="appendfsync is no: what the host loses with its power is up to the system.",
                remedy="Set `appendfsync everysec`, or `always`.",
            )
        else:
            lost = {"everysec": "; a power cut may cost a second of it", "": "; how it is synced could not be read"}
            yield Remark(
                check="persistence",
                level="well",
                text=f"The server keeps an append-only file{lost.get(fsync, f', appendfsync {fsync}')}.",
            )
    elif info.get("role") == "master" and not info.get("connected_slaves"):
        snapshots = config.get("save", "")
        yield Remark(
            check="persistence",
            level="warning" if snapshots else "error",
            text="The server keeps no append-only file: when it dies "
            + ("all since its last snapshot is lost." if snapshots else "its queue is lost."),
            remedy="Set `appendonly yes`.",
            loses=True,
        )
    else:
        yield Remark(
            check="persistence",
            level="warning",
            text="The server keeps no append-only file; its replicas alone would have the queue.",
            remedy="Set `appendonly yes` on all of them.",
        )


def _replicas_of(info: Mapping[str, Any], config: Mapping[str, str]) -> Iterator[Remark]:
    number = int(info.get("connected_slaves", 0) or 0)
    least = config.get("min-replicas-to-write")
    in_step = int(info.get("min_slaves_good_slaves", number) or 0)
    if least is not None and in_step < int(least):
        yield Remark(
            check="replicas",
            level="error",
            text=f"The server refuses all writes: {in_step} replicas are in step, min-replicas-to-write is {least}.",
            remedy="Start the replicas, or lower `min-replicas-to-write` for as long as they are away.",
        )
    elif not number:
        return
    elif least is None:
        yield Remark(check="replicas", level="unknown", text="min-replicas-to-write could not be read.")
    elif least == "0":
        yield Remark(
            check="replicas",
            level="warning",
            text="min-replicas-to-write is 0: a primary that is cut off takes jobs on, which the fail-over loses.",
            remedy="Set `min-replicas-to-write 1` and `min-replicas-max-lag 10`.",
        )
    else:
        yield Remark(check="replicas", level="well", text=f"min-replicas-to-write is {least}, of {number} replicas.")


def _refusals_of(info: Mapping[str, Any], config: Mapping[str, str]) -> Iterator[Remark]:
    """What makes a server take nothing on although it answers."""
    failed = info.get("rdb_last_bgsave_status", "ok") != "ok" and config.get("save", "") != ""
    if failed and config.get("stop-writes-on-bgsave-error", "yes") == "yes":
        yield Remark(
            check="writes",
            level="error",
            text="The server refuses all writes: its last snapshot failed.",
            remedy="Look at its disk and its log. With an append-only file snapshots are not needed: set `save ''`.",
        )
    if info.get("paused_reason", "none") not in ("none", ""):
        yield Remark(
            check="writes",
            level="warning",
            text=f"The server lets its clients wait ({info['paused_reason']}, "
            f"{info.get('paused_actions', 'all')}) for {int(info.get('paused_timeout_milliseconds', 0)) / 1000:.1f} s "
            "more.",
            remedy="A fail-over by hand does so for a moment. Else somebody said CLIENT PAUSE; CLIENT UNPAUSE ends it.",
        )


def _clients_of(info: Mapping[str, Any]) -> Iterator[Remark]:
    there, most = int(info.get("connected_clients", 0) or 0), int(info.get("maxclients", 0) or 0)
    if most and there > CROWDED * most:
        yield Remark(
            check="clients",
            level="warning",
            text=f"{there:,} of at most {most:,} connections are open; who finds none left is refused.",
            remedy="Raise `maxclients` (and the limit of open files), or start fewer processes.",
        )


def is_full(info: Mapping[str, Any]) -> bool:
    """The next job would be refused."""
    most = int(info.get("maxmemory", 0) or 0)
    used = int(info.get("used_memory", 0) or 0) - int(info.get("mem_not_counted_for_evict", 0) or 0)
    return bool(most) and used > most


def memory_of(info: Mapping[str, Any]) -> Iterator[Remark]:
    used, most = int(info.get("used_memory", 0) or 0), int(info.get("maxmemory", 0) or 0)
    if is_full(info):
        yield Remark(
            check="memory",
            level="error",
            text="The server is full (`maxmemory` reached) and refuses new jobs.",
            remedy="Raise `maxmemory`, or let work end.",
        )
    elif most and used > NEARLY_FULL * most:
        yield Remark(
            check="memory",
            level="warning",
            text=f"The server uses {used / most:.0%} of its maxmemory; at 100% it refuses new jobs.",
            remedy="Raise `maxmemory`, shorten RESULT_TTL, or look for a pool that fills up (`ductor status`).",
        )
    elif most:
        yield Remark(check="memory", level="well", text=f"The server uses {used / most:.0%} of its maxmemory.")
    else:
        yield Remark(
            check="memory",
            level="note",
            text="There is no maxmemory: a queue that grows takes all of the host's memory, and the server dies of it.",
            remedy="Set `maxmemory` below what the host has: then new jobs are refused instead.",
        )
    ratio = float(info.get("mem_fragmentation_ratio", 1) or 1)
    if ratio > FRAGMENTED and used > FRAGMENTED_LEAST:
        yield Remark(
            check="memory",
            level="warning",
            text=f"The server's memory is fragmented: it takes {ratio:.1f} times what it uses.",
            remedy="Set `activedefrag yes`.",
        )


def _sockets_of(config: Mapping[str, str]) -> Iterator[Remark]:
    """A parked worker and a sign of life are safe from `timeout`: the server counts neither as idle."""
    if not config:
        yield Remark(check="sockets", level="unknown", text="timeout and tcp-keepalive could not be read.")
        return
    timeout, alive = int(config.get("timeout", 0) or 0), int(config.get("tcp-keepalive", 300) or 0)
    if 0 < timeout < SHORT_TIMEOUT_S:
        yield Remark(
            check="sockets",
            level="warning",
            text=f"The server closes connections that rest for {timeout} s: web processes begin anew each time.",
            remedy="Set `timeout 0`, or 300.",
        )
    if alive == 0:
        yield Remark(
            check="sockets",
            level="warning",
            text="tcp-keepalive is 0: the server does not notice that a host is gone, and takes its workers for alive.",
            remedy="Set `tcp-keepalive 60`.",
        )
    if alive and not 0 < timeout < SHORT_TIMEOUT_S:
        yield Remark(check="sockets", level="well", text=f"timeout is {timeout}, tcp-keepalive {alive}.")
