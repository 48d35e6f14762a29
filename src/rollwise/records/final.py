"""What does not change once a command is done: its checksums, and checks against them."""

from rollwise.errors import RunError
from rollwise.files import CHECKSUMS, damaged_files, write_checksums
from rollwise.records.folder import RunFolder

FINAL = (
    *("config.json", "summary.json", "metrics.jsonl", "samples/*.parquet", "visits/*.parquet"),
    *("problems.parquet", "problems/*", "responses/**/*.parquet", "prepared.parquet"),
    *("curves.jsonl", "comparison.json"),
)
"""The final files of all commands."""


def seal(folder: RunFolder) -> None:
    """Write `checksums.txt`, because a command is done."""
    write_checksums(folder.path, FINAL)


def unseal(folder: RunFolder) -> None:
    """Remove `checksums.txt`, because something is going to change; refuse what has changed since.

    A missing file is created again.
    """
    if changed := [name for name in damaged(folder) if (folder.path / name).exists()]:
        raise RunError(
            f"{folder.path} is damaged: {', '.join(changed)} is not what was written there; put it "
            "back, or delete it to have it recreated"
        )
    (folder.path / CHECKSUMS).unlink(missing_ok=True)


def damaged(folder: RunFolder) -> list[str]:
    """List the files that are missing, or not as they were when the command was done."""
    return list(dict.fromkeys([*(damaged_files(folder.path) or []), *folder.missing_parts]))


def refuse_damage(folder: RunFolder) -> None:
    """Refuse to read a folder in which something is missing or damaged."""
    if names := damaged(folder):
        raise RunError(
            f"{folder.path} is damaged: {', '.join(names)} is missing, or is not what was written "
            f"when the command was done; put it back. To read the rest as it is, remove "
            f"{folder.path / CHECKSUMS}"
        )
