"""Policies of your own: what is refused, in which words; the system check, the admin and the sync that say so."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test.utils import override_settings

from ductor_project.settings import DUCTOR
from queueapp import checks
from queueapp.errors import InvalidPolicy
from queueapp.models import Pool
from queueapp.policies import custom
from queueapp.policies.node import Node
from queueapp.policies.ordered import Ordered
from queueapp.policies.protocol import Candidate, Place
from queueapp.policies.registry import POLICIES, find
from queueapp.policies.ring import Ring
from queueapp.store.configuration import PoolConf
from queueapp.sync import intent
from tests.model.own_policies import OWN


class Plain(Ordered):
    name = "plain"

    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        return float(job.seq)


class NeedsArguments(Plain):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


ready_made = NeedsArguments(30.0)


class OtherName(Plain):
    name = "other"


class NoFlag(Plain):
    charges = None  # type: ignore[assignment]  # wrong on purpose


class TwoQueues(Plain):
    tiered = True


class NoRank(Ordered):
    name = "plain"


class FewArguments(Plain):
    def rank(self, job: Candidate) -> float:  # type: ignore[override]  # wrong on purpose
        return 0.0


class Waits(Plain):
    async def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:  # type: ignore[override]  # wrong on purpose
        return 0.0


class RanksByNothing(Plain):
    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        return float("nan")


class Fails(Plain):
    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        raise KeyError(job.tenant)


class LeavesOut(Plain):
    def enter(self, node: Node, child: str, head: Place, weight: float) -> None:
        return None


class KeepsIn(Plain):
    def leave(self, node: Node, child: str) -> None:
        return None


class TakesOut(Ring):
    name = "plain"

    def served(self, node: Node, child: str, rank: float, cost: float, weight: float) -> float:
        node.walk.discard(child)
        return 0.0


class Remembers(Plain):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        self.seen.append(job.id)
        return float(job.seq)


class KeepsPairs(Plain):
    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        root.state[job.tenant] = (1.0, job.seq)  # type: ignore[assignment]  # wrong on purpose
        return float(job.seq)


class KeepsExactly(Plain):
    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        root.state[job.tenant] = Decimal("1.5")  # type: ignore[assignment]  # wrong on purpose
        return float(job.seq)


class KeepsByNumber(Plain):
    def served(self, node: Node, child: str, rank: float, cost: float, weight: float) -> float:
        node.state[7] = 1.0  # type: ignore[index]  # wrong on purpose
        return super().served(node, child, rank, cost, weight)


not_a_policy = 7


def path(name: str) -> str:
    return f"{__name__}.{name}"


@pytest.mark.parametrize("name", ["Plain", "ready_made"])
def test_a_class_or_an_object_that_keeps_the_protocol_is_taken_and_made_once(name: str) -> None:
    found = custom.load("plain", path(name))
    assert custom.load("plain", path(name)) is found
    assert (found.name, found.ordered, found.tiered, found.charges) == ("plain", True, False, False)


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"tiered"}))
def test_every_policy_of_ours_would_be_taken(name: str) -> None:
    kind = POLICIES[name]
    assert custom.load(name, f"{kind.__module__}.{kind.__qualname__}").name == name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Missing", r"cannot be imported \(AttributeError: .*\); name a class of a module that can"),
        ("NeedsArguments", "NeedsArguments cannot be made without arguments .*seconds.*give its parameters defaults"),
        ("OtherName", "OtherName.name is 'other', and .* calls it 'plain'; write name = \"plain\""),
        ("NoFlag", "NoFlag.charges must be True or False; set it, or inherit from queueapp.policies.ordered.Ordered"),
        ("TwoQueues", "TwoQueues.tiered is True, .*; set it to False"),
        ("NoRank", r"NoRank has no method rank\(\); write def rank\(self, root, job, cost, weight\)"),
        ("FewArguments", r"FewArguments.rank\(\) takes \(job\); write def rank\(self, root, job, cost, weight\)"),
        ("Waits", r"Waits.rank\(\) is async, .*; write def rank"),
        ("RanksByNothing", r"RanksByNothing.rank\(\) returned nan; return a finite number"),
        ("Fails", r"Fails.rank\(\) raised KeyError: 'ant'; it must take every job"),
        ("LeavesOut", r"LeavesOut.enter\(\) did not leave its child in node.walk; put it there"),
        ("KeepsIn", r"KeepsIn.leave\(\) left its child in node.walk; take it out: node.walk.discard\(child\)"),
        ("TakesOut", r"TakesOut.served\(\) did not leave its child in node.walk; .*only leave\(\) takes it out"),
        ("Remembers", "Remembers keeps something in itself, .*; keep numbers in node.state"),
        *((name, f"{name} keeps in node.state what is no number") for name in ("KeepsPairs", "KeepsExactly")),
        ("KeepsByNumber", "KeepsByNumber keeps in node.state what is no number of a child"),
        ("not_a_policy", "int.name is missing, and .* calls it 'plain'; write name = \"plain\""),
    ],
)
def test_what_is_no_policy_is_refused_with_class_method_and_remedy(name: str, words: str) -> None:
    with pytest.raises(InvalidPolicy, match=words):
        custom.load("plain", path(name))


def test_names_have_a_form() -> None:
    with pytest.raises(InvalidPolicy, match="no name of a policy"):
        custom.load("Head Start", path("Plain"))


def test_a_policy_goes_on_being_watched() -> None:
    node = Node()
    policy = custom.load("plain", path("Plain"))
    policy.enter(node, "ant", (1.0, 1), 1.0)
    with pytest.raises(InvalidPolicy, match=r"Plain.moved\(\) put its child at inf"):
        policy.moved(node, "ant", (float("inf"), 1))


def test_the_registry_finds_ours_and_yours() -> None:
    assert find("drr", {}).name == "drr"
    assert find("own_ring", OWN).name == "own_ring"
    with pytest.raises(KeyError):
        find("own_ring", {})


# -- settings, admin, sync -----------------------------------------------------------------------------------------


def ids(check: Callable[..., Any], **ductor: Any) -> list[str]:
    with override_settings(DUCTOR={**DUCTOR, **ductor}):
        return [f"{message.id} {message.msg}" for message in check()]


def test_the_system_check_names_what_is_wrong_with_a_policy() -> None:
    assert ids(checks.check_policies, POLICIES=OWN) == []
    [fault] = ids(checks.check_policies, POLICIES={"plain": path("LeavesOut")})
    assert fault.startswith("queueapp.E160 DUCTOR[\"POLICIES\"]['plain'] cannot run: LeavesOut.enter()")
    [fault] = ids(checks.check_policies, POLICIES={"drr": path("Plain")})
    assert fault.startswith("queueapp.E160")
    assert "the name of a policy of Ductor" in fault


@pytest.mark.parametrize("value", [["shop.HeadStart"], {"head": 7}, {"head": "HeadStart"}])
def test_the_setting_has_a_form(value: object) -> None:
    [fault] = ids(checks.check_settings, POLICIES=value)
    assert fault.startswith("queueapp.E143")


def test_the_system_check_looks_at_the_pools_of_the_settings() -> None:
    assert ids(checks.check_settings, POOLS={"a": {"POLICY": "lottery", "DISPATCH": "scheduled"}}) == []
    own = {"a": {"POLICY": "own_ring", "DISPATCH": "scheduled", "DISPATCH_WINDOW": 8}}
    assert ids(checks.check_settings, POLICIES=OWN, POOLS=own) == []
    [fault] = ids(checks.check_settings, POOLS=own)
    assert fault.startswith("queueapp.E154")
    assert "'own_ring', which is no policy" in fault
    [fault] = ids(checks.check_settings, POOLS={"a": {"POLICY": "drr"}})
    assert fault.startswith("queueapp.E159")
    assert "needs scheduled dispatch" in fault
    [fault] = ids(checks.check_settings, POOLS={"a": {"DISPATCH": "none"}})
    assert fault.startswith("queueapp.E114")


@pytest.mark.django_db
class TestPool:
    def test_a_policy_of_python_needs_scheduled_dispatch(self) -> None:
        with pytest.raises(ValidationError, match=r"“direct” has no policy “drr”.*Set dispatch to “scheduled”"):
            Pool(name="emails", policy="drr").full_clean()
        Pool(name="emails", policy="drr", dispatch="scheduled").full_clean()

    def test_the_database_refuses_it_too(self) -> None:
        from django.db import IntegrityError, transaction

        with pytest.raises(IntegrityError), transaction.atomic():
            Pool.objects.create(name="emails", policy="lottery")
        with pytest.raises(IntegrityError), transaction.atomic():
            Pool.objects.create(name="emails", dispatch="none")
        Pool.objects.create(name="emails", policy="lottery", dispatch="scheduled")

    def test_your_own_can_be_chosen_when_it_keeps_the_protocol(self, namespace: str) -> None:
        own = {"plain": path("LeavesOut"), "own_ring": OWN["own_ring"]}
        with override_settings(DUCTOR={**DUCTOR, "POLICIES": own}):
            Pool(name="emails", policy="own_ring", dispatch="scheduled").full_clean()
            with pytest.raises(ValidationError, match=r"policy “plain” cannot run: LeavesOut.enter\(\)"):
                Pool(name="emails", policy="plain", dispatch="scheduled").full_clean()
            with pytest.raises(ValidationError, match="not a valid choice"):
                Pool(name="emails", policy="head_start", dispatch="scheduled").full_clean()

    def test_the_window_has_bounds(self) -> None:
        with pytest.raises(ValidationError, match="dispatch window"):
            Pool(name="emails", dispatch_window=1_000_001).full_clean()

    def test_the_store_is_told_of_dispatch_and_window(self) -> None:
        Pool.objects.create(name="emails", policy="drr", dispatch="scheduled", dispatch_window=7)
        wanted = intent.wanted_pool("emails")
        assert (wanted.policy, wanted.dispatch, wanted.window) == ("drr", "scheduled", 7)

    def test_the_store_is_not_told_of_what_nobody_can_run(self) -> None:
        Pool.objects.create(name="emails", policy="fifa", dispatch="scheduled")
        fault = intent.policy_fault("emails", intent.wanted_pool("emails"))
        assert "'fifa' of the pool 'emails' is none; there are aging" in str(fault)


def test_pools_are_direct_unless_told_otherwise() -> None:
    assert (PoolConf().dispatch, PoolConf().window) == ("direct", 0)
    assert (Pool().dispatch, Pool().dispatch_window) == ("direct", 0)
