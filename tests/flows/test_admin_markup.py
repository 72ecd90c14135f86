"""The admin's pages of flows: nothing inline, every word translatable, no colour of their own but on paper."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from django.urls import reverse

import flows
from flows import models
from tests.flows import host, panel
from tests.flows.panel import page_of, runs, text
from tests.unit.admin.test_markup import scan, words_outside_translations
from tests.working import work

TEMPLATES = Path(flows.__file__).parent / "templates"


@pytest.mark.compat
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("redis_url")
def test_no_page_has_anything_inline_or_foreign(admin_client: Client) -> None:
    every = [host.outer.start(1), panel.approve.start("x"), panel.weigh_all.start([1, 99])]
    work(slots=2)
    stored = models.FlowVersion.objects.values_list("pk", flat=True)
    pages = [
        text(admin_client.get(runs())),
        text(admin_client.get(reverse("admin:ductor_flows_flowversion_changelist"))),
    ]
    pages += [text(admin_client.get(page_of(run.id))) for run in every]
    pages += [text(admin_client.get(page_of(run.id, "history"))) for run in every]
    pages += [text(admin_client.get(reverse("admin:ductor_flows_flowversion_change", args=[pk]))) for pk in stored]
    pages += [text(admin_client.post(page_of(every[1].id, act))) for act in ("cancel", "resume", "retry", "send")]
    for page in pages:
        found = scan(page)
        assert found.faults == [], page
        for asset in found.assets:
            name = asset.removeprefix("/static/")
            assert name == "/admin/jsi18n/" or finders.find(name), asset


def test_every_word_of_the_templates_can_be_translated() -> None:
    paths = list(TEMPLATES.rglob("*.html"))
    assert len(paths) >= 5
    for path in paths:
        assert not words_outside_translations(path.read_text()), path.name


def sheet() -> tuple[str, str]:
    """The stylesheet: what holds on screens, and what holds on paper."""
    screen, paper = Path(str(finders.find("ductor_flows/flows.css"))).read_text().split("@media print")
    return screen, paper


def test_the_stylesheet_takes_its_colours_from_the_theme_and_on_paper_has_none() -> None:
    screen, paper = sheet()
    values = re.findall(r"(?:fill|stroke|color|background): ([^;}]+)", screen)
    assert len(values) > 15
    assert all(re.fullmatch(r"none|var\(--[a-z-]+(, var\(--[a-z-]+\))?\)", value) for value in values), values
    on_paper = dict(re.findall(r"(--[a-z-]+): ([^;]+);", paper))
    assert set(on_paper.values()) == {"Canvas", "CanvasText", "GrayText"}
    drawn_with = {re.findall(r"--[a-z-]+", value)[0] for value in values if value != "none"}
    assert drawn_with - {"--selected-row"} <= on_paper.keys()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_stand_out_from_every_box(theme: str) -> None:
    """WCAG 2.2, 1.4.3: 4.5 to 1; frames and signs, 1.4.11: 3 to 1."""
    colours = theme_colours(theme)
    screen, _ = sheet()
    fills = {"--body-bg", *re.findall(r"\.box {[^}]*fill: var\((--[a-z-]+)", screen)}
    assert len(fills) >= 4
    for fill in fills & colours.keys():
        assert contrast(colours["--body-fg"], colours[fill]) >= 4.5, fill
        assert contrast(colours["--body-loud-color"], colours[fill]) >= 4.5, fill
    for frame in ("--body-quiet-color", "--error-fg"):
        assert contrast(colours[frame], colours["--body-bg"]) >= 3


def theme_colours(theme: str) -> dict[str, str]:
    """Variable → colour of the admin's own stylesheets."""
    found: dict[str, str] = {}
    for name in ("base", "dark_mode")[: 1 if theme == "light" else 2]:
        source = Path(str(finders.find(f"admin/css/{name}.css"))).read_text()
        found |= dict(re.findall(r"(--[a-z-]+): (#[0-9a-f]{3,6});", source))
    return found


def contrast(one: str, other: str) -> float:
    """Of two colours, as WCAG counts it."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_no_two_states_look_alike_without_colour() -> None:
    """Each has a frame of its own: its dashes and its width."""
    screen, _ = sheet()
    frames = {}
    for state in models.StepRun.State.values:
        [rule] = re.findall(rf"\.{state} \.box {{([^}}]*)}}", screen)
        frames[state] = tuple(re.findall(r"(stroke-(?:dasharray|width): [^;]+)", rule))
    assert len(set(frames.values())) == len(frames)
