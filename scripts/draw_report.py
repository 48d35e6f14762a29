"""Draw docs/images/report.png, the first charts of a run's report.

    rollwise train --output runs/first
    python scripts/draw_report.py runs/first

Needs Chromium with its driver, and selenium (the extra `browser`).
"""

import argparse
import shutil
from pathlib import Path

from selenium import webdriver

PICTURE = Path(__file__).parents[1] / "docs/images/report.png"
SIZE = {"width": 900, "height": 880, "deviceScaleFactor": 1, "mobile": False}


def main() -> None:
    """Open the report in Chromium, and write what is seen from its charts on."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="the folder of a run")
    report = parser.parse_args().run.resolve() / "report.html"
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for option in ("--headless=new", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(option)
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    browser = webdriver.Chrome(options=options, service=service)
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", SIZE)
    browser.get(report.as_uri())
    browser.execute_script("document.getElementById('chart-list').scrollIntoView()")
    browser.save_screenshot(str(PICTURE))
    browser.quit()


if __name__ == "__main__":
    main()
