"""Concurrency keys in the reference: all or none, nobody else held up, offers that go on, limits that change."""

from __future__ import annotations

import pytest

from queueapp.policies.keyed import FULL_MS, MOVED_PER_WAKE, SWEEP_MS, KeySet
from queueapp.policies.protocol import Candidate
from queueapp.policies.registry import POLICIES
from queueapp.policies.room import Limits
from queueapp.policies.tree import Tree
from queueapp.policies.waiting import Key

every_policy = pytest.mark.parametrize("policy", ["fifo", "tiered", "ring", "wfq"])


def keys(*names: str, limit: int = 1) -> KeySet:
    return KeySet(
        id="+".join(names), keys=tuple(Key(digest=name, limit=limit, pattern=f"p{name}") for name in sorted(names))
    )


def drained(tree: Tree, run: int) -> list[str]:
    """Ids in the order of their leases, `run` at a time; the oldest ends first."""
    order: list[str] = []
    flying: list[str] = []
    while len(tree) or flying:
        while len(flying) < run and (charge := tree.pick()) is not None:
            order.append(charge.id)
            flying.append(charge.id)
        tree.release(flying.pop(0))
    return order


def one_runs_two_wait() -> Tree:
    """Job 1 of ant has the key, 2 of bee and 3 of cat wait for it."""
    tree = Tree(POLICIES["fifo"]())
    tree.push(Candidate(id="1", tenant="ant", seq=1, keys=keys("a")))
    assert tree.pick() is not None
    tree.push(Candidate(id="2", tenant="bee", seq=2, keys=keys("a")))
    tree.push(Candidate(id="3", tenant="cat", seq=3, keys=keys("a")))
    return tree


@every_policy
def test_a_full_key_holds_up_nobody_else(policy: str) -> None:
    """Sixteen slots, 40 jobs under one key of limit 1 and 40 without: the others run as if the first were not there."""
    tree, plain = Tree(POLICIES[policy]()), Tree(POLICIES[policy]())
    for seq in range(40):
        tree.push(Candidate(id=f"k{seq}", tenant="ant", seq=2 * seq + 1, keys=keys("one")))
        for each in (tree, plain):
            each.push(Candidate(id=f"p{seq}", tenant="ant", seq=2 * seq + 2))
    order = drained(tree, 16)
    assert [job_id for job_id in order if job_id[0] == "p"] == drained(plain, 15)
    assert [job_id for job_id in order if job_id[0] == "k"] == [f"k{seq}" for seq in range(40)]
    first = order.index("p39")
    assert sum(job_id[0] == "k" for job_id in order[:first]) <= 3, "15 others run beside one"


@every_policy
def test_jobs_keep_their_place_in_the_lane(policy: str) -> None:
    tree = Tree(POLICIES[policy]())
    for seq in range(1, 7):
        tree.push(Candidate(id=str(seq), tenant="ant", seq=seq, keys=keys("x", limit=9) if seq % 2 else None))
    assert drained(tree, 1) == ["1", "2", "3", "4", "5", "6"]


def test_all_keys_are_taken_or_none() -> None:
    tree = Tree(POLICIES["fifo"]())
    tree.push(Candidate(id="1", tenant="ant", seq=1, keys=keys("a")))
    tree.push(Candidate(id="2", tenant="ant", seq=2, keys=keys("a", "b")))
    tree.push(Candidate(id="3", tenant="ant", seq=3, keys=keys("b")))
    assert [charge.id for charge in iter(tree.pick, None)] == ["1", "3"], "2 does not sit on b while it waits for a"
    tree.release("3")
    assert tree.pick() is None
    tree.release("1")
    second = tree.pick()
    assert second is not None
    assert second.id == "2"


def test_a_waiter_whose_other_key_is_full_waits_for_that_one() -> None:
    tree = Tree(POLICIES["fifo"]())
    tree.push(Candidate(id="1", tenant="ant", seq=1, keys=keys("a")))
    tree.push(Candidate(id="2", tenant="ant", seq=2, keys=keys("b")))
    assert len(list(iter(tree.pick, None))) == 2
    tree.push(Candidate(id="3", tenant="bee", seq=3, keys=keys("a", "b")))
    tree.push(Candidate(id="4", tenant="cat", seq=4, keys=keys("a")))
    assert [sub.tenant for sub in tree.keyed.waiters("a")] == ["bee", "cat"]
    tree.release("1")
    assert [sub.tenant for sub in tree.keyed.waiters("b")] == ["bee"]
    assert [charge.id for charge in iter(tree.pick, None)] == ["4"]


def test_an_offer_that_is_not_taken_goes_to_the_next() -> None:
    """The sub-lane that was woken is cancelled: the one behind it is woken in its place."""
    tree = one_runs_two_wait()
    tree.release("1")
    assert [sub.tenant for sub in tree.keyed.waiters("a")] == ["cat"]
    tree.remove("2")
    assert tree.keyed.waiters("a") == []


def test_a_waiter_that_may_not_run_lets_the_next_one_pass() -> None:
    tree = one_runs_two_wait()
    tree.configure("bee", "", Limits(paused=True))
    tree.release("1")
    third = tree.pick()
    assert third is not None
    assert third.id == "3"
    tree.configure("bee", "", Limits())
    assert tree.pick() is None
    tree.release("3")
    second = tree.pick()
    assert second is not None
    assert second.id == "2"


