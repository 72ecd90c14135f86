"""Reading a metrics page in tests."""

from __future__ import annotations

from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

Labels = tuple[tuple[str, str], ...]
Samples = dict[tuple[str, Labels], float]


def samples(text: str | bytes) -> Samples:
    """`(name, labels)` → value, of everything on a page. A series that stands there twice is an error."""
    found: Samples = {}
    for family in text_string_to_metric_families(text.decode() if isinstance(text, bytes) else text):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, f"{key} stands there twice"
            found[key] = sample.value
    return found


def value(page: Samples, name: str, **labels: str) -> float:
    """One series of a page."""
    return page[name, tuple(sorted(labels.items()))]


def total(page: Samples, name: str, **labels: str) -> float:
    """The sum over all series of this name with these labels."""
    return sum(number for (found, given), number in page.items() if found == name and labels.items() <= set(given))


def here(name: str, **labels: str) -> float:
    """One series of this process; 0 when there is none."""
    return REGISTRY.get_sample_value(name, labels) or 0.0
