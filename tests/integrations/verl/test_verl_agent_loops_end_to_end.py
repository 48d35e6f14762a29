"""Released verl trains on the CPU by agent loops: its own with a tool, and one of a user's."""

import json
import os
from collections import defaultdict
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("verl")

from test_verl_asynchronous_end_to_end import COLOCATED
from test_verl_end_to_end import config_of, expected_advantages, metrics_of, recorded_pools, run
from transformers import AutoTokenizer

from rollwise.environments.calculator import CALL
from rollwise.integrations.verl.data import write_data as write_problems
from rollwise.models.loading import model_path

pytestmark = [pytest.mark.verl, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[3] / "examples/verl"

LOOPS = ("tool_agent", "compacting")

ROLLOUT = "verl.actor_rollout_ref.rollout"
VERL = f"""
{COLOCATED}
{ROLLOUT}.agent.agent_loop_config_path = "{EXAMPLES}/compacting.yaml"
{ROLLOUT}.multi_turn.format = "sums"
{ROLLOUT}.multi_turn.function_tool_path = "{EXAMPLES}/calculator.py"
{ROLLOUT}.multi_turn.max_assistant_turns = 4
"""

SETTINGS = {
    "model.path": "tool-sums",
    "steps": 3,
    "data.min_terms": 3,
    "prompts.batch_size": 6,
    "schedule.type": "streamed",
    "schedule.max_samples": 8,
}

TOKENS = AutoTokenizer.from_pretrained(model_path("tool-sums"))


def rows_of(folder):
    """step -> (prompt, draw) -> its rows that verl's learner was given, padding left out."""
    steps = defaultdict(lambda: defaultdict(list))
    for line in (folder / "learnt.jsonl").read_text().splitlines():
        row = json.loads(line)
        if not row["name"].startswith("pad"):
            draw = int(row["name"].rsplit("_", 2)[1])
            steps[row["step"]][row["key"], draw].append(row)
    return steps


def turns_of(row):
    """Who said what in a row: [(whether the model, its text), ...]."""
    said = zip(row["mask"], row["tokens"], strict=True)
    parts = [(own, [token for _, token in part]) for own, part in groupby(said, lambda s: s[0])]
    return [(bool(own), TOKENS.decode(part, skip_special_tokens=True)) for own, part in parts]


def check(folder, settings):
    """A draw's rows have its advantage, its price and its text, and every token is accounted for.

    Returns:
        For each draw that was trained on its prompt, and its turns, row by row.
    """
    config, learnt, draws = config_of(settings), rows_of(folder), []
    lines = {line["step"]: line for line in metrics_of(folder)}
    for step, pools in recorded_pools(folder).items():
        trained = 0
        for key, values in expected_advantages(config, pools).items():
            rows = {row["index"]: row for row in pools[key]}
            for draw, value in values.items():
                recorded, found = rows[draw], learnt[step][key, draw]
                assert [row["advantage"] for row in found] == pytest.approx([value] * len(found))
                assert [row["reward"] for row in found] == [recorded["reward"]] * len(found)
                said = [turns_of(row) for row in found]
                everything = [text for turns in said for _, text in turns]
                assert "\n".join(everything) == recorded["response"]
                assert sum(own for turns in said for own, _ in turns) == recorded["turns"]
                assert sum(sum(row["mask"]) for row in found) == recorded["tokens"]
                trained += recorded["tokens"]
                draws.append((key, said))
        line, pooled = lines[step], [row for rows in pools.values() for row in rows]
        ledger = line["ledger"]
        assert ledger["tokens"]["trained"] == trained
        assert sum(ledger["tokens"].values()) == line["tokens"]
        assert line["draws"] == len(pooled) + line["surplus_draws"] + line.get("stale_draws", 0)
        assert sum(line["ends"].values()) == len(pooled)
        assert line["failed_draws"] == line["failed_prompts"] == 0
    return draws


def write_data(folder):
    """Problems in verl's form, which say by which agent loop they are played."""
    files = write_problems(config_of(SETTINGS), folder)
    for file in files:
        table = pq.read_table(file)
        loops = [LOOPS[place % len(LOOPS)] for place in range(len(table))]
        pq.write_table(table.append_column("agent_name", pa.array(loops)), file)
    return files


def test_draws_of_several_turns_and_of_several_rows(tmp_path, monkeypatch):
    """verl's own agent loop with a tool, and one of a user's, under an asynchronous trainer.

    Draws are streamed, so that some are cancelled in the middle of their conversation.
    """
    path = [str(EXAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    train, heldout = write_data(tmp_path)
    folder = tmp_path / "loops"
    files = f'verl.data = {{ train_files = "{train}", val_files = "{heldout}" }}'
    run(folder, SETTINGS, verl=VERL + files)
    rows = pq.read_table(train).to_pylist()
    loop_of = {row["extra_info"]["key"]: row["agent_name"] for row in rows}
    draws = check(folder, SETTINGS)
    calls = [call for key, [turns] in of_loop(draws, loop_of, "tool_agent") for call in told(turns)]
    assert calls
    for asked, answer in calls:
        found = CALL.fullmatch((asked.split() or [""])[-1])
        assert answer.strip() == (str(int(found[1]) + int(found[2])) if found else "?")
    compacted = [said for _, said in of_loop(draws, loop_of, "compacting")]
    assert max(map(len, compacted)) > 1
    assert all(own for said in compacted for turns in said for own, _ in turns)
    lines = metrics_of(folder)[1:]
    assert max(line["turns"] for line in lines) > 1
    assert sum(line["surplus_draws"] for line in lines) > 0


def of_loop(draws, loop_of, name):
    return [(key, said) for key, said in draws if loop_of[key] == name]


def told(turns):
    """Each call of the tool, and what it answered."""
    assert [own for own, _ in turns] == [place % 2 == 0 for place in range(len(turns))]
    texts = [text for _, text in turns]
    return zip(texts[::2], texts[1::2], strict=False)
