"""Pieces of the report's HTML: tables, pictures, lists, the page around them. All text is escaped here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape, unescape

STYLE = """
:root { color-scheme: light dark; --page: #fcfcfc; --ink: #1a1a1a; --quiet: #595959; --line: #d0d0d0; --band: #f1f3f5;
  --warn: #8f1010; --warn-band: #fbeaea; --link: #00538a; }
@media (prefers-color-scheme: dark) { :root { --page: #16181a; --ink: #e8e8e8; --quiet: #b0b4b8; --line: #43484d;
  --band: #22262a; --warn: #ffb4ab; --warn-band: #3a1f1f; --link: #8ec8f5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 82rem; padding: 1.5rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, "Segoe UI", "DejaVu Sans", Verdana, sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.3rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
a { color: var(--link); } .quiet, figcaption { color: var(--quiet); }
nav ul { columns: 18rem; padding-left: 1.2rem; margin: .3rem 0; }
.scroll { overflow-x: auto; }
.scroll:focus-visible, summary:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums; margin: .4rem 0 1rem; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .26rem .5rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th[scope=row], td.words, th.words { text-align: left; }
thead th { background: var(--band); vertical-align: bottom; white-space: normal; }
figcaption { margin-top: .4rem; }
td.words { white-space: normal; overflow-wrap: anywhere; }
figure { margin: .6rem 0 1.2rem; } figure svg { display: block; width: 100%; height: auto; }
.card { background: #fff; border: 1px solid var(--line); border-radius: .4rem; padding: .4rem; }
.warning { background: var(--warn-band); color: var(--warn); border-left: .3rem solid currentColor;
  padding: .5rem 1rem; }
.warning ul { margin: .2rem 0; } details { margin: .4rem 0; } summary { cursor: pointer; }
pre { background: var(--band); padding: .7rem; overflow-x: auto; border-radius: .3rem; }
.told li { overflow-wrap: anywhere; }
@media print { body { max-width: none; padding: 0; font-size: 9pt; } nav { display: none; }
  figure, table { break-inside: avoid; } }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What a browser may load and run for this page: nothing."""


def page(title: str, body: str) -> str:
    """A whole document."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def heading(name: str, title: str) -> str:
    return f'<h3 id="{escape(name)}">{escape(title)}</h3>\n'


def header(title: str, told: str) -> str:
    return f"<header><h1>{escape(title)}</h1>\n{paragraph(told, 'quiet')}</header>\n"


def section(name: str, title: str, content: str) -> str:
    return f'<section aria-labelledby="{name}">\n<h2 id="{name}">{escape(title)}</h2>\n{content}\n</section>\n'


def contents(sections: Iterable[tuple[str, str]]) -> str:
    """Links to sections, by their names and titles."""
    return f'<nav aria-label="Contents">{_list(_link(name, title) for name, title in sections)}</nav>\n'


def _link(name: str, title: str) -> str:
    return f'<a href="#{name}">{escape(title)}</a>'


def paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>\n' if kind else f"<p>{escape(text)}</p>\n"


def bullets(texts: Iterable[str], kind: str = "") -> str:
    return _list((escape(text) for text in texts), kind)


def _list(items: Iterable[str], kind: str = "") -> str:
    told = "".join(f"<li>{item}</li>" for item in items)
    return f'<ul class="{kind}">{told}</ul>\n' if kind else f"<ul>{told}</ul>\n"


def warning(title: str, texts: Iterable[str]) -> str:
    """What nobody should overlook."""
    return f'<div class="warning" role="note"><strong>{escape(title)}</strong>{bullets(texts)}</div>\n'


def code(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>\n"


def folded(title: str, content: str) -> str:
    """Shown when asked for, without a script."""
    return f"<details><summary>{escape(title)}</summary>\n{content}</details>\n"


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[str]], *, words: bool = False) -> str:
    """The first column names its row. `words`: the others are no numbers."""
    kind = ' class="words"' if words else ""
    first, *others = headings
    head = f'<th scope="col" class="words">{escape(first)}</th>'
    head += "".join(f'<th scope="col"{kind}>{escape(heading)}</th>' for heading in others)
    lines = []
    for name, *cells in rows:
        told = "".join(f"<td{kind}>{escape(cell)}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{escape(name)}</th>{told}</tr>\n')
    whole = f"<caption>{escape(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(lines)}</tbody>"
    # Who has no mouse scrolls it by the arrow keys.
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>{whole}</table></div>\n'
    )


def picture(name: str, svg: str, caption: str, told: Iterable[str]) -> str:
    """A plot on a white card, how to read it, and what it says in words."""
    words = folded("In words", bullets(told, "told"))
    drawn = f'<div class="card">{inlined(name, svg)}</div>'
    return f"<figure>{drawn}<figcaption>{escape(caption)}</figcaption></figure>\n{words}"


def inlined(name: str, svg: str) -> str:
    """A file of ours as a part of a page: its ids, and the reach of its style, are its own."""
    drawn = svg[svg.index("<svg ") :]
    drawn = re.sub(r'\b(id|aria-labelledby)="([^"]*)"', lambda found: f'{found[1]}="{_own(name, found[2])}"', drawn)
    drawn = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", drawn)
    drawn = drawn.replace("<svg ", f'<svg class="{name}-plot" ', 1)
    return drawn.replace(">*{", f">.{name}-plot *{{")


def _own(name: str, ids: str) -> str:
    return " ".join(f"{name}-{one}" for one in ids.split())


def described(svg: str) -> list[str]:
    """The lines of a plot's text alternative, as they were before they were escaped."""
    found = re.search(r"<desc[^>]*>(.*?)</desc>", svg, re.S)
    return unescape(found[1]).splitlines() if found else []
