"""`@flow` and what is said inside it: `step`, `map_step`, `sleep`, `wait_for`. Pure.

The decorated function runs once, when its module is imported. Its parameters and what the steps give are `Value`s;
which step takes what of which is the graph. Everything that can be wrong with a definition is wrong then, as a
FlowInvalid that names the flow and the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from typing import Any, Generic, ParamSpec, TypedDict, Unpack, overload

from flows import checking
from flows.checking import StepTask
from flows.definition import Definition, Kind, OnFailure, StepDefinition
from flows.errors import FlowInvalid
from flows.values import INPUT, Expression, Json, Value, to_expression

P = ParamSpec("P")

_current: ContextVar[_Declaration] = ContextVar("flow that is being defined")
registry: dict[str, Flow[...]] = {}
"""Name → flow, of every flow whose module has been imported."""


class Output(Value):
    """What a step returns, once it has. Its parts: `checked["rows"]`."""

    __slots__ = ("step",)

    def __init__(self, step: str, part: str = "output") -> None:
        super().__init__(["ref", step, part, []])
        self.step = step

    @property
    def error(self) -> Value:
        """What a step that may fail failed with, as text; null when it has not."""
        return Value(["ref", self.step, "error", []])


class MapOutput(Output):
    """What the items returned, as a list in their order; null for an item that failed where it may."""

    __slots__ = ()

    def __init__(self, step: str) -> None:
        super().__init__(step, "results")

    @property
    def counts(self) -> Value:
        """`{"total": …, "completed": …, "failed": …}`: of the same size whatever the number of items."""
        return Value(["ref", self.step, "counts", []])


class Options(TypedDict, total=False):
    """What may be said of any step that does something."""

    name: str
    """By default the name of the function."""
    after: Output | str | Iterable[Output | str]
    """What must have ended before, beside the steps whose values it takes."""
    when: object
    """A condition; when it is not true, the step is skipped."""
    kwargs: Mapping[str, object]
    """Keyword arguments of the task: keywords of `step` itself are its options."""
    retries: int
    """Further attempts after one that failed; by default as the task says."""
    timeout: float | timedelta
    """Seconds after which an attempt is given up."""
    tenant: object
    """By default that of the run."""
    pool: str
    cost: float
    priority: int
    may_fail: bool
    """The run goes on when this fails for good: the step leaves no value then. Of a map: any of its items may fail."""
    undo: StepTask
    """The task that takes back what this did, given what it returned; only with on_failure="compensate"."""


class MapOptions(Options, total=False):
    max_parallel: int
    """Most items that are with the queue at once."""


@dataclass(slots=True)
class _Declaration:
    flow: str
    defaults: Mapping[str, Any]
    steps: dict[str, StepDefinition] = field(default_factory=dict)

    def add(self, step: StepDefinition) -> None:
        checking.require_name(self.flow, step.name, self.steps)
        self.steps[step.name] = step


class Flow(Generic[P]):
    """A flow that can be started. Calling it does nothing but say so."""

    def __init__(self, definition: Definition, function: Callable[P, object], *, api: bool = False) -> None:
        self.definition = definition
        self.function = function
        self.api = api
        """It may be started, and its runs looked at and acted on, over REST."""

    @property
    def name(self) -> str:
        return self.definition.name

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Json]:
        """The input of a run. Raises InvalidInput, which names the argument."""
        return self.definition.bind(args, kwargs)

    def using(self, **given: Any) -> Any:
        """Options of the run to be started: `tenant` (by default the current one) and `key`; see `flows.handle`."""
        # Declared without Django, started with it: what this module imports stays pure.
        return import_module("flows.handle").Starter(self, **given)

    def start(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """A new run of this flow with these arguments, as a `flows.handle.RunHandle`; inside a transaction it begins
        after commit. Raises InvalidInput, which names the argument, and what finding out the tenant raises."""
        return self.using().start(*args, **kwargs)

    async def astart(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """See `start`."""
        return await self.using().astart(*args, **kwargs)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> object:
        raise FlowInvalid(f"flow {self.name} was called as a function: start it, or make it a step of another flow.")

    def __repr__(self) -> str:
        return f"<flow {self.name} {self.definition.version}>"


@overload
def flow(function: Callable[P, object], /) -> Flow[P]: ...
@overload
def flow(
    *,
    name: str | None = None,
    on_failure: OnFailure = "stop",
    pool: str | None = None,
    priority: int | None = None,
    api: bool = False,
) -> Callable[[Callable[P, object]], Flow[P]]: ...
def flow(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    on_failure: OnFailure = "stop",
    pool: str | None = None,
    priority: int | None = None,
    api: bool = False,
) -> Any:
    """Declares a flow. `pool` and `priority` hold for those of its steps that say nothing else. With `api` it is there
    over REST, too; no version of it changes by that.

    `on_failure` says what becomes of the run when a step fails for good:
    stop        nothing more starts; what is under way may end; the run has failed
    continue    what does not come after the failed step goes on to its end; the run has failed
    compensate  as stop; then whatever was done is undone, the last first

    Raises FlowInvalid: two steps of one name, steps that wait for each other or for one that is not there, arguments
    that a task does not take, an option that the queue refuses.
    """

    def declare(function: Callable[..., object]) -> Flow[...]:
        own = checking.flow_name(function.__name__ if name is None else name)
        checking.require_on_failure(own, on_failure)
        checking.require_switch(own, "api", api)
        parameters, defaults = checking.read_parameters(own, function)
        declaration = _Declaration(own, {"pool": pool, "priority": priority})
        token = _current.set(declaration)
        try:
            given = function(*(Value(["ref", INPUT, "input", [parameter]]) for parameter in parameters))
        finally:
            _current.reset(token)
        result = to_expression(given, f"flow {own}: what it returns")
        checking.require_steps(own, declaration.steps, result, on_failure)
        made = Flow(
            Definition(
                name=own,
                parameters=parameters,
                defaults=defaults,
                steps=tuple(declaration.steps.values()),
                result=result,
                on_failure=on_failure,
            ),
            function,
            api=api,
        )
        checking.require_free_name(own, function, registry[own].function if own in registry else None)
        registry[own] = made
        return made

    return declare if function is None else declare(function)


def step(target: StepTask | Flow[...], /, *args: object, **options: Unpack[Options]) -> Output:
    """One job of a task, or one run of another flow; positional arguments are those of the target."""
    made = _step("task", "step", target, args, options)
    return Output(made.name)


def map_step(target: StepTask | Flow[...], items: object, /, *args: object, **options: Unpack[MapOptions]) -> MapOutput:
    """One job (or run) for each item of a list that may be known only when the run gets there: `target(item, *args)`.

    An empty list is done at once. Whatever comes after it starts once all items have ended.
    """
    made = _step("map", "map_step", target, args, options, items)
    return MapOutput(made.name)


def sleep(
    seconds: object,
    /,
    *,
    name: str | None = None,
    after: Output | str | Iterable[Output | str] = (),
    when: object = None,
) -> Output:
    """Waits, holding neither worker nor slot: seconds, a timedelta, or a value of the run in seconds."""
    declaration = _declaration("sleep")
    own = name or checking.numbered("sleep", declaration.steps)
    where = f"flow {declaration.flow}, step {own}"
    declaration.add(
        StepDefinition(
            name=own,
            kind="sleep",
            seconds=checking.read_seconds(where, seconds),
            after=_names(where, after),
            when=_condition(where, when),
        )
    )
    return Output(own)


def wait_for(
    event: str,
    /,
    *,
    timeout: float | timedelta | None = None,
    name: str | None = None,
    after: Output | str | Iterable[Output | str] = (),
    when: object = None,
    may_fail: bool = False,
) -> Output:
    """Waits until the run is sent an event of this name, and gives what came with it; fails after `timeout` seconds.

    An event that came earlier counts. Each is taken by one step.
    """
    declaration = _declaration("wait_for")
    own = name or str(event)
    where = f"flow {declaration.flow}, step {own}"
    declaration.add(
        StepDefinition(
            name=own,
            kind="event",
            target=checking.event_name(where, event),
            timeout_ms=None if timeout is None else checking.milliseconds(where, "timeout", timeout),
            after=_names(where, after),
            when=_condition(where, when),
            may_fail=may_fail,
        )
    )
    return Output(own)


def _step(
    kind: Kind,
    word: str,
    target: StepTask | Flow[...],
    args: Sequence[object],
    options: Mapping[str, Any],
    items: object = None,
) -> StepDefinition:
    declaration = _declaration(word)
    runs_flow = isinstance(target, Flow)
    own = options.get("name") or (target.name if isinstance(target, Flow) else checking.task_name(word, target))
    where = f"flow {declaration.flow}, step {own}"
    known = MapOptions.__annotations__ if kind == "map" else Options.__annotations__
    checking.require_options(where, word, options, known, target)
    keywords = options.get("kwargs") or {}
    placeholders = (items, *args) if kind == "map" else args
    if isinstance(target, Flow):
        checking.require_bound(where, target.function, placeholders, keywords, False, f"flow {target.name}")
        checking.require_no_job_options(where, options)
        said: dict[str, Any] = {}
    else:
        checking.require_task(where, target, placeholders, keywords)
        said = {key: value for key, value in declaration.defaults.items() if value is not None}
    undo = options.get("undo")
    if undo is not None:
        checking.require_undo(where, undo)
    made = StepDefinition(
        name=own,
        kind="flow" if runs_flow and kind == "task" else kind,
        target=target.name if isinstance(target, Flow) else target.module_path,
        runs_flow=runs_flow and kind == "map",
        after=_names(where, options.get("after", ())),
        args=tuple(to_expression(value, f"{where}: args[{index}]") for index, value in enumerate(args)),
        kwargs={key: to_expression(value, f"{where}: kwargs[{key!r}]") for key, value in keywords.items()},
        items=checking.read_items(where, items) if kind == "map" else None,
        max_parallel=checking.read_max_parallel(where, options.get("max_parallel")),
        when=_condition(where, options.get("when")),
        may_fail=options.get("may_fail", False),
        undo="" if undo is None else undo.module_path,
        **checking.read_job_options(where, None if isinstance(target, Flow) else target, said | dict(options)),
    )
    declaration.add(made)
    return made


def _declaration(word: str) -> _Declaration:
    try:
        return _current.get()
    except LookupError:
        raise FlowInvalid(f"{word}() was called outside a flow: it belongs into a function with @flow.") from None


def _names(where: str, after: Output | str | Iterable[Output | str]) -> tuple[str, ...]:
    listed = [after] if isinstance(after, (str, Value)) else after
    names = []
    for each in listed:
        if not isinstance(each, (str, Output)):
            raise FlowInvalid(f"{where}: after has {each!r}: it takes steps, or their names.")
        names.append(each if isinstance(each, str) else each.step)
    return tuple(dict.fromkeys(names))


def _condition(where: str, when: object) -> Expression | None:
    if when is None:
        return None
    if not isinstance(when, Value):
        raise FlowInvalid(
            f"{where}: when is {when!r}: it takes a value of the run or a condition on one, such as "
            'when=checked["rows"] > 0. What is known at import needs no step.'
        )
    return when.expression