@pytest.mark.parametrize(("limit", "more"), [(3, 2), (None, 9)])
def test_a_limit_that_is_raised_acts_at_once(limit: int | None, more: int) -> None:
    tree = Tree(POLICIES["tiered"]())
    for seq in range(1, 11):
        tree.push(Candidate(id=str(seq), tenant=f"t{seq}", seq=seq, keys=keys("a")))
    assert len(list(iter(tree.pick, None))) == 1
    tree.keyed.configure("pa", limit)
    tree.flush()
    first = len(list(iter(tree.pick, None)))
    assert first == min(more, MOVED_PER_WAKE)
    tree.keyed.sweep()  # what one wake may not move any more
    tree.flush()
    assert first + len(list(iter(tree.pick, None))) == more


@pytest.mark.parametrize("limit", [2, 0])
def test_a_limit_that_is_lowered_waits_for_those_that_run(limit: int) -> None:
    tree = Tree(POLICIES["tiered"]())
    for seq in range(1, 11):
        tree.push(Candidate(id=str(seq), tenant="ant", seq=seq, keys=keys("a", limit=5)))
    running = [charge.id for charge in iter(tree.pick, None)]
    assert len(running) == 5
    tree.keyed.configure("pa", limit)
    tree.flush()
    for job_id in running[: 5 - limit]:
        assert tree.pick() is None
        tree.release(job_id)
    rest = [] if limit == 0 else [running[-1]]
    assert tree.pick() is None
    for job_id in rest:
        tree.release(job_id)
    assert len(list(iter(tree.pick, None))) == len(rest)
    tree.keyed.configure("pa", 0, clear=True)
    tree.flush()
    assert len(list(iter(tree.pick, None))) == 5 - limit


def test_a_wake_that_was_lost_is_repaired_within_a_second() -> None:
    """The sub-lane that was woken is paused before it runs: nobody else knows of the free slot until the sweep."""
    tree = one_runs_two_wait()
    tree.release("1")
    tree.configure("bee", "", Limits(paused=True))
    assert tree.pick() is None
    tree.keyed.now_ms += SWEEP_MS - 1
    tree.keyed.sweep()
    tree.flush()
    assert tree.pick() is None
    tree.keyed.now_ms += 1
    tree.keyed.sweep()
    tree.flush()
    third = tree.pick()
    assert third is not None
    assert third.id == "3"


def test_two_tasks_may_give_one_key_two_limits() -> None:
    """Each compares with its own; one that waits for the lower does not stand before one that the higher lets run."""
    tree = Tree(POLICIES["fifo"]())
    narrow, wide = keys("a", limit=1), KeySet(id="wide", keys=(Key(digest="a", limit=2),))
    tree.push(Candidate(id="1", tenant="ant", seq=1, keys=wide))
    tree.push(Candidate(id="2", tenant="ant", seq=2, keys=wide))
    assert len(list(iter(tree.pick, None))) == 2
    tree.push(Candidate(id="3", tenant="bee", seq=3, keys=narrow))
    tree.push(Candidate(id="4", tenant="bee", seq=4, keys=wide))
    tree.release("1")
    fourth = tree.pick()
    assert fourth is not None
    assert fourth.id == "4"


def test_one_that_fits_is_found_behind_any_number_that_do_not() -> None:
    tree = Tree(POLICIES["fifo"]())
    wide = KeySet(id="wide", keys=(Key(digest="a", limit=3),))
    for seq in (1, 2, 3):
        tree.push(Candidate(id=str(seq), tenant="ant", seq=seq, keys=wide))
    assert len(list(iter(tree.pick, None))) == 3
    for seq in range(4, 104):
        tree.push(Candidate(id=str(seq), tenant=f"t{seq}", seq=seq, keys=keys("a", limit=1)))
    tree.push(Candidate(id="last", tenant="bee", seq=104, keys=wide))
    tree.release("1")
    last = tree.pick()
    assert last is not None
    assert last.id == "last"
    assert tree.pick() is None


@pytest.mark.parametrize("policy", ["tiered", "ring"])
def test_tenants_that_share_a_key_take_turns(policy: str) -> None:
    tree = Tree(POLICIES[policy]())
    for seq in range(1, 31):
        tree.push(Candidate(id=f"b{seq}", tenant="big", seq=seq, cost=1, priority=9, keys=keys("a")))
    first = tree.pick()
    assert first is not None
    for seq in range(31, 41):
        tree.push(Candidate(id=f"s{seq}", tenant="small", seq=seq, cost=1, keys=keys("a")))
    tree.release(first.id)
    assert "".join(job_id[0] for job_id in drained(tree, 1)) == "sb" * 10 + "b" * 19


def test_turns_at_a_key_go_by_charge_and_weight() -> None:
    tree = Tree(POLICIES["tiered"]())
    tree.configure("heavy", "", Limits(weight=3))
    for seq in range(1, 61):
        tree.push(Candidate(id=f"h{seq}", tenant="heavy", seq=seq, cost=2, keys=keys("a")))
        tree.push(Candidate(id=f"l{seq}", tenant="light", seq=100 + seq, cost=1, keys=keys("a")))
    order = "".join(job_id[0] for job_id in drained(tree, 2))[:50]
    assert abs(order.count("h") - 30) <= 1


def test_a_full_key_is_looked_at_ever_more_seldom() -> None:
    tree = one_runs_two_wait()
    looks = 0
    for _ in range(600):
        tree.keyed.now_ms += 1_000
        looks += tree.keyed.sweep()
        tree.flush()
    assert FULL_MS == 30_000
    assert looks == 4, "at 30, 90, 210 and 450 s"
    tree.release("1")
    tree.configure("bee", "", Limits(paused=True))
    tree.keyed.now_ms += SWEEP_MS
    assert tree.keyed.sweep(), "a slot may be free that nobody was told of"
