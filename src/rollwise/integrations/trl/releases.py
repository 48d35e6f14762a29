"""Which releases of TRL are tested."""

from importlib.metadata import PackageNotFoundError, version

OLDEST = (1, 0)
NEWEST = (1, 16)
LEFT_OUT = (1, 15)
"""The minor releases from the oldest to the newest are tested, each in an environment of its own
(`scripts/test_trl_releases.sh`), but for one, whose loss needs Triton and so a GPU."""

REQUIREMENT = "trl>=1.0,!=1.15.*,<1.17"


def require_tested_release() -> None:
    """Refuse to go on with a release of TRL that was not tested, or with none.

    Raises:
        ImportError: Says which are tested, and how to install one.
    """
    tested = "trl 1.0 to 1.16 except 1.15"
    try:
        installed = version("trl")
    except PackageNotFoundError:
        raise ImportError(
            f'rollwise.integrations.trl needs TRL: pip install "rollwise[trl]" ({tested})'
        ) from None
    if not is_tested(installed):
        raise ImportError(
            f"rollwise.integrations.trl is tested with {tested}, and this is trl {installed}: "
            f'pip install "{REQUIREMENT}"'
        )


def is_tested(release: str) -> bool:
    """Say whether a release, such as `1.4.2`, is a final one of a tested minor release."""
    parts = release.split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts):
        return False
    minor = int(parts[0]), int(parts[1])
    return OLDEST <= minor <= NEWEST and minor != LEFT_OUT
