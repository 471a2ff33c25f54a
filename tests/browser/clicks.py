"""How many clicks an operator needs, from the board to the cause and to the remedy."""

from __future__ import annotations

from dataclasses import dataclass

from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Visit

TO_THE_CAUSE, TO_THE_REMEDY = 3, 5
PATIENCE = 10_000  # milliseconds for something to be there to click


@dataclass
class Walk:
    """A way that begins at the board. Each click is counted, and one too many fails."""

    visit: Visit
    clicks: int = 0

    @property
    def page(self) -> Page:
        return self.visit.page

    def begin(self) -> set[str]:
        """Open the board. Return the conditions that it names."""
        page = self.visit.go("pulse_django_board_changelist", query="?still")
        page.set_default_timeout(PATIENCE)
        self.clicks = 0
        return set(page.locator(".pulse-alarm > strong").all_text_contents())

    def alarm(self, condition: str) -> Locator:
        """Return the line of the board that names this condition."""
        return self.page.locator(".pulse-alarm").filter(has=self.page.locator(f"strong:text-is('{condition}')"))

    def click(self, target: Locator) -> None:
        self.clicks += 1
        assert self.clicks <= TO_THE_REMEDY, f"the remedy takes more than {TO_THE_REMEDY} clicks: {target}"
        target.click()

    def sees_the_cause(self, *signs: Locator) -> None:
        """Expect what tells the cause to be on the page, after few clicks."""
        for sign in signs:
            expect(sign).to_be_visible()
        assert self.clicks <= TO_THE_CAUSE, f"the cause took {self.clicks} clicks"
