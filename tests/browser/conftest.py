import shutil
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from harness.report import write_report

sys.path[:0] = [str(Path(__file__).parents[1] / "unit" / folder) for folder in ("analysis", "report")]

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-default-apps", "--disable-sync", "--no-first-run"),
)


def pytest_collection_modifyitems(items):
    missing = pytest.mark.skip(reason="this machine has no Chromium (Debian: apt-get install chromium)")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if CHROMIUM is None:
                item.add_marker(missing)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield chromium
        chromium.close()


class Watched:
    """A page and everything that went wrong in it: console errors, exceptions, requests, policy violations."""

    def __init__(self, page):
        self.page = page
        self.console = []
        self.requests = []
        self.violations = []
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.console.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.expose_function("reportViolation", self._violated)
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (event) => reportViolation(event.violatedDirective));"
        )

    def _violated(self, directive):
        self.violations.append(directive)

    def _heard(self, message):
        if message.type in {"error", "warning"}:
            self.console.append(message.text)


@pytest.fixture
def watch(browser):
    """Open a report file; every request but the page itself is refused and recorded."""
    contexts = []

    def opened(path, *, width=1400, height=1000, scheme="light", fragment="", **options):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True, **options
        )
        contexts.append(context)
        url = path.as_uri()
        context.route(
            "**/*", lambda route: route.continue_() if route.request.url.split("#")[0] == url else route.abort()
        )
        watched = Watched(context.new_page())
        watched.page.goto(url + fragment)
        return watched

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def reports(tmp_path_factory):
    """One file for each of a few made-up screenings."""
    import made  # noqa: PLC0415 - found only after the paths above are set

    folder = tmp_path_factory.mktemp("reports")
    trios = {
        "small": made.small(),
        "full": made.full(),
        "hostile": made.hostile(),
        "arms": made.many_arms(),
        "scaled": made.scaled(),
    }
    return {name: write_report(*trio, folder / f"{name}.html") for name, trio in trios.items()}
