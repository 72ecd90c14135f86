"""Random flows, and what must become of them: told by reading the definition, without a coordinator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from flows.definition import Definition, Kind, OnFailure, StepDefinition
from flows.snapshot import Ending
from flows.values import Json

KINDS: list[Kind] = ["task", "task", "task", "flow", "map", "sleep", "event"]
WAITS = ("sleep", "event")
POLICIES: list[OnFailure] = ["stop", "continue", "compensate"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A flow, and which of its steps fail however often they are tried."""

    definition: Definition
    failing: frozenset[str]
    sizes: dict[str, int]

    def body(self, step: str, index: int | None, attempt: int) -> tuple[Ending, Json]:
        fails = step in self.failing and index in (None, 0)
        return ("failed" if fails else "completed"), {"yes": True, "no": False}

    def size(self, step: str) -> int:
        return self.sizes[step]

    def expected(self) -> dict[str, str]:
        """Step → how it ends when nothing stops the run: under "continue", or when nothing fails that may not."""
        ends: dict[str, str] = {}
        for name in self.definition.order:
            step = self.definition.by_name[name]
            ends[name] = self._end(step, ends)
        return {name: end.split()[0] for name, end in ends.items()}

    def _end(self, step: StepDefinition, ends: dict[str, str]) -> str:
        for first in self.definition.before[step.name]:
            if ends[first] == "skipped upstream":
                return "skipped upstream"
            if ends[first] == "failed" and not self.definition.by_name[first].may_fail:
                return "skipped upstream"
        condition: Any = step.when
        if condition is not None:
            _, first, _, path = condition
            if ends[first] != "completed":
                return "skipped"
            if path == ["no"]:
                return "skipped"
        if any(ends[first] != "completed" for first in step.taken):
            return "skipped"
        if step.name in self.failing:
            mapped = step.kind == "map"
            if not (mapped and (step.may_fail or not self.sizes[step.name])):
                return "failed"
        return "completed"

    def run_state(self) -> str:
        ends = self.expected()
        bad = any(ends[step.name] == "failed" and not step.may_fail for step in self.definition.steps)
        return "failed" if bad else "completed"


@st.composite
def plans(draw: st.DrawFn, on_failure: OnFailure | None = None, failing: bool = True) -> Plan:
    policy: OnFailure = draw(st.sampled_from(POLICIES)) if on_failure is None else on_failure
    names = [f"s{number}" for number in range(draw(st.integers(1, 7)))]
    steps: list[StepDefinition] = []
    fails: set[str] = set()
    sizes: dict[str, int] = {}
    for index, name in enumerate(names):
        kind = draw(st.sampled_from(KINDS))
        sizes[name] = draw(st.integers(0, 4)) if kind == "map" else 0
        earlier = names[:index]
        plain = [step.name for step in steps if step.kind == "task"]
        after = draw(st.lists(st.sampled_from(earlier), unique=True, max_size=3)) if earlier else []
        taken = draw(st.lists(st.sampled_from(plain), unique=True, max_size=2)) if plain and kind == "task" else []
        when = None
        if plain and draw(st.integers(0, 3)) == 0:
            when = ["ref", draw(st.sampled_from(plain)), "output", [draw(st.sampled_from(["yes", "yes", "no"]))]]
        if failing and kind not in WAITS and draw(st.integers(0, 3)) == 0:
            fails.add(name)
        steps.append(
            StepDefinition(
                name=name,
                kind=kind,
                target=f"go_{name}" if kind in WAITS else f"shop.tasks.{name}",
                after=tuple(after),
                args=tuple(["ref", each, "output", []] for each in taken),
                items=["value", list(range(sizes[name]))] if kind == "map" else None,
                max_parallel=draw(st.sampled_from([None, 1, 2])) if kind == "map" else None,
                seconds=["value", draw(st.sampled_from([0, 7, 4_000]))] if kind == "sleep" else None,
                when=when,
                may_fail=kind not in WAITS and draw(st.integers(0, 3)) == 0,
                undo="shop.tasks.take_back" if policy == "compensate" and kind not in WAITS else "",
            )
        )
    definition = Definition(
        name="random", parameters=(), defaults={}, steps=tuple(steps), result=["value", None], on_failure=policy
    )
    return Plan(definition, frozenset(fails), sizes)
