"""A run with a report, and a browser."""

import shutil

import pytest
from in_browser import run_script
from made_runs import make_run, sample

from rollwise.reports import write_report


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("there is no Chromium: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)
    made = webdriver.Chrome(options=options, service=service)
    yield made
    made.quit()


@pytest.fixture
def show(browser):
    """Open a page at a size and in a theme; nothing may have failed by the end of the test."""

    def show(address, width=1280, theme="light"):
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        browser.get(address if isinstance(address, str) else address.as_uri())
        return browser

    yield show
    assert run_script(browser, "window.pwned") is None
    assert [entry["message"] for entry in browser.get_log("browser")] == []


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    rows = [sample(step, index, f"{step}={index}") for step in range(1, 9) for index in range(5)]
    path = make_run(
        tmp_path_factory.mktemp("runs") / "adaptive", samples=rows, method="reinforce_ada"
    )
    assert write_report(path) == path / "report.html"
    return path
