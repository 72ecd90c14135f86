"""A process that calls one script over a wire and dies there: `python -m tests.faults.victim NAME WIRE SERVER PREFIX`.

It prepares the shard over `SERVER`, says so, waits for a line, calls the script over `WIRE`, and says so again.
"""

from __future__ import annotations

import os
import sys

import django
import redis


def main(name: str, wire: str, server: str, namespace: str, code: str) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from queueapp.store.keys import ShardKeys
    from queueapp.store.store import Store
    from tests.lua.harness import Shard
    from tests.lua.test_replay import scene

    keys = ShardKeys(namespace, code)
    shard = Shard(redis.Redis.from_url(server, protocol=2, socket_timeout=30), keys)
    over_wire = Store(redis.Redis.from_url(wire, protocol=2, socket_timeout=30), keys, clock_ms=lambda: shard.now_ms)
    act = scene(shard, name)
    shard.store.client = over_wire.client
    print("ready", shard.now_ms, flush=True)
    sys.stdin.readline()
    act()
    print("done", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
