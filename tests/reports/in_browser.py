"""What tests do with a page in a browser."""

SIZES = [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")]
HOSTILE_NAME = "<img src=x onerror=window.pwned=1>"


def run_script(browser, text, *arguments):
    return browser.execute_script(f"return {text}", *arguments)


def choose(browser, name, value, event="change"):
    """Give a control a value, as its user would."""
    script = (
        "const control = document.getElementById(arguments[0]); control.value = arguments[1];"
        "control.dispatchEvent(new Event(arguments[2]))"
    )
    browser.execute_script(script, name, value, event)


def wait_for(browser, condition):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 60).until(lambda _: run_script(browser, condition))
