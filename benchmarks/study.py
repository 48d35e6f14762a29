"""The study: what each method reaches for its tokens and seconds, on problem sets of four kinds.

`rollwise compare` trains the built-in model by the methods of `study/methods.toml`, each rival at
its own best learning rate, and compares them over seeds. The records of runs
that are done are kept in `study/SET/curves.jsonl`; what is recorded is not repeated. A run takes
about two minutes of one core. For seconds that mean something, leave the machine to the benchmark.

    python benchmarks/study.py [--quick] [--workers N] [--only METHOD,METHOD] [SET ...]
    python benchmarks/study.py --long          # 2 M tokens (study/long.toml), 7 to 10 terms

Further options, such as `--choosing.seeds=1`, go to `rollwise compare`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from problem_sets import APART, BIMODAL, PROBLEM_SETS, settings_of

HERE = Path(__file__).parent
FOLDER = HERE / "study"
ONLY = {problems: ["GRPO n=4", "belief"] for problems in ("2 to 10 terms", BIMODAL, APART)}
"""What is compared on the other sets, where the whole table would take hours more."""

LONG = "7 to 10 terms"
"""The set of the long runs."""

QUICK = ["--tokens", "30_000", "--seeds", "1", "--choose", "{}"]


def command(
    methods: Path, problems: str, folder: Path, only: list[str], workers: int | None, quick: bool
) -> list[str]:
    """Return the command that compares methods on one problem set."""
    base = settings_of(problems, folder.parent / "problems")
    given = ["--base", json.dumps(base)]
    given += ["--only", ",".join(only)] if only else []
    given += QUICK if quick else []
    given += ["--workers", str(workers)] if workers else []
    compare = [sys.executable, "-m", "rollwise", "compare", str(methods)]
    return [*compare, "--output", str(folder), *given]


def main() -> None:
    """Compare the methods on each problem set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", help=f"some of: {', '.join(PROBLEM_SETS)}")
    parser.add_argument("--quick", action="store_true", help="30,000 tokens, one seed, in /tmp")
    parser.add_argument("--long", action="store_true", help="2 M tokens, by study/long.toml")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--only", default="", help="some of the methods, separated by commas")
    given, further = parser.parse_known_args()
    if strange := [name for name in given.sets if name not in PROBLEM_SETS]:
        parser.error(f"unknown problem sets: {', '.join(strange)}")
    os.chdir(HERE.parent)
    with tempfile.TemporaryDirectory() as temporary:
        for problems in given.sets or ([LONG] if given.long else PROBLEM_SETS):
            print(f"\n# {problems}\n")
            parent = Path(temporary) if given.quick else FOLDER.relative_to(HERE.parent)
            folder = parent / (problems.replace(" ", "-") + ("-long" if given.long else ""))
            by_default = [] if given.long else ONLY.get(problems, [])
            only = [name for name in given.only.split(",") if name] or by_default
            methods = FOLDER / ("long.toml" if given.long else "methods.toml")
            arguments = command(methods, problems, folder, only, given.workers, given.quick)
            subprocess.run([*arguments, *further], check=True)


if __name__ == "__main__":
    main()
