"""A process that takes as much as it gets: `python -m tests.integration.taking URL NAMESPACE CODE VERB NAME COUNT`.

It says `ready`, waits for a line, and makes COUNT calls: `enqueue` of one job of the tenant `acme` with a concurrency
key, or `lease` of one job. Then it says the moments of what it was given as JSON, in ms of the server's clock.
"""

from __future__ import annotations

import json
import sys

import redis

from queueapp.codec import digest
from queueapp.store.ids import new_id
from queueapp.store.keys import ShardKeys
from queueapp.store.records import KeyUse, NewJob
from queueapp.store.store import Store

KEY = KeyUse(digest=digest("one"), text="one", limit=1_000, pattern=digest("one"))


def job() -> NewJob:
    return NewJob(id=new_id(), task="tests.noop", tenant="acme", payload=b"{}", fingerprint="", keys=(KEY,))


def main(url: str, namespace: str, code: str, verb: str, name: str, count: str) -> None:
    store = Store(redis.Redis.from_url(url, protocol=2), ShardKeys(namespace, code))
    store.client.ping()
    print("ready", flush=True)
    sys.stdin.readline()
    taken = []
    for number in range(int(count)):
        if verb == "enqueue":
            [answer] = store.enqueue([job()])
            taken += [0] * (answer.outcome == "enqueued")
        else:
            leases = store.cycle(name, number, want=1, begin=0, lease_ms=600_000)
            taken += [leased.leased_ms for leased in leases.jobs]
    print(json.dumps(taken), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
