"""`docs/policies.md` says of each policy what it does; its examples run as they are written."""

from __future__ import annotations

import inspect
import random
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test.utils import override_settings

from ductor_project.settings import DUCTOR
from queueapp import sync
from queueapp.checks import check_policies, check_settings
from queueapp.conf import settings
from queueapp.models import Pool
from queueapp.policies.node import Node
from queueapp.policies.protocol import Candidate, Policy
from queueapp.policies.registry import DIRECT, POLICIES, find
from queueapp.policies.room import Limits
from queueapp.policies.tree import Tree
from queueapp.sync import intent

PAGE = (Path(__file__).resolve().parents[2] / "docs/policies.md").read_text()
BLOCKS = {
    block.splitlines()[0].lstrip("# "): block for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.S | re.M)
}
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##)", PAGE, re.S | re.M))
TENANTS = ("ant", "bee", "cat")
each_policy = pytest.mark.parametrize("name", sorted(POLICIES))


def rows(heading: str) -> dict[str, list[str]]:
    """The rows of the table under `heading`, by the word in code in their first cell."""
    text = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    found = [re.split(r" *\| *", line)[1:-1] for line in text.splitlines() if re.match(r"\| \[?`", line)]
    return {cells[0].strip("[`").partition("`")[0]: cells[1:] for cells in found}


def made(name: str) -> Policy:
    """The policy with every parameter at work."""
    given: dict[str, dict[str, Any]] = {"edf": {"by": "latest_start"}, "drr": {"quantum": 10.0}}
    return POLICIES[name](**given.get(name, {}))


def order(
    policy: Policy,
    *,
    weights: Mapping[str, float] = {},
    costs: Mapping[str, float] = {},
    priorities: Mapping[str, int] = {},
) -> list[str]:
    """Whose jobs run in which order: 20 of each tenant, in turn, alike but for what is given."""
    tree = Tree(policy)
    for tenant, weight in weights.items():
        tree.configure(tenant, "", Limits(weight=weight))
    for seq in range(60):
        tenant = TENANTS[seq % 3]
        tree.push(
            Candidate(
                id=str(seq),
                tenant=tenant,
                seq=seq,
                ready_ms=seq,
                cost=costs.get(tenant, 10.0),
                priority=priorities.get(tenant, 0),
                deadline_ms=1_000_000 + seq,
            )
        )
    return [charge.tenant for charge in iter(tree.pick, None)]


def order_in_lane(policy: Policy) -> list[str]:
    """Two jobs of one lane, the second with the higher priority."""
    tree = Tree(policy)
    for seq, word in enumerate(["low", "high"]):
        tree.push(Candidate(id=word, tenant="ant", seq=seq, cost=1, priority=seq * 50, deadline_ms=1_000_000 + seq))
    return [charge.id for charge in iter(tree.pick, None)]


# -- the tables --------------------------------------------------------------------------------------------------


def test_the_table_has_each_policy_once_and_so_have_the_sections() -> None:
    assert sorted(rows("Which one")) == sorted(POLICIES)
    assert sorted(SECTIONS) == sorted(POLICIES)
    assert set(re.findall(r"^- .*?`(\w+)`", PAGE.split("## Which one\n")[1].split("\n|")[0], re.M)) <= set(POLICIES)


@each_policy
def test_each_section_says_bound_caveats_and_when(name: str) -> None:
    for word in ("Bound.", "Caveats.", "Take it"):
        assert f"- *{word}*" in SECTIONS[name]
    assert ("- *Source.*" in SECTIONS[name]) != (name in {"fifo", "priority"})


@each_policy
def test_kind_and_whether_pools_can_have_it(name: str) -> None:
    kind, *_, allowed = rows("Which one")[name]
    assert (kind == "ordered") == POLICIES[name]().ordered
    assert allowed == ("either" if name in DIRECT else "scheduled")


@each_policy
@pytest.mark.django_db
def test_a_pool_can_have_the_dispatch_that_the_table_says(name: str) -> None:
    Pool(name="emails", policy=name, dispatch="scheduled").full_clean()
    if rows("Which one")[name][-1] == "scheduled":
        with pytest.raises(ValidationError, match=name):
            Pool(name="emails", policy=name).full_clean()
    else:
        Pool(name="emails", policy=name).full_clean()


