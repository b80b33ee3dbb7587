"""The console's page in a browser."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route, async_playwright, expect
from tests.consoles import TENANT, RunningConsole, running_console

from chunkstore.adapters.embedding.hashing import HashingProvider

ROOT = Path(__file__).parents[2]
# Where set, the picture of the page is written there; docs/images/console.png is such a one.
SCREENSHOT = os.environ.get("CHUNKSTORE_SCREENSHOT")

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
INJECTION = "<img src=x onerror=\"document.title='taken'\"> is the syntax of a picture"
# Three letters outside the basic plane, each of two UTF-16 units, before the word that is found.
TWO_DOCUMENTS = {"refunds": "A refund takes ten days.", "hotels": "Hotel nights are booked early."}
WIDE = "𝒳𝒴𝒵 😀 the warranty lasts two years"


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    executable = shutil.which("chromium")
    if executable is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("chromium is not installed")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield browser
        await browser.close()


@pytest.fixture(scope="module")
async def console() -> AsyncIterator[RunningConsole]:
    handbook = {path.name: path.read_text() for path in sorted((ROOT / "examples" / "handbook").glob("*.md"))}
    async with running_console({**handbook, "injection": INJECTION, "wide": WIDE}) as running:
        yield running


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """An empty page that fails the test if its script failed, or asked for what its policy forbids."""
    page = await browser.new_page(viewport={"width": 1100, "height": 900})
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    yield page
    await page.close()
    # A refused request is one that a test makes; the browser logs its status.
    assert [fault for fault in faults if not fault.startswith("Failed to load resource")] == []


async def _ask(page: Page, console: RunningConsole, query: str, **fields: str) -> None:
    await page.goto(console.url)
    await page.get_by_label("Tenant").fill(fields.pop("tenant", TENANT))
    await page.get_by_label("Query").fill(query)
    for label, value in fields.items():
        if label in ("Mode", "Fusion"):
            await page.get_by_role("combobox", name=label).select_option(value)
        else:
            await page.get_by_label(label, exact=True).fill(value)
    await page.get_by_label("Query").press("Enter")


async def test_each_channels_ranking_is_joined_to_the_fused_one(page: Page, console: RunningConsole) -> None:
    await _ask(page, console, "how long does a refund take", k="5")
    await expect(page.locator("#state")).to_have_text(
        re.compile(r"^5 chunks, of 53 at revision \d+; 53 of 53 embedded\.$")
    )
    fused = page.get_by_role("region", name="fused ranking").get_by_role("button")
    await expect(fused).to_have_count(5)
    await expect(page.get_by_role("region", name="identifier ranking")).to_have_count(0)
    for channel in ("semantic", "lexical"):
        buttons = page.get_by_role("region", name=f"{channel} ranking").get_by_role("button")
        await expect(buttons.first).to_have_accessible_name(
            re.compile(f"^{channel} rank 1: refunds-and-cancellations.md #\\d, score [\\d.]+$")
        )
    # Every chunk of the answer is joined to where a channel ranks it, from one column's edge to the other's.
    ids = [await button.get_attribute("data-id") for button in await fused.all()]
    for channel in ("semantic", "lexical"):
        ranked = await page.locator(f".column.{channel} button:not(.outside)").evaluate_all(
            "nodes => nodes.map((node) => node.dataset.id)"
        )
        joined = await page.locator(f"#rankings path.{channel}").evaluate_all(
            "nodes => nodes.map((node) => node.dataset.id)"
        )
        assert joined
        assert set(joined) == set(ranked) <= set(ids)
    assert await page.locator("#rankings path.semantic").count() == 5
    line = await page.locator("#rankings path.semantic").first.bounding_box()
    assert line is not None
    assert line["width"] > 10
    await expect(page.locator("#partial")).to_be_empty()


async def test_what_a_channel_ranks_high_is_shown_although_the_answer_lacks_it(
    page: Page, console: RunningConsole
) -> None:
    await _ask(page, console, "how long does a refund take", k="1")
    await expect(page.get_by_role("region", name="fused ranking").get_by_role("button")).to_have_count(1)
    semantic = page.get_by_role("region", name="semantic ranking").get_by_role("button")
    await expect(semantic).to_have_count(3)
    await expect(semantic.nth(2)).to_have_accessible_name(re.compile("^semantic rank 3: .*, not in the answer$"))


async def test_hovering_tells_score_rank_and_share(page: Page, console: RunningConsole) -> None:
    await _ask(page, console, "refund", k="5")
    await expect(page.locator("#detail")).to_be_hidden()
    await page.get_by_role("region", name="fused ranking").get_by_role("button").first.hover()
    rows = page.locator("#detail").get_by_role("row")
    await expect(rows.filter(has_text="semantic")).to_contain_text("0.5")
    await expect(rows.filter(has_text="lexical")).to_contain_text("0.5")
    await expect(rows.filter(has_text="identifier")).to_contain_text("not ranked")
    await expect(rows.filter(has_text="fused").last).to_have_text("fused11")
    assert await page.locator("#rankings path.picked").count() == 2
    assert await page.locator("#rankings button.picked").count() == 3
    await page.mouse.move(0, 0)
    await expect(page.locator("#detail")).to_be_hidden()


async def test_the_keyboard_goes_from_a_rank_to_its_passage(page: Page, console: RunningConsole) -> None:
    await _ask(page, console, "how long does a refund take", k="3")
    best = page.get_by_role("region", name="semantic ranking").get_by_role("button").first
    await best.focus()
    await expect(page.locator("#detail")).to_be_visible()
    await best.press("Enter")
    await expect(page.locator("#passages li").first).to_be_focused()


async def test_matched_terms_are_marked(page: Page, console: RunningConsole) -> None:
    await _ask(page, console, "refund", k="1")
    marks = page.locator("#passages mark")
    await expect(marks.first).to_have_text("refunded")
    assert {text.lower() for text in await marks.all_inner_texts()} <= {"refund", "refunded", "refundable", "refunds"}
    await expect(page.locator("#passages small")).to_contain_text("refund ×")


async def test_spans_count_code_points(page: Page, console: RunningConsole) -> None:
    await _ask(page, console, "warranty", k="1", Mode="lexical")
    await expect(page.locator("#passages p")).to_have_text(WIDE)
    await expect(page.locator("#passages mark")).to_have_text(["warranty"])


async def test_an_identifier_has_a_ranking_of_its_own(page: Page, console: RunningConsole) -> None:
    await _ask(page, console, "refund_request_form", k="3")
    identifier = page.get_by_role("region", name="identifier ranking").get_by_role("button")
    await expect(identifier.first).to_have_accessible_name(re.compile("^identifier rank 1: refunds"))
    await expect(page.locator("#rankings path.identifier")).not_to_have_count(0)


async def test_stored_markup_stays_text(page: Page, console: RunningConsole) -> None:
    await _ask(page, console, "syntax of a picture", k="1", Mode="lexical")
    await expect(page.locator("#passages p")).to_have_text(INJECTION)
    await expect(page.locator("img")).to_have_count(0)
    assert await page.title() == "chunkstore console"


async def test_an_error_is_told_at_its_field(page: Page, console: RunningConsole) -> None:
    await _ask(page, console, "refund", k="-1")
    await expect(page.locator("#error")).to_have_text("INVALID_ARGUMENT (INVALID_FIELD): k must be within [0, 300]")
    await expect(page.get_by_label("k", exact=True)).to_be_focused()
    await expect(page.get_by_label("k", exact=True)).to_have_attribute("aria-invalid", "true")
    await expect(page.locator("#answer")).to_be_hidden()
    await page.get_by_label("k", exact=True).fill("2")
    await page.get_by_role("button", name="Retrieve").click()
    await expect(page.locator("#passages li")).to_have_count(2)
    await expect(page.locator("#error")).to_be_empty()


async def test_a_server_that_is_gone_is_told(page: Page, console: RunningConsole) -> None:
    async def gone(route: Route) -> None:
        await route.abort()

    await page.route("**/retrieve", gone)
    await _ask(page, console, "refund")
    await expect(page.locator("#error")).to_have_text("The server does not answer.")


async def test_an_empty_corpus_is_no_error(page: Page, console: RunningConsole) -> None:
    await _ask(page, console, "refund", tenant="nobody")
    await expect(page.locator("#state")).to_have_text("0 chunks, of 0 at revision 0; 0 of 0 embedded.")
    await expect(page.get_by_role("region", name="fused ranking")).to_contain_text("nothing ranked")


async def test_a_partial_answer_says_so(page: Page) -> None:
    async with running_console(TWO_DOCUMENTS, embeddings="none", dimension=8) as console:
        await _expect_no_semantic_channel(page, console, "not configured", "NO_EMBEDDING_PROVIDER")


async def test_a_channel_that_timed_out_is_shown_with_its_reason(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_: HashingProvider, __: Sequence[str]) -> None:
        await asyncio.Event().wait()

    async with running_console(TWO_DOCUMENTS, embeddings="hashing", dimension=8, channel_timeout=0.5) as console:
        monkeypatch.setattr(HashingProvider, "embed", never)
        await _expect_no_semantic_channel(page, console, "timed out", "EMBEDDING_TIMED_OUT")


async def _expect_no_semantic_channel(page: Page, console: RunningConsole, state: str, reason: str) -> None:
    """The words alone answer, and the page tells in which state the semantic channel is, and why."""
    await _ask(page, console, "refund")
    await expect(page.locator("#partial")).to_have_text(
        f"Partial answer: the ranking lacks the opinion of a channel. semantic {state} ({reason})."
    )
    await expect(page.get_by_role("region", name="fused ranking")).to_contain_text("PARTIAL")
    await expect(page.get_by_role("region", name="semantic ranking")).to_contain_text(state)
    states = page.locator("#channels").get_by_role("row")
    await expect(states.filter(has_text="semantic")).to_contain_text(f"{state} ({reason})")
    await expect(states.filter(has_text="lexical")).to_contain_text("2 of 2")
    await expect(page.locator("#passages li")).to_have_count(1)
    await _ask(page, console, "refund", Mode="semantic")
    await expect(page.locator("#error")).to_contain_text("UNAVAILABLE (RETRIEVAL_DEGRADED)")


async def test_a_narrow_screen_shows_everything_within_its_width(page: Page, console: RunningConsole) -> None:
    await page.set_viewport_size({"width": 360, "height": 740})
    await _ask(page, console, "refund_request_form", k="10")
    await expect(page.locator("#rankings path.identifier")).not_to_have_count(0)
    assert await page.evaluate("document.documentElement.scrollWidth") == 360
    await page.locator(".column.fused button").first.hover()
    detail = await page.locator("#detail").bounding_box()
    assert detail is not None
    assert detail["x"] >= 0
    assert detail["x"] + detail["width"] <= 360


async def test_the_page_follows_the_systems_colours(page: Page, console: RunningConsole) -> None:
    await page.goto(console.url)
    grounds = []
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        grounds.append(await page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(251, 251, 249)", "rgb(20, 23, 26)"]


async def test_a_picture_can_be_taken(page: Page, console: RunningConsole) -> None:
    await _ask(page, console, "how long does a refund_request_form take", k="5")
    await expect(page.locator("#rankings path.identifier")).not_to_have_count(0)
    await page.locator(".column.fused button").nth(1).hover()
    await expect(page.locator("#detail")).to_be_visible()
    picture = await page.screenshot(path=SCREENSHOT)
    assert picture.startswith(b"\x89PNG")
