"""The study: what each method reaches for its tokens and seconds, on problem sets of four kinds.

`rollwise compare` trains the built-in model by the methods of `study/methods.toml`, each rival at
its own best learning rate, and compares them over seeds. The records of runs
that are done are kept in `study/SET/curves.jsonl`; what is recorded is not repeated. A run takes
about two minutes of one core. For seconds that mean something, leave the machine to the benchmark.

    python benchmarks/study.py [--quick] [--workers N] [--only METHOD,METHOD] [SET ...]
    python benchmarks/study.py --table long      # 2 M tokens (study/long.toml), 7 to 10 terms
    python benchmarks/study.py --table per-step  # the papers' methods at equal steps, two sets

Further options, such as `--choosing.seeds=1`, go to `rollwise compare`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from problem_sets import APART, BIMODAL, BY_TERMS, PROBLEM_SETS, settings_of

HERE = Path(__file__).parent
FOLDER = HERE / "study"
ONLY = {problems: ["GRPO n=4", "belief"] for problems in ("2 to 10 terms", BIMODAL, APART)}
"""What is compared on the other sets, where the whole table would take hours more."""

TABLES = {"methods": PROBLEM_SETS, "long": ["7 to 10 terms"], "per-step": list(BY_TERMS)}
"""The tables, which are files of this folder, and the sets that each is made on."""

QUICK = ["--seeds", "1", "--choose", "{}"]
QUICK_END = {"per-step": ["--steps", "5"]}


def command(
    table: str, problems: str, folder: Path, only: list[str], workers: int | None, quick: bool
) -> list[str]:
    """Return the command that compares methods on one problem set."""
    base = settings_of(problems, folder.parent / "problems")
    given = ["--base", json.dumps(base)]
    given += ["--only", ",".join(only)] if only else []
    given += [*QUICK, *QUICK_END.get(table, ["--tokens", "30_000"])] if quick else []
    given += ["--workers", str(workers)] if workers else []
    compare = [sys.executable, "-m", "rollwise", "compare", str(FOLDER / f"{table}.toml")]
    return [*compare, "--output", str(folder), *given]


def main() -> None:
    """Compare the methods on each problem set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", help=f"some of: {', '.join(PROBLEM_SETS)}")
    parser.add_argument("--quick", action="store_true", help="short runs, one seed, in /tmp")
    parser.add_argument("--table", choices=TABLES, default="methods", help="file in study/")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--only", default="", help="some of the methods, separated by commas")
    given, further = parser.parse_known_args()
    # argparse takes an unknown option with a space in its value for a set.
    further += [name for name in given.sets if name.startswith("--")]
    given.sets = [name for name in given.sets if not name.startswith("--")]
    if strange := [name for name in given.sets if name not in PROBLEM_SETS]:
        parser.error(f"unknown problem sets: {', '.join(strange)}")
    os.chdir(HERE.parent)
    with tempfile.TemporaryDirectory() as temporary:
        whole = given.table == "methods"
        for problems in given.sets or TABLES[given.table]:
            print(f"\n# {problems}\n")
            parent = Path(temporary) if given.quick else FOLDER.relative_to(HERE.parent)
            folder = parent / (problems.replace(" ", "-") + ("" if whole else f"-{given.table}"))
            by_default = ONLY.get(problems, []) if whole else []
            only = [name for name in given.only.split(",") if name] or by_default
            arguments = command(given.table, problems, folder, only, given.workers, given.quick)
            subprocess.run([*arguments, *further], check=True)


if __name__ == "__main__":
    main()
