"""A format reward, to stand beside one for correctness."""


def shows_work(response, answer):
    """1 for a response with its working before one `=`, and its result after; else 0."""
    working, equals, result = response.partition("=")
    return bool(working.strip() and equals and result.strip()) and "=" not in result
