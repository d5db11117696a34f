"""The page in a browser: chosen nodes, keys, no network, small screens, contrast, paper."""

import shutil
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api")

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
         "--disable-component-update", "--no-first-run"]  # fmt: skip

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on the path"),
]

#: The worst contrast of any text with what is behind it, and that text; but of maps of colours.
CONTRAST = """() => {
  const number = (text) => text.match(/[\\d.]+/g).map(
    (digits, k) => Number(digits) * (text.startsWith("color(") && k < 3 ? 255 : 1)
  );
  const light = (rgb) => rgb.slice(0, 3).map((c) => c / 255).map(
    (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  ).reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const rgba = number(getComputedStyle(one).backgroundColor);
      if (rgba.length === 3 || rgba[3] > 0) return rgba;
    }
    return [255, 255, 255];
  };
  let worst = [99, ""];
  for (const element of document.querySelectorAll("main *, nav *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !element.getClientRects().length || element.closest(".spoken, .paper")) continue;
    const style = getComputedStyle(element);
    const ink = light(number(element.closest("svg") ? style.fill : style.color));
    const paper = light(behind(element));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (ratio < worst[0]) worst = [ratio, element.textContent.trim().slice(0, 60)];
  }
  return worst;
}"""


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def seen(browser, page_of):
    """Opens a page; whatever it asks the network for or complains of fails the test."""
    contexts, wrong = [], []

    def go(name, width=1280, at="", **more):
        context = browser.new_context(viewport={"width": width, "height": 900}, **more)
        contexts.append(context)
        page = context.new_page()
        address = page_of(name).as_uri()
        page.on("request", lambda asked: asked.url.startswith((address, "data:"))
                or wrong.append(asked.url))  # fmt: skip
        page.on("console", lambda said: wrong.append(said.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(address + at)
        return page

    yield go
    for context in contexts:
        context.close()
    assert wrong == []


def shown_cards(page):
    return page.eval_on_selector_all(
        ".card", "all => all.filter((c) => c.getClientRects().length).map((c) => c.id)"
    )


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


def test_a_click_on_a_node_shows_its_facets(seen, drawn):
    page = seen("drawn")
    assert shown_cards(page) == ["root"]
    page.click('.upright a[data-at="R"]')
    assert shown_cards(page) == ["R"]
    assert page.evaluate("location.hash") == "#R"
    assert "held-out row" in page.inner_text("#R")
    page.click('.upright a[data-at="root"]')
    facets = page.locator("#root .facets").last.locator("> li")
    found = drawn[0].facets("root")
    assert facets.count() == min(8, int((found.probability >= 0.05).sum()))
    assert "east" in facets.first.inner_text()
    assert " to " in facets.first.inner_text()
    facets.first.locator("summary").click()
    assert facets.first.locator("table").is_visible()


def test_keys_walk_the_tree(seen):
    page = seen("drawn")
    page.focus('.upright a[data-at="root"]')
    walk = {"ArrowDown": "L", "ArrowRight": "R", "ArrowLeft": "L", "ArrowUp": "root"}
    for key, at in walk.items():
        page.keyboard.press(key)
        assert shown_cards(page) == [at]
        assert page.evaluate("document.activeElement.dataset.at") == at
    page.focus('.upright a[data-at="L"]')
    page.keyboard.press("Enter")
    assert shown_cards(page) == ["L"]
    assert "Leaf L" in page.inner_text(".spoken")


def test_an_address_leads_to_its_node(seen):
    assert shown_cards(seen("drawn", at="#L")) == ["L"]


def test_trees_side_by_side_are_walked_alone(seen):
    page = seen("side_by_side", width=1400)
    assert shown_cards(page) == ["r1-root", "r2-root"]
    page.focus('.upright a[data-at="r2-root"]')
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert shown_cards(page) == ["r1-root", "r2-R"]
    columns = page.locator("#trees .runs > div")
    left, right = (columns.nth(place).bounding_box() for place in (0, 1))
    assert left["x"] + left["width"] <= right["x"]
    page.set_viewport_size({"width": 390, "height": 900})
    above, below = (columns.nth(place).bounding_box() for place in (0, 1))
    assert above["y"] + above["height"] <= below["y"]


def test_branches_of_a_large_tree_open_on_sheets(seen):
    page = seen("large")
    branch = page.locator(".sheet:visible .upright a.branch").first
    at = branch.get_attribute("data-at")
    branch.click()
    assert shown_cards(page) == [at]
    assert page.locator(".sheet:visible").get_attribute("id") == f"sheet-{at}"
    page.click(".sheet:visible .above a >> nth=0")
    assert shown_cards(page) == ["root"]
    assert page.locator(".sheet:visible").get_attribute("id") == "sheet-root"


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("drawn", 320),
        ("choice", 320),
        ("drawn", 800),
        ("drawn", 1280),
        ("large", 375),
        ("side_by_side", 320),
        ("side_by_side", 1400),
    ],
)
def test_no_screen_scrolls_sideways(seen, name, width):
    page = seen(name, width)
    assert overflow(page) <= 0
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert overflow(page) <= 0


def test_a_table_of_ten_classes_uses_the_width_of_the_screen(seen):
    page = seen("ten", 1440)
    assert page.locator(".confusion").count() == 1
    beyond = page.eval_on_selector_all(
        "#scores .scroll", "all => Math.max(...all.map((one) => one.scrollWidth - one.clientWidth))"
    )
    assert beyond <= 1


