"""Released verl trains on the CPU with our plug-in; starting it is most of each run's minute.

Every kind of session, trainer and agent loop occurs in one of the runs, and `verl_runs.check`
holds for all of them.
"""

import os
from collections import Counter
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("verl")

from transformers import AutoTokenizer
from verl_runs import (
    SEPARATE,
    check,
    config_of,
    learnt_rows,
    metrics_of,
    recorded_pools,
    run,
    run_killed,
)

from rollwise.cli import main
from rollwise.integrations.verl.data import write_data as write_problems
from rollwise.models.loading import model_path

pytestmark = [pytest.mark.verl, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[3] / "examples/verl"


def test_single_responses_killed_after_the_second_step_and_resumed(tmp_path):
    """No method is named: one response to each prompt, by belief and posterior."""
    folder = tmp_path / "single"
    settings = {"learner.mini_batches": 2, "learner.old_logprobs": "engine"}
    run_killed(folder, settings)
    check(folder, settings)
    lines = metrics_of(folder)
    assert [line["trained_groups"] for line in lines[1:]] == [8, 8, 8]
    assert [line["step"] for line in lines if "heldout" in line] == [0, 3]
    log = (tmp_path / "single.log").read_text(errors="replace")
    assert f"rollwise/reward:{lines[3]['reward']}" in log
    assert main(["report", str(folder)]) == 0
    assert "Where the draws and tokens went" in (folder / "report.html").read_text()


def test_streamed_groups_of_uneven_size_on_two_workers(tmp_path):
    """World size 2; groups of all responses, as many as it took, so the ranks' shares differ."""
    folder = tmp_path / "streamed"
    settings = {
        "method": "reinforce_ada",
        "prompts.type": "cdas",
        "schedule.type": "streamed",
        "schedule.max_samples": 12,
        "exit.give_up_below": 0.1,
        "group.strategy": "all",
        "learner.mini_batches": 2,
    }
    run(folder, settings, workers=2)
    assert Counter((folder / "updates.txt").read_text().split()) == {"0": 6, "1": 6}
    learnt = check(folder, settings)
    sizes = {sum(key == name for name, _ in rows) for rows in learnt.values() for key, _ in rows}
    assert len(sizes) > 1
    assert sum(line["surplus_draws"] for line in metrics_of(folder)[1:]) > 0
    actor = folder / "checkpoints/global_step_3/actor"
    assert len(list(actor.glob("model_world_size_2_rank_*.pt"))) == 2


def test_groups_drawn_in_rounds_by_separate_engines_killed_and_resumed(tmp_path):
    folder = tmp_path / "separate"
    settings = {
        "steps": 6,
        "prompts.batch_size": 4,
        "checkpoint.every": 2,
        "method": "reinforce_ada",
        "prompts.type": "cdas",
        "schedule.size": 4,
        "schedule.rounds": 2,
        "learner.mini_batches": 2,
    }
    run_killed(folder, settings, verl=SEPARATE)
    check(folder, settings, ahead=True)
    lines = metrics_of(folder)[1:]
    assert all(line["draws_by_round"][0] == 4.0 for line in lines)
    assert max(line["steps_off_policy"] for line in lines) > 0


LOOPS = ("tool_agent", "compacting")
ROLLOUT = "verl.actor_rollout_ref.rollout"
COLOCATED = f"""
verl.trainer.v1.trainer_mode = "colocate_async"
verl.trainer.v1.sampler.max_off_policy_threshold = 3
{ROLLOUT}.agent.agent_loop_config_path = "{EXAMPLES}/compacting.yaml"
{ROLLOUT}.multi_turn.format = "sums"
{ROLLOUT}.multi_turn.function_tool_path = "{EXAMPLES}/calculator.py"
{ROLLOUT}.multi_turn.max_assistant_turns = 4
"""
TURNS = {
    "method": "reinforce_ada",
    "model.path": "tool-sums",
    "steps": 4,
    "data.min_terms": 3,
    "prompts.batch_size": 6,
    "schedule.type": "streamed",
    "schedule.max_samples": 8,
}


def test_draws_of_several_turns_and_of_several_rows_by_colocated_engines(tmp_path, monkeypatch):
    """verl's own agent loop with a tool, and one of a user's.

    Draws are streamed, so that some are cancelled in the middle of their conversation.
    """
    path = [str(EXAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    train, heldout = write_data(tmp_path)
    folder = tmp_path / "loops"
    files = f'verl.data = {{ train_files = "{train}", val_files = "{heldout}" }}'
    run(folder, TURNS, verl=COLOCATED + files)
    check(folder, TURNS, train, ahead=True)
    said = check_turns(folder)
    assert max(map(len, said)) > 1  # of the loop that returns several rows
    assert {own for turns in said for own, _ in turns[0]} == {True, False}  # a tool has answered
    lines = metrics_of(folder)[1:]
    assert max(line["turns"] for line in lines) > 1
    assert max(line["steps_off_policy"] for line in lines) > 0
    assert sum(line["surplus_draws"] for line in lines) > 0


def write_data(folder):
    """Problems in verl's form, which say by which agent loop they are played."""
    files = folder / "train.parquet", folder / "heldout.parquet"
    write_problems(config_of(TURNS), *files, begun=False)
    for file in files:
        table = pq.read_table(file)
        loops = [LOOPS[place % len(LOOPS)] for place in range(len(table))]
        pq.write_table(table.append_column("agent_name", pa.array(loops)), file)
    return files


def check_turns(folder):
    """Each draw's rows have its text, its turns and its price; returns its turns, row by row."""
    decode, draws = AutoTokenizer.from_pretrained(model_path("tool-sums")).decode, []
    pools, lines = recorded_pools(folder), {line["step"]: line for line in metrics_of(folder)}
    for step, learnt in learnt_rows(folder).items():
        recorded = {(key, r["index"]): r for key, rows in pools[step].items() for r in rows}
        trained = 0
        for name, rows in learnt.items():
            said = [turns_of(row, decode) for row in rows]
            tokens = sum(sum(row["mask"]) for row in rows)
            own = [own for turns in said for own, _ in turns]
            text = "\n".join(text for turns in said for _, text in turns)
            assert text == recorded[name]["response"]
            assert (sum(own), tokens) == (recorded[name]["turns"], recorded[name]["tokens"])
            trained += tokens if rows[0]["advantage"] else 0
            draws.append(said)
        assert lines[step]["ledger"]["tokens"]["trained"] == trained
    return draws


def turns_of(row, decode):
    """Who said what in a row: [(whether the model, its text), ...]."""
    said = zip(row["mask"], row["tokens"], strict=True)
    parts = [(own, [token for _, token in part]) for own, part in groupby(said, lambda s: s[0])]
    return [(bool(own), decode(part, skip_special_tokens=True)) for own, part in parts]
