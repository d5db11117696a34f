"""The interactive picture of docs/concepts/polytope.md: its numbers, its keys, a small screen."""

import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

sync_api = pytest.importorskip("playwright.sync_api")

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FRAGMENT = Path(__file__).parents[1] / "docs/concepts/polytope-explorer.html"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on the path")


@pytest.fixture
def picture():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page, wrong = browser.new_page(viewport={"width": 390, "height": 900}), []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: wrong.append(request.url))
        page.set_content(f"<!doctype html><title>-</title>{FRAGMENT.read_text()}")
        yield page
        browser.close()
    assert not wrong


def test_it_shows_the_votes_and_moves_by_keys(picture):
    def probability():
        return float(re.search(r"P\(right\) = ([\d.]+)", picture.inner_text(".px-says"))[1])

    def value(label):
        return float(picture.get_by_label(label).input_value())

    picture.get_by_role("button", name="One expert").click()
    angle = math.radians(value("Direction"))
    point = np.array([value("First feature"), value("Second feature")])
    along = point @ [math.cos(angle), math.sin(angle)]
    z = value("Length of") * (along - value("Offset"))
    assert probability() == pytest.approx(1 / (1 + math.exp(-z)), abs=0.005)

    picture.get_by_label("Weight r").focus()
    picture.keyboard.press("Home")
    low = 1 - math.exp(-0.05 * np.logaddexp(0, z))
    assert probability() == pytest.approx(low, abs=0.005)

    picture.get_by_role("button", name="Add").focus()
    picture.keyboard.press("Enter")
    assert picture.locator("[data-move]").count() == 2
    assert picture.evaluate("document.documentElement.scrollWidth") <= 390
