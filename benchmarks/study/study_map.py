"""Draw where single responses gain: the gain over the best rival against groups without variance.

    python benchmarks/study/study_map.py        # writes docs/images/study_map.svg

For each problem set that is recorded: the held-out accuracy of the default of `rollwise train` at
the end, less that of the rival with the best interquartile mean, seed by seed: the interquartile
mean of these differences, and their range. The other axis is the share of groups of four responses
that have no variance before training, measured by 16 responses to each training problem, once, and
kept in study/start.json.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from scipy import special, stats
from study import DEFAULT, STUDY, curves_of, slug

from rollwise.records import flatten
from rollwise.statistics.curves import interquartile_mean

sys.path.append(str(STUDY.parent))

from figures import COLORS, IMAGES, svg
from problem_sets import BY_SIZE, PROBLEM_SETS, settings_of

START = STUDY / "start.json"
SAMPLES, GROUP = 16, 4
SHOWN = -0.08, 0.16
"""The gains that the figure shows; a collapsed run lies far outside."""


def zero_variance_share(problems: str) -> float:
    """Measure the share of groups of four that are all correct or all incorrect.

    With c of n responses correct, C(c, 4)/C(n, 4) + C(n − c, 4)/C(n, 4) is unbiased.
    """
    settings = flatten(settings_of(problems, STUDY / "problems"), ".")
    settings.pop("data.heldout", None)
    if source := settings.pop("data.train", None):
        settings["data.sources"] = source
    with tempfile.TemporaryDirectory() as folder:
        options = [f"--{name}={value}" for name, value in settings.items()]
        command = [sys.executable, "-m", "rollwise", "prepare", *options, "--output", folder]
        command += ["--samples", str(SAMPLES)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rates = pq.read_table(Path(folder) / "prepared.parquet")["pass_rate"].to_numpy()
    correct = np.round(rates * SAMPLES)
    same = special.comb(correct, GROUP) + special.comb(SAMPLES - correct, GROUP)
    return float(np.mean(same / special.comb(SAMPLES, GROUP)))


def shares_of(sets: list[str]) -> dict[str, float]:
    """Return the share of each set; measure those that are not known."""
    known: dict[str, float] = json.loads(START.read_text()) if START.exists() else {}
    for problems in sets:
        if problems not in known:
            known[problems] = round(zero_variance_share(problems), 4)
            START.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return known


def gain_on(problems: str) -> tuple[str, dict[str, float]]:
    """Return the best rival, and what the default gains over it: the middle, least and most."""
    ends = {
        method: np.array([curve.end for curve in curves])
        for method, curves in curves_of(problems).items()
    }
    best = max(ends.keys() - {DEFAULT}, key=lambda method: float(interquartile_mean(ends[method])))
    shared = min(len(ends[DEFAULT]), len(ends[best]))
    gains = ends[DEFAULT][:shared] - ends[best][:shared]
    middle = float(interquartile_mean(gains))
    return best, {"value": middle, "low": float(min(gains)), "high": float(max(gains))}


def main() -> None:
    """Print the table, draw the figure, and print one line of JSON."""
    recorded = [name for name in PROBLEM_SETS if (STUDY / slug(name) / "curves.jsonl").exists()]
    sets = [name for name in recorded if DEFAULT in curves_of(name)]
    shares, results = shares_of(sets), {}
    table = Table("set", "groups without variance", "best rival", "gain; range of seeds")
    title = "Gain of single responses by problem set"
    with svg(IMAGES / "study_map.svg", title, (7.6, 3.8)) as figure:
        axes = figure.subplots()
        axes.set_prop_cycle(color=COLORS)
        axes.axhline(0.0, color="#888", linewidth=1, linestyle="--")
        for problems in sets:
            best, gain = gain_on(problems)
            share = shares[problems]
            results[problems] = gain | {"zero_variance": share}
            value, low, high = gain.values()
            shown = f"{value:+.3f}; {low:+.3f} to {high:+.3f}"
            table.add_row(problems, f"{share:.2f}", best, shown)
            error = [[value - low], [high - value]]
            marker = "s" if problems in BY_SIZE else "o"  # there are fewer colors than sets
            axes.errorbar(share, value, error, fmt=marker, capsize=2, label=problems)
        axes.set_ylim(*SHOWN)
        figure.legend(loc="outside right upper")
        axes.set_xlabel("groups of four without variance before training")
        axes.set_ylabel("gain in held-out avg@4\nover the best rival")
    Console().print(table)
    shares, gains = zip(
        *((own["zero_variance"], own["value"]) for own in results.values()), strict=True
    )
    print(f"rank correlation of share and gain: {stats.spearmanr(shares, gains).statistic:.1f}")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
