"""Does a run of thousands of steps grow in memory, or slow down?

Trains with the smallest settings, in a process of its own, and reads its memory from the system
(Linux): that of the process and of those that it has started, shared pages counted once (PSS).

    python benchmarks/speed/endurance.py [--quick] [--steps N] [-- OPTION ...]
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from measuring import arguments, print_line, print_table

UNITS = ("mb", "seconds")
SETTINGS = {
    "method": "reinforce_ada",
    "prompts.batch_size": 2,
    "data.problems": 64,
    "data.max_terms": 3,
    "engine.max_new_tokens": 8,
    "engine.batch_size": 16,
    "schedule.size": 2,
    "schedule.rounds": 2,
    "exit.positives": 1,
    "exit.negatives": 1,
    "group.size": 2,
    "evaluation.every": 100,
    "evaluation.problems": 4,
    "evaluation.samples": 1,
    "checkpoint.every": 50,
}


def memory(pid: int) -> float:
    """Return the memory of a process and its descendants, in MB."""
    total = 0.0
    for each in descendants(pid):
        try:
            text = Path(f"/proc/{each}/smaps_rollup").read_text()
        except OSError:  # it has just ended
            continue
        total += sum(map(int, re.findall(r"^Pss:\s+(\d+)", text, re.MULTILINE))) / 1024
    return total


def descendants(pid: int) -> list[int]:
    """List a process and all that it has started."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        children = []
    return [pid, *(each for child in children for each in descendants(int(child)))]


def watch(steps: int, further: list[str], points: int = 20) -> list[dict[str, float]]:
    """Train so many steps; return memory and seconds a step at points of the run."""
    with tempfile.TemporaryDirectory() as folder:
        run, shown = Path(folder) / "run", Path(folder) / "shown"
        options = [part for name, value in SETTINGS.items() for part in (f"--{name}", str(value))]
        command = [sys.executable, "-m", "rollwise", "train", "--output", str(run), *options]
        with shown.open("w") as file:
            process = subprocess.Popen(
                [*command, "--steps", str(steps), *further],
                stdout=file,
                stderr=file,
                env=os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
            )
            found: list[dict[str, float]] = []
            while process.poll() is None:
                time.sleep(0.2)
                done = steps_done(run / "metrics.jsonl")
                if done >= steps * len(found) / points:
                    found.append({"step": done, "mb": memory(process.pid)})
                    print(f"{done:>7,} steps {found[-1]['mb']:>8.1f} MB", flush=True)
        if process.returncode:
            sys.exit(shown.read_text())
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    seconds = [sum(line["seconds"].values()) for line in lines[1:]]
    for before, point in zip([{"step": 0}, *found], found, strict=False):
        part = seconds[int(before["step"]) : int(point["step"])]
        point["seconds"] = sorted(part)[len(part) // 2] if part else 0.0
    return found


def steps_done(metrics: Path) -> int:
    """Count the steps that are logged."""
    return max(0, metrics.read_bytes().count(b"\n") - 1) if metrics.exists() else -1


def main() -> None:
    """Print memory and median seconds a step, and a line of JSON."""
    parser = arguments(__doc__, "200 steps", steps=5000)
    parser.add_argument("further", nargs="*", help="further options of `rollwise train`")
    given = parser.parse_args()
    found = watch(200 if given.quick else given.steps, given.further)
    rows = ((f"{p['step']:,}", f"{p['mb']:.1f}", f"{p['seconds']:.4f}") for p in found)
    print_table("Memory and time", ("steps", "MB", "median seconds a step of this part"), rows)
    print_line({f"{name}_at_{p['step']}": {"value": p[name]} for p in found for name in UNITS})


if __name__ == "__main__":
    main()
