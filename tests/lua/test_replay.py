"""Every script may run twice: its reply can be lost. A repeat answers as promised and leaves the shard as it was.

And every refusal leaves no trace. Both are generic over the scripts, so that a new one cannot be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queueapp.errors import SchemaMismatch
from queueapp.store import scripts
from queueapp.store.configuration import PoolConf, Rate, ScopeLimits
from queueapp.store.family_records import Away, ChildEnd
from queueapp.store.records import Returned
from tests.lua.families import child_id, kin, node
from tests.lua.harness import LEASE_MS, Shard, completed, failed

Act = Callable[[], Any]
LEADERS = {"admit", "dispatch", "flush_policy", "mirror"}


def scene(shard: Shard, name: str) -> Act:
    """A busy shard, and the act of the script `name` upon it, ready to be done any number of times."""
    shard.add(*(shard.job(tenant, max_attempts=3) for tenant in "abc" for _ in range(4)))
    shard.add(shard.job("late", delay_ms=500), shard.job("brief", expires_after_ms=800))
    one, two, three, four = shard.lease(4)
    shard.store.fail([failed(four)])
    shard.now_ms += 1_000
    store, job, plain = shard.store, shard.job("new", idempotency="digest"), shard.job("new")
    waiting = store.peek(3)[0][2]
    keep = {"result_ttl_ms": 0, "result_max": 0, "dead_ttl_ms": 9_000_000, "dead_max": 1}
    lost_ms = LEASE_MS if name in ("partition_recover", "trim") else 0
    shard.now_ms += lost_ms
    if name in LEADERS:
        term = shard.schedule()
        shard.add(*(shard.job(tenant) for tenant in "ab" for _ in range(2)))
        entries = [(entry.entry, entry.id, None) for entry in store.read_ingress(term.nonce)]
    if name == "rerank":
        store.configure(1, pool=PoolConf(policy="fifo"))
    if name == "backlog_promote":
        store.configure(2, scopes=[ScopeLimits(tenant="p", rate=Rate(rate=1, period_ms=1_000))])
        store.enqueue([shard.job("p", parks=True) for _ in range(3)])
        shard.now_ms += 1_500
    leaving, packed = "", []
    if name in ("departed", "arrive", "arrived", "came", "recall", "stubs"):
        leaving = waiting
        store.depart([leaving], "CODE.0")
        packed = [("0" * 21 + "z", one.packed or b"") for one in store.departed().jobs]
    if name == "recall":
        store.recall([(leaving, 0)])
        shard.now_ms += 45_001
    if name == "stubs":
        store.arrived([(leaving, 1, False)])
    tree = kin(shard, ["fail_parent", "continue"])
    more = [node(shard, one.id)]
    if name == "child_done":
        away = Away(
            id=f"other0.0.{child_id()}", parent=tree.parent, on_failure="continue", position=9, tenant="a", tree=b"{}"
        )
        store.enqueue_flow(tree.nodes, [away])
        end = ChildEnd(parent=tree.parent, child=away.id, on_failure="continue", position=9, outcome="dead")
    acts: dict[str, Act] = {
        "enqueue": lambda: store.enqueue([job]),
        "enqueue_flow": lambda: store.enqueue_flow(tree.nodes),
        "add_children": lambda: store.add_children(one.id, more, attempts=1),
        "child_done": lambda: store.child_done([end, end]),
        "match": lambda: store.match(plain, "w1", LEASE_MS),
        "check_and_lease": lambda: [
            sorted(leased.id for leased in store.check_and_lease("w1", 7, want=3, begin=1, lease_ms=LEASE_MS).jobs)
        ],
        "cycle": lambda: (
            store.cycle(
                "w1",
                7,
                want=3,
                begin=1,
                lease_ms=LEASE_MS,
                finished=[completed(one), completed(two)],
                extend=[(three.id, 1)],
                begun=[(three.id, 1)],
            ).finished
        ),
        "complete": lambda: store.complete([completed(one, result=b"1"), completed(two)]),
        "fail": lambda: [len(store.fail([failed(one, retry_ms=60_000), failed(two)]))],
        "extend_lease": lambda: store.extend_lease([(one.id, 1)], LEASE_MS),
        "partition_requeue": lambda: store.partition_requeue([Returned(id=one.id, attempts=1)]),
        "partition_recover": lambda: [store.partition_recover() is not None],
        "promote_due": lambda: [store.promote_due() is not None],
        "backlog_promote": lambda: [store.backlog_promote(7) is not None],
        "cancel": lambda: [len(store.cancel([waiting, three.id]))],
        "move_to_dlq": lambda: [len(store.move_to_dlq([waiting], "why"))],
        "retry_from_dlq": lambda: [len(store.retry_from_dlq([four.id]))],
        "depart": lambda: [len(store.depart([waiting], "CODE.0"))],
        "departed": lambda: store.departed(),
        "arrive": lambda: [len(store.arrive(packed))],
        "arrived": lambda: store.arrived([(leaving, 1, False)]),
        "came": lambda: store.came([(leaving, 1)]),
        "recall": lambda: store.recall([(leaving, 1)]),
        "stubs": lambda: store.stubs([(leaving, 1, "gone")], every_ms=0),
        "erase": lambda: [len(store.erase("a", [waiting, one.id]))],
        "erase_traces": lambda: [store.erase_traces("a", limit=10**6)[0]],
        "discard": lambda: [len(store.discard([four.id]))],
        "rewrite": lambda: store.rewrite(four.id, b'{"a":[2]}', edits=0, token="one"),
        "cut": lambda: store.cut("a", 9, 60_000),
        "obliterate": lambda: [store.obliterate("run", force=True, limit=10**6).word],
        "configure": lambda: store.configure(3, scopes=[ScopeLimits(tenant="a", max_in_flight=1, weight=2)]),
        "lead": lambda: store.lead_acquire("me", "nonce", 5_000),
        "save": lambda: store.save(one.id, 1, {"progress": b"1"}),
        "register": lambda: store.register("w9", {"host": "h"}, 60_000),
        "forget": lambda: store.forget("w9"),
        "await": lambda: store.await_result(waiting, "web1"),
        "trim": lambda: [store.trim(**keep) is not None],
        "peek": lambda: store.peek(5),
        "oldest": lambda: store.oldest(lanes=[("a", "main")]),
        "explain": lambda: store.explain(waiting, live_ms=1_000, most=10, walked=10, looks=100),
        "browse": lambda: store.browse("dead", count=5, tenant="a"),
        "verify": store.verify,
        "fsck": lambda: store.fsck("jobs", [(one.id, "0"), (waiting, "0")], mend=True, limit=9).findings,
        "admit": lambda: [store.admit(term, entries) is not None],
        "dispatch": lambda: [store.dispatch(term, 5, 6) is not None],
        "flush_policy": lambda: store.flush_policy(term, 3, b"what it knows"),
        "mirror": lambda: store.mirror(),
        "rerank": lambda: [store.rerank() is not None],
    }
    return acts[name]


@pytest.mark.parametrize("name", scripts.names())
def test_a_repeat_answers_the_same_and_changes_nothing(shard: Shard, name: str) -> None:
    act = scene(shard, name)
    first = act()
    before = shard.snapshot()
    again = act()
    assert again == first
    after = shard.snapshot()
    assert after == before


@pytest.mark.parametrize("name", scripts.names())
def test_c027_a_server_that_forgot_its_functions_is_not_noticed(shard: Shard, name: str) -> None:
    """C027: functions that a restart, a failover or a flush took away are never loaded again."""
    act = scene(shard, name)
    shard.client.function_flush()
    act()


@pytest.mark.parametrize("name", scripts.names())
def test_another_schema_is_refused_without_a_trace(shard: Shard, name: str) -> None:
    act = scene(shard, name)
    shard.client.hset(shard.keys["conf"], "schema", "999")
    before = shard.snapshot()
    with pytest.raises(SchemaMismatch, match="999"):
        act()
    assert shard.snapshot() == before
    shard.client.hset(shard.keys["conf"], "schema", scripts.SCHEMA)


def test_scripts_are_reloaded_inside_a_pipeline_too(shard: Shard) -> None:
    jobs = [shard.job() for _ in range(600)]
    shard.client.function_flush()
    assert {answer.outcome for answer in shard.store.enqueue(jobs)} == {"enqueued"}
    assert len(jobs) == int(shard.snapshot()["counts"][b"w"])


KEYLESS = {"TIME", "INFO"}
MANY_KEYS = {"MGET", "EXISTS", "UNLINK", "DEL"}


@pytest.mark.parametrize("name", scripts.names())
def test_c042_all_keys_of_a_script_share_one_slot(shard: Shard, name: str) -> None:
    """C042: CROSSSLOT errors in cluster mode. What the server saw the script touch carries the shard's hash tag."""
    act = scene(shard, name)
    touched: list[str] = []
    with shard.client.monitor() as monitor:
        act()
        shard.client.echo("that was all")
        for event in monitor.listen():
            if event["client_type"] == "lua":
                command, *words = event["command"].split(" ")
                if command == "SCAN":  # cursor MATCH pattern …
                    words = words[2:3]
                touched += [] if command in KEYLESS else words if command in MANY_KEYS else words[:1]
            elif event["command"].startswith("ECHO"):
                break
    assert touched
    assert [key for key in touched if not key.startswith(shard.keys.prefix)] == []
