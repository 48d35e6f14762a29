"""Files that are cut short, emptied, or differ in a bit: noticed, or without effect."""

import functools
import shutil
import sys

import pytest
from trials import SETTINGS, TALLY, TIMES, alike, copy_of

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform != "linux", reason="forked on Linux alone"),
]


def with_a_bit_flipped(content, chance):
    place = chance.randrange(len(content))
    flipped = content[place] ^ 1 << chance.randrange(8)
    return content[:place] + bytes([flipped]) + content[place + 1 :]


DAMAGES = {
    "emptied": lambda content, chance: b"",
    "cut short": lambda content, chance: content[: chance.randrange(len(content))],
    "with a bit flipped": with_a_bit_flipped,
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, wanted):
    """Each command as it is when it is killed late: all but its last files are there."""

    @functools.cache
    def of(name):
        trial = copy_of(wanted(name)[2], tmp_path_factory.mktemp(f"stopped-{name}"))
        for last in ("checksums.txt", "summary.json", "prepared.parquet", "comparison.json"):
            (trial.folder / last).unlink(missing_ok=True)
        for newest in sorted((trial.folder / "checkpoints").glob("step-*"))[-1:]:
            shutil.rmtree(newest)
        return trial

    return of


RESULTS = ("samples", "report.html", "README.md")
"""What nothing is computed from: damage to it changes nothing else."""


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", SETTINGS)
def test_damage_to_any_file(folders, wanted, stopped, chance, name, damage):
    """The command refuses to go on and names the file, or comes to the same end."""
    files = sorted(p for p in stopped(name).folder.rglob("*") if p.is_file() and p.stat().st_size)
    for attempt in range(max(TIMES, len(files)) if TIMES > 2 else TIMES):
        file = files[attempt] if attempt < len(files) and TIMES > 2 else chance.choice(files)
        trial = copy_of(stopped(name), next(folders))
        damaged = trial.folder / file.relative_to(stopped(name).folder)
        damaged.write_bytes(DAMAGES[damage](damaged.read_bytes(), chance))
        code, shown = trial.start().end()
        assert "Traceback" not in shown, (damaged, shown)
        assert code in (0, 2), (damaged, shown)
        if code == 0:
            own = str(damaged.relative_to(trial.folder))  # where nothing reads it any more
            wrong = [one for one in alike(trial, wanted) if not one.startswith((own, *RESULTS))]
            assert wrong == [], (damaged, shown)
        TALLY[f"a file of {name} {damage}"] += 1
