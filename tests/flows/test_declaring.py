"""What a flow looks like in code, and what is said of one that cannot be run: when its module is imported."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from flows import declaring, either, flow, map_step, sleep, step, wait_for
from flows.definition import Definition, from_json
from flows.errors import FlowInvalid, InvalidInput, InvalidValue
from flows.values import describe
from tests.flows.tasks import import_chunk, nothing, read_file, report, take_back, validate


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declaring, "registry", {})


def import_upload(upload_id: int, strict: bool = False) -> object:
    """The flow of the demonstration."""
    text = step(read_file, upload_id)
    checked = step(validate, text, kwargs={"strict": strict}, retries=2, timeout=60)
    chunks = map_step(import_chunk, checked["chunks"], upload_id, max_parallel=16, retries=3)
    return step(report, upload_id, chunks.counts)


def test_the_graph_is_what_takes_what_of_which() -> None:
    declared = flow(import_upload)
    made = declared.definition
    assert made.order == ("read_file", "validate", "import_chunk", "report")
    assert made.before == {
        "read_file": (),
        "validate": ("read_file",),
        "import_chunk": ("validate",),
        "report": ("import_chunk",),
    }
    chunks = made.by_name["import_chunk"]
    assert describe(chunks.items or []) == "validate['chunks']"
    assert (chunks.kind, chunks.target, chunks.max_parallel) == ("map", "shop.tasks.import_chunk", 16)
    assert (made.by_name["validate"].retries, made.by_name["validate"].timeout_ms) == (2, 60_000)
    assert made.tasks() == {f"shop.tasks.{name}" for name in ("read_file", "validate", "import_chunk", "report")}
    assert describe(made.result) == "report"
    assert declaring.registry == {"import_upload": declared}


def test_a_definition_is_data() -> None:
    """It comes back from JSON as it was; its version is told from it, and from nothing else."""
    made = flow(import_upload).definition
    read = from_json(made.to_json())
    assert read == made
    assert (read.version, read.order, read.before) == (made.version, made.order, made.before)
    assert flow(import_upload).definition.version == made.version

    def changed(upload_id: int, strict: bool = False) -> object:
        text = step(read_file, upload_id)
        checked = step(validate, text, kwargs={"strict": strict}, retries=3, timeout=60)
        chunks = map_step(import_chunk, checked["chunks"], upload_id, max_parallel=16, retries=3)
        return step(report, upload_id, chunks.counts)

    assert flow(name="import_upload_2")(changed).definition.version != made.version
    with pytest.raises(InvalidValue, match="form 2, and this release reads 1"):
        from_json(made.to_json().replace('"form":1', '"form":2'))


def test_everything_else_a_flow_may_say() -> None:
    @flow(name="order", on_failure="compensate", pool="slow", priority=5)
    def order(amount: int, again: bool = False) -> object:
        child = step(flow(import_upload), 3, name="child", tenant="acme", may_fail=True)
        pause = sleep(timedelta(minutes=1), after=child)
        approved = wait_for("approved", timeout=3600, when=(amount > 1000) & ~again, may_fail=True)
        paid = step(nothing, after=[pause, "approved"], name="pay", undo=take_back, pool="fast", cost=3)
        each = map_step(flow(import_upload), [1, 2], name="each", after=paid)
        step(take_back, either(approved["by"], None), name="first")
        step(take_back, {"failed": child.error, "plain": [1, {"two": 2}]}, name="second")
        return {"each": each, "paid": paid}

    steps = order.definition.by_name
    assert [step.kind for step in steps.values()] == ["flow", "sleep", "event", "task", "map", "task", "task"]
    assert steps["sleep_1"].seconds == ["value", 60.0]
    assert describe(steps["approved"].when or []) == "(amount > 1000 and not again)"
    assert steps["approved"].timeout_ms == 3_600_000
    assert (steps["pay"].after, steps["pay"].undo) == (("sleep_1", "approved"), "shop.tasks.take_back")
    assert (steps["pay"].pool, steps["pay"].priority, steps["pay"].cost) == ("fast", 5, 3)
    assert (steps["child"].tenant, steps["child"].pool) == ("acme", None)
    assert steps["each"].runs_flow
    assert steps["second"].args[0][1]["plain"] == ["value", [1, {"two": 2}]]
    assert from_json(order.definition.to_json()) == order.definition


def test_the_input_of_a_run() -> None:
    declared: Any = flow(import_upload)
    assert declared.bind(3) == {"upload_id": 3, "strict": False}
    assert declared.bind(strict=True, upload_id=(1, 2)) == {"upload_id": [1, 2], "strict": True}
    for args, kwargs, said in [
        ((), {}, "needs upload_id; it takes upload_id, strict"),
        ((1, 2, 3), {}, "was given 3 arguments; it takes upload_id, strict"),
        ((1,), {"upload_id": 2}, "upload_id was given twice"),
        ((1,), {"other": 2}, "other is no argument of it"),
        (({"a": {1}},), {}, r"flow import_upload: upload_id\['a'\] is \{1\}: it must be JSON"),
        ((float("nan"),), {}, "upload_id is nan: it must be JSON"),
        (({1: 2},), {}, "upload_id is {1: 2}: it must be JSON"),
    ]:
        with pytest.raises(InvalidInput, match=said):
            declared.bind(*args, **kwargs)
    with pytest.raises(FlowInvalid, match="was called as a function"):
        declared(3)


def cycle() -> None:
    step(nothing, name="a", after="c")
    step(nothing, name="b", after="a")
    step(nothing, name="c", after=["b"])


def missing() -> None:
    step(nothing, name="load")
    step(nothing, name="b", after="laod")


def foreign() -> None:
    kept: list[Any] = []

    @flow
    def inner() -> None:
        kept.append(step(read_file, 1))

    step(validate, kept[0])


untyped: Any = step
"""For what type checkers refuse, too."""
INVALID: list[tuple[Callable[..., Any], str]] = [
    (cycle, "flow faulty: these steps wait for each other: a → b → c → a. Take one of the arrows out"),
    (missing, "flow faulty, step b: it waits for 'laod', which is no step; did you mean load"),
    (foreign, "flow faulty, step validate: it waits for 'read_file', which is no step; its steps: validate"),
    (lambda: step(read_file), r"flow faulty, step read_file: task read_file takes \(upload_id: .*missing a required"),
    (lambda: step(read_file, 1, 2), "flow faulty, step read_file: task read_file takes .*too many positional"),
    (lambda: map_step(nothing, [1]), r"step nothing: task nothing takes \(\): too many"),
    (lambda: step(validate, "x", kwargs={"strct": 1}), "step validate: task validate takes .*'strct'"),
    (lambda: untyped(validate, "x", strict=True), r"step\(strict=...\) is no option; give .* kwargs={'strict': ...}"),
    (lambda: untyped(nothing, retrys=1), r"step\(retrys=...\) is no option; did you mean retries"),
    (lambda: untyped(nothing, max_parallel=1), r"step\(max_parallel=...\) is no option; it belongs to map_step"),
    (lambda: step(nothing, retries=-1), "step nothing: retries is -1: it must be a whole number from 0"),
    (lambda: step(nothing, pool="nowhere"), "step nothing: queue_name 'nowhere' is not a known pool"),
    (lambda: untyped(nothing, may_fail="yes"), "step nothing: may_fail is 'yes'"),
    (lambda: step(nothing, when=True), "step nothing: when is True: it takes a value of the run"),
    (lambda: untyped(nothing, after=[3]), "step nothing: after has 3: it takes steps, or their names"),
    (lambda: step(nothing, undo=take_back), 'undo is never called: the flow has on_failure="stop"'),
    (lambda: step(nothing, undo=nothing), r"undo \(which is given what the step returned\): task nothing takes \(\)"),
    (lambda: untyped(nothing, undo=3), "step nothing: undo is 3: it must be a task"),
    (lambda: step(print), r"the first argument must be a task or a flow. Put @task above it"),  # type: ignore[arg-type]
    (lambda: [step(nothing), step(nothing)], "step nothing: another step has this name; give one of them a name"),
    (lambda: step(nothing, name="a b"), "step 'a b': a name has 1 to 100 of"),
    (lambda: map_step(take_back, 5), "step take_back: items is 5: it must be a list"),
    (lambda: map_step(take_back, [1], max_parallel=0), "max_parallel is 0: it must be a whole number from 1"),
    (lambda: sleep(-1), "step sleep_1: seconds is -1: it must be seconds"),
    (lambda: wait_for("a b"), "the event is 'a b': a name has 1 to 100"),
    (lambda: wait_for("x", timeout=0), "step x: timeout is 0: it must be seconds"),
    (lambda: step(read_file, {1, 2}), r"step read_file: args\[0\] is {1, 2}: it must be JSON"),
    (lambda: step(read_file, {"a": [float("inf")]}), r"args\[0\]\['a'\]\[0\] is inf: it must be JSON"),
    (lambda: either(step(nothing)), "either.. was given 1 values"),
    (lambda: step(nothing).error and None, "<nothing.error> is asked whether it is true while the flow is defined"),
    (lambda: list(step(nothing)), "<nothing> is iterated over while the flow is defined"),
    (lambda: len(step(nothing)), "<nothing> is measured while the flow is defined"),
    (lambda: 3 in step(nothing), "<nothing> is searched while the flow is defined"),
    (lambda: f"{step(nothing)['a']}", r"<nothing\['a'\]> is made a text while the flow is defined"),
    (lambda: map_step(take_back, [1])[0], r"<take_back.results>\[0\]: only what a plain step returned"),
    (lambda: map_step(take_back, [1], name="m") and None, "is asked whether it is true"),
    (lambda: None, "flow faulty has no steps"),
    (lambda: {1, *[step(nothing).step]}, "flow faulty: what it returns is {1, 'nothing'}|{'nothing', 1}: it must be"),
]


@pytest.mark.parametrize(("function", "said"), INVALID)
def test_what_is_wrong_is_said_at_import_with_its_path(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(FlowInvalid, match=said):
        flow(name="faulty")(function)


def test_what_is_wrong_with_a_flow_as_a_whole() -> None:
    with pytest.raises(FlowInvalid, match=r"step\(\) was called outside a flow"):
        step(nothing)
    with pytest.raises(FlowInvalid, match="flow f: on_failure is 'go on': it must be"):
        flow(name="f", on_failure="go on")(lambda: step(nothing))  # type: ignore[call-overload]
    with pytest.raises(FlowInvalid, match="flow '<lambda>': a name has 1 to 100"):
        flow(lambda: step(nothing))
    with pytest.raises(FlowInvalid, match=r"the parameter \*args must be a plain one"):
        flow(name="f")(lambda *args: step(nothing))
    with pytest.raises(FlowInvalid, match="the default of day is"):
        flow(name="f")(lambda day=timedelta(1): step(nothing))

    @flow(name="f")
    def one() -> None:
        step(nothing)

    with pytest.raises(FlowInvalid, match=r"flow f is declared twice, by .*\.one and by .*lambda"):
        flow(name="f")(lambda: step(nothing))
    with pytest.raises(FlowInvalid, match="flow g, step f: retries belongs to the steps of the flow"):
        flow(name="g")(lambda: step(one, retries=1))
    with pytest.raises(FlowInvalid, match=r"flow g, step f: flow f takes \(\): too many"):
        flow(name="g")(lambda: step(one, 3))
    with pytest.raises(FlowInvalid, match=r"step late: when looks at all results of a map; use its \.counts"):

        @flow(name="h")
        def h() -> None:
            step(nothing, name="late", when=map_step(take_back, [1]))


def test_a_flow_has_at_most_so_many_steps() -> None:
    with pytest.raises(FlowInvalid, match="step s500: a flow has at most 500 steps"):
        flow(name="f")(lambda: [step(nothing, name=f"s{number}") for number in range(501)])


def test_a_definition_is_built_of_nothing_but_its_json() -> None:
    assert isinstance(from_json(flow(import_upload).definition.to_json()), Definition)
