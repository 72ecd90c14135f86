"""A flow as an SVG that the server draws: boxes with name, state, attempt and duration, and the lines between them.

What tells states apart is said three times: in a word, by a sign and by the frame; colour only repeats it. The picture
has no links, as the list beneath it has them; screen readers are told that the list says the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.utils.translation import gettext

from flows import drawing
from flows.admin.steps import StepLine
from flows.definition import Definition, StepDefinition
from flows.drawing import HEIGHT, WIDTH

NAME_SHOWN, DETAIL_SHOWN = 21, 27
"""Characters that fit into a box."""
BAR = WIDTH - 20
SIGNS = {
    "waiting": "M6 1.5A4.5 4.5 0 1 0 6 10.5A4.5 4.5 0 1 0 6 1.5Z",
    "running": "M3 1.5L10 6L3 10.5Z",
    "completed": "M1.5 6.5L4.5 9.5L10.5 2.5",
    "failed": "M2 2L10 10M10 2L2 10",
    "skipped": "M1.5 6H10.5M7.5 3L10.5 6L7.5 9",
    "cancelled": "M6 1.5A4.5 4.5 0 1 0 6 10.5A4.5 4.5 0 1 0 6 1.5ZM2.8 2.8L9.2 9.2",
}
"""State → the path of its sign, in a square of 12."""
_SHAPES = {"task": "task", "map": "map", "flow": "flow", "sleep": "pause", "event": "pause"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureBox:
    """A step as it is drawn."""

    x: int
    y: int
    shape: str
    state: str
    sign: str
    title: str
    """All of it in one sentence, for a pointer that rests on the box."""
    name: str
    """Cut in its middle where it is long."""
    second: str
    third: str
    bar_done: int
    bar_failed: int
    """Widths of the parts of a map's bar; both 0: no bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureLine:
    """A line from step to step; `idle` when it was not gone along."""

    path: str
    idle: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What the template draws."""

    label: str
    width: int
    height: int
    box_width: int
    box_height: int
    bar: int
    boxes: tuple[PictureBox, ...]
    lines: tuple[PictureLine, ...]


def picture(definition: Definition, lines: Iterable[StepLine] = ()) -> Picture | None:
    """The graph of a flow, or of a run with `lines` of its steps; None for one that is too large to be drawn."""
    if not drawing.can_be_drawn(definition):
        return None
    drawn, known = drawing.draw(definition), {line.step: line for line in lines}
    undone = {line.undoes: line for line in known.values() if line.undoes}
    return Picture(
        label=gettext("Graph of the steps of %(flow)s. The list of steps beneath it says the same.")
        % {"flow": definition.name},
        width=drawn.width,
        height=drawn.height,
        box_width=WIDTH,
        box_height=HEIGHT,
        bar=BAR,
        boxes=tuple(
            _box(box, definition.by_name[box.step], known.get(box.step), undone.get(box.step)) for box in drawn.boxes
        ),
        lines=tuple(
            PictureLine(path=line.path, idle=line.then in known and known[line.then].state in ("skipped", "cancelled"))
            for line in drawn.lines
        ),
    )


def _box(box: drawing.Box, step: StepDefinition, line: StepLine | None, undoing: StepLine | None) -> PictureBox:
    second, third = (kind_in_words(step), target_of(step)) if line is None else _in_words(line)
    if undoing is not None:
        third = gettext("undoing: %(state)s") % {"state": undoing.shown_state}
    done, failed, total = (line.completed, line.failed, line.total) if line is not None else (0, 0, 0)
    return PictureBox(
        x=box.x,
        y=box.y,
        shape=_SHAPES[step.kind],
        state="" if line is None else line.state,
        sign="" if line is None else SIGNS[line.state],
        title=" · ".join(part for part in (step.name, second, third, *(line.said if line is not None else ())) if part),
        name=cut(step.name, NAME_SHOWN),
        second=second,
        third=cut(third, DETAIL_SHOWN),
        bar_done=BAR * done // total if total else 0,
        bar_failed=-(-BAR * failed // total) if total else 0,
    )


def _in_words(line: StepLine) -> tuple[str, str]:
    second = [line.shown_state]
    if line.attempt:
        second.append(gettext("attempt %(number)d") % {"number": line.attempt})
    third = []
    if line.kind == "map" and line.total:
        third.append(f"{line.completed}/{line.total}")
        if line.failed:
            third.append(gettext("%(count)d failed") % {"count": line.failed})
    if line.took and len(" · ".join([*third, line.took])) <= DETAIL_SHOWN:
        third.append(line.took)
    return " · ".join(second), " · ".join(third)


def kind_in_words(step: StepDefinition) -> str:
    """What a step is, for people."""
    if step.kind == "map":
        return gettext("map of flows") if step.runs_flow else gettext("map")
    words = {"task": gettext("task"), "flow": gettext("flow"), "sleep": gettext("sleep"), "event": gettext("event")}
    return words[step.kind]


def target_of(step: StepDefinition) -> str:
    """The last part of its task's path, its flow, or the event that it waits for; empty where its name says it."""
    target = step.target.rpartition(".")[2] if step.runs_task else step.target
    return target if target != step.name else ""


def cut(text: str, most: int) -> str:
    """The text without its middle where it is long: names that differ, differ at their ends."""
    if len(text) <= most:
        return text
    tail = most * 2 // 5
    return f"{text[: most - 1 - tail]}…{text[-tail:]}"
