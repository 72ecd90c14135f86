"""A strict Content-Security-Policy holds on every page: nothing inline or from elsewhere; all of it translatable."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

import queueapp
from queueapp.states import State
from tests.unit.admin.addresses import pages
from tests.unit.admin.conftest import enqueue, fail, public
from tests.unit.admin.test_dead_letters import DISCARD, RETRY, text
from tests.unit.admin.test_permissions import TABLE

TEMPLATES = Path(queueapp.__file__).parent / "templates"


class Inline(HTMLParser):
    """Collects what a policy of `'self'` alone would refuse, and what is not of this site."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.assets: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "style" or (tag == "script" and not values.get("src") and "json" not in values.get("type", "")):
            self.faults.append(f"<{tag}>")
        self.faults += [f"{tag} {name}" for name in values if name == "style" or name.startswith("on")]
        for name in ("href", "src", "action", "formaction"):
            address = values.get(name, "")
            if address.strip().lower().startswith(("javascript:", "data:", "http:", "https:", "//")):
                self.faults.append(f"{tag} {name}={address}")
        if tag in ("script", "link", "img"):
            self.assets.add(values.get("src") or values.get("href") or "")


def scan(page: str) -> Inline:
    found = Inline()
    found.feed(page)
    return found


@pytest.mark.compat
@pytest.mark.django_db
def test_no_page_has_anything_inline_or_foreign(redis_url: str, admin_client: Client) -> None:
    every = [text(admin_client.get(page.url)) for page in pages() if TABLE[page.name].get == 200]
    letters, waiting = fail(2), public(enqueue())
    every += [text(admin_client.post(address, {"ids": letters})) for address in (RETRY, DISCARD)]
    every += [text(admin_client.post(address, {"scope": "all"})) for address in (RETRY, DISCARD)]
    every.append(text(admin_client.post("/admin/queueapp/jobs/cancel/", {"ids": waiting})))
    every += [text(admin_client.get("/admin/queueapp/jobs/", {"state": state})) for state in State]
    for page in every:
        found = scan(page)
        assert found.faults == [], page
        for asset in found.assets:
            name = asset.removeprefix("/static/")
            assert name == "/admin/jsi18n/" or finders.find(name), asset


def test_the_scan_finds_what_it_should() -> None:
    bad = '<p style="x"><style></style><script>1</script><a href=" JavaScript:1" onclick=x></a><img src=//e.org/i.png>'
    assert len(scan(bad).faults) == 6
    assert scan('<script src="/a.js"></script><script type="application/json">1</script>').faults == []


def test_the_stylesheet_has_no_colours_of_its_own() -> None:
    sheet = Path(str(finders.find("queueapp/admin.css"))).read_text()
    values = re.findall(r"(?:color|background|border[a-z-]*):\s*([^;}]+)", sheet)
    assert len(values) > 10
    for value in values:
        assert not re.search(r"#[0-9a-f]{3}|rgb|hsl|\b(?:white|black|red|gr[ae]y)\b", value), value


def words_outside_translations(source: str) -> list[str]:
    """What is left of a template without its tags, its markup and what stands between translation tags."""
    source = re.sub(
        r"{% blocktranslate.*?{% endblocktranslate %}|{% block bodyclass.*?{% endblock %}",
        "",
        source,
        flags=re.DOTALL,
    )
    source = re.sub(r"{%.*?%}|{{.*?}}", "", source, flags=re.DOTALL)
    source = re.sub(r"<datalist.*?</datalist>|<[^>]*>|&\w+;", "", source, flags=re.DOTALL)
    return re.findall(r"[A-Za-z]{2,}", source)


def test_every_word_of_the_templates_can_be_translated() -> None:
    for path in TEMPLATES.rglob("*.html"):
        assert not words_outside_translations(path.read_text()), path.name