@each_policy
def test_what_a_weight_does(name: str) -> None:
    told = rows("Which one")[name][2]
    changed = order(made(name), weights={"bee": 7.0}) != order(made(name))
    assert told == ("shares" if changed else "nothing")


@each_policy
def test_what_a_cost_does(name: str) -> None:
    told = rows("Which one")[name][3]
    changed = order(made(name), costs={"bee": 400.0}) != order(made(name))
    assert changed == (told != "nothing")
    assert (told == "charged, settled") == POLICIES[name]().charges


@each_policy
def test_what_priority_does(name: str) -> None:
    told = rows("Which one")[name][4]
    in_pool = order(made(name), priorities={"bee": 5}) != order(made(name))
    in_lane = order_in_lane(made(name)) == ["high", "low"]
    assert told == ("sorts the pool" if in_pool else "sorts each lane" if in_lane else "nothing")


def test_the_table_of_parameters_is_complete() -> None:
    told = rows("Parameters")
    assert set(told) == {name for name in POLICIES if "__init__" in vars(POLICIES[name])}
    for name, (field, parameter, default, _) in told.items():
        [known] = inspect.signature(POLICIES[name]).parameters.values()
        assert parameter == f"`{known.name}`"
        shown = default.strip("`").removesuffix(" s")
        if field:
            assert str(getattr(Pool(), field.strip("`"))).removesuffix(".0") == shown
        else:
            assert known.default == float(shown)


# -- the examples ------------------------------------------------------------------------------------------------


@pytest.fixture
def shop() -> Iterator[ModuleType]:
    before = set(sys.modules)
    sys.modules["shop"] = ModuleType("shop")
    yield module("shop.policies", "shop/policies.py")
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "shop":
            del sys.modules[name]


def module(name: str, block: str) -> Any:
    built = ModuleType(name)
    sys.modules[name] = built
    exec(compile(BLOCKS[block], name, "exec"), built.__dict__)
    return built


def test_every_block_is_used_here() -> None:
    assert set(BLOCKS) == {"shop/policies.py", "shop/settings.py", "shop/tests.py", "shop/trial.py"}


def test_the_policy_takes_about_twenty_lines(shop: Any) -> None:
    assert len(BLOCKS["shop/policies.py"].strip().splitlines()) <= 25


@pytest.mark.django_db
def test_the_settings_of_the_page_give_a_pool_the_policy(shop: Any) -> None:
    written = module("shop.settings", "shop/settings.py").DUCTOR
    with override_settings(DUCTOR={**DUCTOR, **written}):
        assert [*check_settings(), *check_policies()] == []
        assert "emails" in sync.ensure_pools()
        assert Pool.objects.get(name="emails").rule == "head_start"
        assert intent.wanted_pool("emails").dispatch == "scheduled"
        assert (
            find("head_start", settings.policies).rank(
                Node(), Candidate(id="j", tenant="acme", seq=1, ready_ms=31_000), 1.0, 1.0
            )
            == 1_000
        )


def test_the_test_of_the_page_passes(shop: Any) -> None:
    module("shop.tests", "shop/tests.py").test_a_head_start_of_30_seconds_is_worth_30_seconds()


def test_traffic_runs_in_the_order_that_the_page_promises(shop: Any) -> None:
    """Pushes and picks mixed: nobody overtakes by more than he bought, equal ranks go by submission."""
    chance, bought = random.Random(5), {"ant": 3.0, "bee": 0.5}
    tree = Tree(shop.HeadStart(bought))
    waiting: dict[str, Candidate] = {}
    for seq in range(400):
        job = Candidate(
            id=str(seq),
            tenant=chance.choice(TENANTS),
            lane=chance.choice(["main", "other"]),
            seq=seq,
            ready_ms=seq * 20,
        )
        tree.push(job)
        waiting[job.id] = job
        if chance.random() < 0.6 or seq == 399:
            charge = tree.pick()
            assert charge is not None
            ran = waiting.pop(charge.id)
            for left in waiting.values():
                more = 1000 * (bought.get(ran.tenant, 0) - bought.get(left.tenant, 0))
                assert (ran.ready_ms - more, ran.seq) <= (left.ready_ms, left.seq)
    assert len(tree) == len(waiting) > 100


def test_the_simulation_of_the_page_shows_what_a_head_start_buys(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    module("shop.trial", "shop/trial.py")
    before, after = (int(number) for number in re.findall(r"(\d+) ms", capsys.readouterr().out))
    assert after * 5 < before
