"""A headless Chromium, where there is one, logged in to the admin of a live server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import User
from pytest_django.live_server_helper import LiveServer

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--window-size=1400,1000",
)


@pytest.fixture
def chromium(tmp_path: Path) -> Iterator[WebDriver]:
    """The browser. Without Chromium, chromedriver or selenium the test is skipped; CI must have them."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    try:
        from selenium import webdriver
    except ImportError:
        pytest.skip("no selenium: pip install selenium")
    if browser is None or driver is None:
        pytest.skip("no Chromium with its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for option in (*OPTIONS, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(option)
    if hasattr(os, "getuid") and os.getuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(driver, log_output=str(tmp_path / "chromedriver.log"))
    running = webdriver.Chrome(options=options, service=service)
    try:
        yield running
    finally:
        running.quit()


@pytest.fixture
def admin(chromium: WebDriver, live_server: LiveServer, admin_user: User) -> WebDriver:
    """The browser on the admin's first page, logged in through its form as a superuser."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.expected_conditions import presence_of_element_located
    from selenium.webdriver.support.wait import WebDriverWait

    chromium.get(f"{live_server.url}/admin/")
    chromium.find_element(By.NAME, "username").send_keys(admin_user.get_username())
    chromium.find_element(By.NAME, "password").send_keys("password")
    chromium.find_element(By.CSS_SELECTOR, "[type=submit]").click()
    WebDriverWait(chromium, 20).until(presence_of_element_located((By.ID, "user-tools")))
    return chromium
