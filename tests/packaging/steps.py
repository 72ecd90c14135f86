"""The README's five steps, done to a project word for word, so that the README cannot say what does not work."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
ONLY = re.compile(r"\s+#\s+(Django [\d. and]+)$")
"""The comment at the end of a line that is for some Djangos only."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code, and the file that its first line names."""

    path: str
    append: bool
    text: str

    def write(self, project: Path, django: str) -> None:
        target = project / self.path
        target.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(lines_for(self.text, django)) + "\n"
        if self.append:
            text = f"{target.read_text()}\n{text}"
        target.write_text(text)


def section(page: str, title: str) -> str:
    """The text of one section of a page."""
    return page.split(f"## {title}\n")[1].split("\n## ")[0]


def files(text: str) -> list[Block]:
    """The blocks of a text that name a file, in order."""
    found = re.findall(r"^```python\n# (\S+\.py)(, at the end)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(path, bool(end), code) for path, end, code in found]


def commands(text: str, django: str) -> list[list[str]]:
    """The blocks of shell lines of a text, without comments, for this Django."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [[re.sub(r"\s+# .*$", "", line) for line in lines_for(block, django)] for block in blocks]


def lines_for(text: str, django: str) -> list[str]:
    """The lines that are for this Django: those that name another one at their end are left out."""
    lines = []
    for line in text.strip("\n").splitlines():
        only = ONLY.search(line)
        if only is None or django in re.findall(r"\d\.\d", only[1]):
            lines.append(line)
    return lines


STEPS = section(README, "Add it to your project")
