"""A flow as data: its steps, what each takes and waits for, and what a failure means. Pure.

A definition is immutable and can be written as JSON and read back, so that it is stored with its runs: a run finishes
on the version it began with, whatever the code has become since. `version` is a digest of that JSON: nobody has to
remember to change it. What cannot be stored is the tasks themselves; `tasks()` names them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, cast

from flows import graph
from flows.errors import InvalidInput, InvalidValue
from flows.values import Expression, Json, references, to_json

FORM = 1
"""Of the JSON of a definition: a process refuses to read a newer one."""

Kind = Literal["task", "flow", "map", "sleep", "event"]
OnFailure = Literal["stop", "continue", "compensate"]
UNDO = "undo:"
"""Before the name of a step: the step that undoes it. No name that a user may give begins so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDefinition:
    """One step. Options that are None are left to the task, its pool and the settings."""

    name: str
    kind: Kind
    target: str = ""
    """The dotted path of a task, or the name of a flow; the name of the event that is waited for."""
    runs_flow: bool = False
    """`target` is a flow; only of a map."""
    after: tuple[str, ...] = ()
    """Steps that must have ended, beside those whose values it takes."""
    args: tuple[Expression, ...] = ()
    kwargs: Mapping[str, Expression] = field(default_factory=dict)
    items: Expression | None = None
    """Of a map: the list; each item is the first argument of one job."""
    max_parallel: int | None = None
    """Of a map: most items that are with the queue at once."""
    seconds: Expression | None = None
    """Of a sleep."""
    when: Expression | None = None
    """The step is skipped when this is not true."""
    timeout_ms: int | None = None
    """Of one attempt of a task; how long an event is waited for."""
    retries: int | None = None
    tenant: str | None = None
    pool: str | None = None
    cost: float | None = None
    priority: int | None = None
    may_fail: bool = False
    """Its failure is none of the run: it leaves no value, and the run goes on."""
    undo: str = ""
    """The task that takes back what it did, given what it returned."""

    @property
    def expressions(self) -> Iterator[Expression]:
        yield from self.args
        yield from self.kwargs.values()
        yield from (given for given in (self.items, self.seconds, self.when) if given is not None)

    @property
    def runs_task(self) -> bool:
        """Of its own; not a flow."""
        return self.kind == "task" or (self.kind == "map" and not self.runs_flow)

    @property
    def taken(self) -> tuple[str, ...]:
        """The steps whose values it takes, once each."""
        return tuple(dict.fromkeys(step for given in self.expressions for step, _ in references(given)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A flow that has been checked. `steps` in the order of declaration, `order` in one that they can run in."""

    name: str
    parameters: tuple[str, ...]
    defaults: Mapping[str, Json]
    steps: tuple[StepDefinition, ...]
    result: Expression
    on_failure: OnFailure = "stop"

    version: str = field(init=False, compare=False)
    by_name: Mapping[str, StepDefinition] = field(init=False, repr=False, compare=False)
    before: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    """Step → those before it: named in `after`, or giving it a value."""
    order: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        before = {step.name: tuple(dict.fromkeys((*step.after, *step.taken))) for step in self.steps}
        for name, value in (
            ("by_name", {step.name: step for step in self.steps}),
            ("before", before),
            ("order", graph.order(before)),
            ("version", hashlib.sha256(self.to_json().encode()).hexdigest()[:12]),
        ):
            object.__setattr__(self, name, value)

    def bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, Json]:
        """The input of a run, defaults filled in. Raises InvalidInput, which names the argument."""
        known = f"it takes {', '.join(self.parameters) or 'no arguments'}"
        if len(args) > len(self.parameters):
            raise InvalidInput(f"flow {self.name} was given {len(args)} arguments; {known}.")
        given = dict(zip(self.parameters, args, strict=False))
        for name, value in kwargs.items():
            if name in given or name not in self.parameters:
                fault = "was given twice" if name in given else "is no argument of it"
                raise InvalidInput(f"flow {self.name}: {name} {fault}; {known}.")
            given[name] = value
        missing = [name for name in self.parameters if name not in given and name not in self.defaults]
        if missing:
            raise InvalidInput(f"flow {self.name} needs {', '.join(missing)}; {known}.")
        return {
            name: to_json(given[name], f"flow {self.name}: {name}") if name in given else self.defaults[name]
            for name in self.parameters
        }

    def tasks(self) -> frozenset[str]:
        """The dotted paths of all tasks that a run may need, undoing included."""
        named = {step.target for step in self.steps if step.runs_task}
        return frozenset(named | {step.undo for step in self.steps if step.undo})

    def looked_at(self) -> frozenset[str]:
        """The steps whose values a tick has to see whole, however large: conditions and sleeps hang on them."""
        asked = [given for step in self.steps for given in (step.when, step.seconds) if given is not None]
        return frozenset(name for given in asked for name, _ in references(given))

    def undoing(self, name: str) -> StepDefinition:
        """The step that undoes `name`: its task is given what the step returned, for a map once for each item."""
        done = self.by_name[name]
        return StepDefinition(
            name=UNDO + name,
            kind="map" if done.kind == "map" else "task",
            target=done.undo,
            args=() if done.kind == "map" else (["ref", name, "output", []],),
            items=["ref", name, "results", []] if done.kind == "map" else None,
            max_parallel=done.max_parallel,
            timeout_ms=done.timeout_ms,
            retries=done.retries,
            tenant=done.tenant,
            pool=done.pool,
            priority=done.priority,
        )

    def step(self, name: str) -> StepDefinition:
        """The step of this name, or the one that undoes it. Raises KeyError."""
        return self.undoing(name.removeprefix(UNDO)) if name.startswith(UNDO) else self.by_name[name]

    def to_json(self) -> str:
        """All of it, always spelt the same."""
        plain = {
            "form": FORM,
            "name": self.name,
            "parameters": self.parameters,
            "defaults": self.defaults,
            "steps": [_spelt(step) for step in self.steps],
            "result": self.result,
            "on_failure": self.on_failure,
        }
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def from_json(text: str) -> Definition:
    """The definition that was stored. Raises InvalidValue for one of a later release."""
    read = json.loads(text)
    if read["form"] != FORM:
        raise InvalidValue(
            f"The definition of flow {read.get('name')!r} was stored in form {read['form']!r}, and this release reads "
            f"{FORM}: let a process of the later release finish its runs."
        )
    steps = (
        StepDefinition(**{**given, "args": tuple(given.get("args", ())), "after": tuple(given.get("after", ()))})
        for given in read["steps"]
    )
    return Definition(
        name=read["name"],
        parameters=tuple(read["parameters"]),
        defaults=read["defaults"],
        steps=tuple(steps),
        result=read["result"],
        on_failure=cast("OnFailure", read["on_failure"]),
    )


def _spelt(step: StepDefinition) -> dict[str, Any]:
    """Only what differs from the default: a new option leaves the versions of flows that do not use it as they are."""
    plain = {**asdict(step), "kwargs": dict(step.kwargs)}
    unset = asdict(StepDefinition(name="", kind="task"))
    return {
        each.name: plain[each.name]
        for each in fields(StepDefinition)
        if each.name in {"name", "kind"} or plain[each.name] != unset[each.name]
    }
