"""The admin as people use it: a weight is set and acts; a dead letter is looked at, retried, and runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from queueapp.models import Pool, Tenant, TenantLimits
from queueapp.testing import drain
from tests.browser import jobs

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver
    from selenium.webdriver.remote.webelement import WebElement

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis_url", "fresh_jobs"),
]

ROUND = 20
"""Jobs that run between two looks at the order."""


@pytest.fixture
def fresh_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "ran", [])
    monkeypatch.setattr(jobs, "mended", False)


def find(browser: WebDriver, selector: str) -> WebElement:
    """The first element that matches, waited for as long as a page takes to load."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support import expected_conditions
    from selenium.webdriver.support.wait import WebDriverWait

    found: WebElement = WebDriverWait(browser, 20).until(
        expected_conditions.presence_of_element_located((By.CSS_SELECTOR, selector))
    )
    return found


def leave(browser: WebDriver, element: WebElement) -> None:
    """Clicks on what leads to another page, and waits until the old one is gone."""
    from selenium.webdriver.support import expected_conditions
    from selenium.webdriver.support.wait import WebDriverWait

    old = find(browser, "html")
    element.click()
    WebDriverWait(browser, 20).until(expected_conditions.staleness_of(old))


def follow(browser: WebDriver, text: str) -> None:
    """Through a link."""
    from selenium.webdriver.common.by import By

    leave(browser, browser.find_element(By.LINK_TEXT, text))


def press(browser: WebDriver, text: str) -> None:
    """A button of the page itself, which sends a form."""
    from selenium.webdriver.common.by import By

    leave(browser, browser.find_element(By.XPATH, f"//main//button[normalize-space()='{text}']"))


def page(browser: WebDriver) -> str:
    return find(browser, "#content").text


def share_of_globex() -> float:
    """How much of the next `ROUND` runs is globex's while both tenants wait."""
    jobs.ran.clear()
    drain(max_jobs=ROUND)
    return jobs.ran.count("globex") / ROUND


def test_a_weight_set_in_the_admin_shows_in_the_order(admin: WebDriver) -> None:
    pool = Pool.objects.create(name="default")
    for key in ("acme", "globex"):
        TenantLimits.objects.create(pool=pool, tenant=Tenant.objects.create(key=key))
        for _ in range(3 * ROUND):
            jobs.count.using(tenant=key, cost=10).enqueue(key)
    assert share_of_globex() == pytest.approx(0.5, abs=0.1)

    follow(admin, "Limits")
    weight = find(admin, "#id_form-1-weight")
    weight.clear()
    weight.send_keys("4")
    leave(admin, find(admin, "[name=_save]"))
    assert "successfully" in find(admin, ".messagelist .success").text
    assert TenantLimits.objects.get(tenant__key="globex").weight == 4
    assert share_of_globex() == pytest.approx(0.8, abs=0.1)
    assert_quiet(admin)


def test_a_dead_letter_is_inspected_retried_and_runs(admin: WebDriver) -> None:
    for _ in range(2):
        jobs.fragile.using(tenant="acme").enqueue("mail.example.com", password="hunter2")
    drain(raise_on_failure=False)

    follow(admin, "Dead letters")
    assert "1–2 of 2 dead letters" in page(admin)
    boxes = [find(admin, f"tbody tr:nth-child({row}) [name=ids]") for row in (1, 2)]
    find(admin, "[data-ductor-all]").click()
    assert [box.is_selected() for box in boxes] == [True, True]
    follow(admin, "By cause")
    assert "ConnectionError" in page(admin)
    leave(admin, find(admin, "tbody td.number a"))
    leave(admin, find(admin, "tbody td.id a"))
    shown = page(admin)
    assert "mail.example.com does not answer" in shown
    assert "raise ConnectionError" in shown
    assert '"********"' in shown
    assert "hunter2" not in shown

    jobs.mended = True
    press(admin, "Retry…")
    find(admin, "#note").send_keys("the server is back")
    press(admin, "Retry")
    assert "1 retried" in find(admin, ".messagelist .success").text
    assert "pending" in page(admin)
    drain()
    admin.refresh()
    shown = page(admin)
    assert "completed" in shown
    assert '"sent"' in shown
    assert "the server is back" in shown
    follow(admin, "Dead letters")
    assert "1–1 of 1 dead letter" in page(admin)
    assert_quiet(admin)


def test_a_dead_letter_is_edited_and_runs(admin: WebDriver) -> None:
    jobs.letter.using(tenant="acme").enqueue("ann.example.com", copies=2, password="hunter2")
    drain(raise_on_failure=False)
    follow(admin, "Dead letters")
    leave(admin, find(admin, "tbody td.id a"))
    follow(admin, "Edit arguments…")
    assert '"********"' in str(find(admin, "#kwargs").get_attribute("value"))
    args = find(admin, "#args")
    args.clear()
    args.send_keys('["ann@example.com"]')
    find(admin, "#note").send_keys("a dot for an at")
    press(admin, "Show what would change…")
    assert '"ann.example.com"' in page(admin)
    assert '"ann@example.com"' in page(admin)
    press(admin, "Edit and retry")
    assert "Edited: args[0]. 1 retried." in find(admin, ".messagelist .success").text
    assert "1 time, at" in page(admin)
    drain()
    assert jobs.ran == ["2 to ann@example.com with hunter2"]
    assert "hunter2" not in page(admin)
    assert_quiet(admin)


def assert_quiet(browser: WebDriver) -> None:
    """The browser had nothing to complain about: no script failed, the Content-Security-Policy refused nothing."""
    log: Callable[[str], list[dict[str, str]]] = browser.get_log
    assert [entry["message"] for entry in log("browser") if "favicon.ico" not in entry["message"]] == []
