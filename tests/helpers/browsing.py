"""A page of the playground in a browser, with functions that read it."""

import re
from dataclasses import dataclass

from playwright.sync_api import Browser, Locator, Page, expect

ROW = """tokens => tokens.map(token => token.classList.contains("masked") ? null : token.textContent)"""

LEAST = 4.5  # WCAG AA, for text of any size
# Every visible text, with its contrast to the background.
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, below) => top.map((v, i) => (i < 3 ? v * top[3] / 255 + below[i] * (1 - top[3] / 255) : 255));
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reduceRight((below, top) => over(top, below), [255, 255, 255, 255]);
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })) continue;
    if (element.closest(".unseen, option, .masked, svg")) continue;
    const behind = ground(element);
    const [a, b] = [luminance(over(rgba(getComputedStyle(element).color), behind)), luminance(behind)];
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), walker.currentNode.textContent]);
  }
  return found;
}"""


@dataclass
class Playground:
    """One window. `troubles` are errors and breaches of its content policy; there must be none."""

    page: Page
    troubles: list[str]

    def open(self, url: str, fragment: str = "") -> None:
        # without it a link in the same window would not reload the page
        self.page.goto("about:blank")
        self.page.goto(f"{url}#{fragment}")
        expect(self.page.locator("html[data-ready]")).to_be_attached()

    def tokens(self, inside: str = "#stage") -> Locator:
        return self.page.locator(f"{inside} .token")

    def row(self, inside: str = "#stage") -> list[str | None]:
        """The text of each position; None if it is masked."""
        return self.tokens(inside).evaluate_all(ROW)

    def masked(self, inside: str = "#stage") -> list[int]:
        return [place for place, text in enumerate(self.row(inside)) if text is None]

    def type(self, text: str) -> None:
        """Types a text into the field, which replaces the tokens."""
        if not self.page.locator("#text").is_visible():
            self.page.click("#take")
        self.page.fill("#text", text)

    def take(self, text: str) -> None:
        """Shows a text as tokens."""
        self.type(text)
        self.page.click("#take")
        expect(self.tokens().first).to_be_visible()

    def write(self) -> None:
        """Presses the button and waits for the last step."""
        self.page.click("#text-go")
        self.finished()

    def fill(self) -> None:
        """Presses the same button, which fills the gaps of the tokens."""
        expect(self.page.locator("#text-go")).to_have_text(re.compile(r"Fill \d+ gaps?"))
        self.write()

    def finished(self) -> None:
        expect(self.page.locator("#announcer")).to_contain_text("Done")
        expect(self.page.locator("#text-stop")).to_be_hidden()
        self.scrub(10_000)

    def scrub(self, step: int, inside: str = "#stage") -> None:
        scrubber = self.page.locator(f"{inside} .player input[type=range]")
        scrubber.evaluate(
            "(input, step) => { input.value = step; input.dispatchEvent(new Event('input')); }",
            step,
        )

    def meter(self) -> str:
        return self.page.locator("#stage .meter").inner_text()

    def tool(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    def setting(self, label: str) -> Locator:
        return self.page.locator("#settings").get_by_label(label, exact=True)


def visit(browser: Browser, **options: object) -> Playground:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
    context.set_default_timeout(20_000)
    page = context.new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on(
        "console",
        lambda message: troubles.append(message.text) if message.type == "error" else None,
    )
    return Playground(page, troubles)


def shown(text: str) -> str:
    """The text of a tile for a token's text."""
    bare = text.replace("\n", "↵").removeprefix(" ")
    return bare or "␣"
