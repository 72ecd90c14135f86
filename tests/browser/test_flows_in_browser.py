"""A run in the admin as people use it: its graph is drawn, and what failed is resumed. The policy refuses nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queueapp.testing import drain
from tests.browser.test_admin_in_browser import assert_quiet, find, follow, leave, page, press
from tests.flows import host, panel

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_url")]


def test_a_failed_run_is_looked_at_and_resumed(admin: WebDriver) -> None:
    with panel.fresh():
        host.FAIL.add("second")
        run = host.chain.start(5)
        drain(raise_on_failure=False)
        host.FAIL.clear()

        follow(admin, "Runs")
        leave(admin, find(admin, "tbody td.id a"))
        box = find(admin, "svg .failed .box")
        assert box.size["width"] > 100
        assert box.value_of_css_property("stroke-width") == "3.5px"
        assert "ValueError: second was told to fail" in page(admin)
        press(admin, "Resume the run…")
        press(admin, "Resume the run")
        assert "The run goes on." in find(admin, ".messagelist .success").text
        drain()
        admin.refresh()
        assert not admin.find_elements("css selector", "svg .failed")
        assert run.refresh().output == 16
        assert_quiet(admin)