def test_a_phone_has_the_outline(seen):
    page = seen("drawn", 375, has_touch=True)
    assert not page.locator(".upright").first.is_visible()
    page.locator('.outline a[data-at="R"]').tap()
    assert shown_cards(page) == ["R"]
    box = page.locator("#R").bounding_box()
    assert 0 <= box["y"] < 900
    heights = page.eval_on_selector_all(
        ".outline a", "all => all.map((one) => one.getBoundingClientRect().height)"
    )
    assert min(heights) >= 40


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["drawn", "large", "choice"])
def test_text_stands_out(seen, name, scheme):
    page = seen(name, color_scheme=scheme)
    ratio, text = page.evaluate(CONTRAST)
    assert ratio >= 4.5, text


def test_without_javascript_everything_can_be_read(seen):
    page = seen("drawn", at="#R", java_script_enabled=False)
    for at in ("root", "L", "R"):
        assert page.locator(f"#{at}").is_visible()
    assert not page.locator(".copy").is_visible()
    assert 0 <= page.locator("#R").bounding_box()["y"] < 900


def test_paper_has_the_tree_and_its_nodes(seen):
    page = seen("large")
    page.locator(".sheet:visible .upright a.branch").first.click()
    page.emulate_media(media="print")
    assert page.locator("#sheet-root .upright").is_visible()
    assert page.locator(".sheet:visible").count() == 1
    assert len(shown_cards(page)) == page.locator(".card.printed").count() > 3
    assert not page.locator("nav.contents").is_visible()
    assert page.pdf(format="A4")[:5] == b"%PDF-"


def test_the_command_is_copied(seen):
    page = seen("drawn", permissions=["clipboard-read", "clipboard-write"])
    page.click(".copy")
    for _ in range(200):  # wait_for_function evaluates text, which the policy of the page forbids
        if page.inner_text(".copy") != "Copy":
            break
        page.wait_for_timeout(50)
    if page.inner_text(".copy") == "Copied":
        assert page.evaluate("navigator.clipboard.readText()") == "bayestree run x"
    else:
        assert page.evaluate("getSelection().toString()") == "bayestree run x"


def shown_trees(page):
    """Visible rows of the list of trees, and the tree that is written out."""
    rows = page.locator(".near tbody tr:visible th").all_inner_texts()
    return [text.strip().removesuffix(" (shown above)") for text in rows], page.locator(
        ".near-tree:visible h3"
    ).all_inner_texts()


def test_trees_that_use_a_column_are_hidden(seen):
    page = seen("choice")
    assert shown_trees(page) == (["Tree 1", "Tree 2", "Tree 3"], ["Tree 1"])
    assert page.inner_text(".filtered") == ""
    page.get_by_role("checkbox", name="east").check()
    assert shown_trees(page) == (["Tree 3"], ["Tree 3"])
    assert page.inner_text(".filtered") == "1 of 3 trees do not use east."
    page.get_by_role("checkbox", name="north").check()
    assert shown_trees(page) == ([], [])
    assert page.inner_text(".filtered") == "0 of 3 trees do not use east, north."
    page.get_by_role("checkbox", name="east").uncheck()
    assert shown_trees(page) == (["Tree 2"], ["Tree 2"])


def test_the_columns_of_a_tree_have_room_on_a_phone(seen):
    cells = seen("choice", width=390).locator(".near td:last-child")
    assert all(cells.nth(place).bounding_box()["width"] > 200 for place in range(cells.count()))
    assert cells.count() == 3


def test_a_tree_is_chosen_by_keys_alone(seen):
    page = seen("choice")
    page.focus(".near fieldset input")
    page.keyboard.press("Space")
    assert shown_trees(page) == (["Tree 3"], ["Tree 3"])
    page.keyboard.press("Space")
    page.focus(".near tbody input:checked")
    page.keyboard.press("ArrowUp")
    assert shown_trees(page) == (["Tree 1", "Tree 2", "Tree 3"], ["Tree 2"])


def test_paper_and_pages_without_javascript_have_the_trees(seen):
    page = seen("choice", java_script_enabled=False)
    assert shown_trees(page)[1] == ["Tree 1", "Tree 2", "Tree 3"]
    assert not page.locator(".near fieldset").is_visible()
    page = seen("choice")
    page.get_by_role("checkbox", name="east").check()
    page.emulate_media(media="print")
    assert shown_trees(page) == (["Tree 3"], ["Tree 3"])
    assert not page.locator(".near fieldset").is_visible()
    assert page.locator(".filtered").is_visible()


def test_the_selected_node_keeps_the_colours_of_its_rows(seen):
    page = seen("choice")
    styles = page.eval_on_selector_all(
        '.upright a[data-at="root"] path', "all => all.map((one) => getComputedStyle(one).stroke)"
    )
    accent = page.evaluate("""() => {
      const one = document.body.appendChild(document.createElement("a"));
      return getComputedStyle(one).color;
    }""")
    assert styles.count(accent) == 1 < len(styles)  # its frame


@pytest.mark.parametrize("width", [1400, 390])
def test_axe_finds_nothing(seen, width):
    axe = pytest.importorskip("axe_core_python")
    page = seen("drawn", width, bypass_csp=True)
    page.evaluate(Path(axe.__file__).with_name("axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
