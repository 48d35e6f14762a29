"""The page on environments shows the example as it is, which `test_environments` trains on."""

import re


def test_the_page_shows_the_example_as_it_is(root):
    page = (root / "docs/verifiers.md").read_text()
    for language, name in (("python", "sums.py"), ("toml", "sums.toml")):
        shown = re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        assert (root / "examples/verifiers" / name).read_text() in shown
