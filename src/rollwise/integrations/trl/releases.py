"""Which releases of TRL are tested."""

from importlib.metadata import PackageNotFoundError, version

OLDEST = (1, 0)
NEWEST = (1, 16)
"""The minor releases from the oldest to the newest are tested, each in an environment of its own
(`scripts/test_trl_releases.sh`)."""


def require_tested_release() -> None:
    """Refuse to go on with a release of TRL that was not tested, or with none.

    Raises:
        ImportError: Says which are tested, and how to install one.
    """
    tested = f"trl {_text(OLDEST)} to {_text(NEWEST)}"
    remedy = f'pip install "trl>={_text(OLDEST)},<{_text((NEWEST[0], NEWEST[1] + 1))}"'
    try:
        installed = version("trl")
    except PackageNotFoundError:
        raise ImportError(
            f'rollwise.integrations.trl needs TRL: pip install "rollwise[trl]" ({tested})'
        ) from None
    if not is_tested(installed):
        raise ImportError(
            f"rollwise.integrations.trl is tested with {tested}, and this is trl {installed}: "
            f"{remedy}"
        )


def is_tested(release: str) -> bool:
    """Say whether a release, such as `1.4.2`, is a final one between the oldest and the newest."""
    parts = release.split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts):
        return False
    return OLDEST <= (int(parts[0]), int(parts[1])) <= NEWEST


def _text(minor: tuple[int, int]) -> str:
    return f"{minor[0]}.{minor[1]}"
