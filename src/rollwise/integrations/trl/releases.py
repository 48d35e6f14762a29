"""Which releases of TRL are tested."""

from importlib.metadata import PackageNotFoundError, version

from packaging.specifiers import SpecifierSet

REQUIREMENT = "trl>=1.0,!=1.15.*,<1.17"
"""Every minor release in this range is tested, each in an environment of its own
(`scripts/test_trl_releases.sh`). 1.15 is left out: its loss needs Triton, and so a GPU."""


def require_tested_release() -> None:
    """Check that a tested release of TRL is installed.

    Raises:
        ImportError: Says which releases are tested, and how to install one.
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
    """Say whether a release, such as `1.4.2`, is a final one in the tested range."""
    return SpecifierSet(REQUIREMENT.removeprefix("trl")).contains(release, prereleases=False)
