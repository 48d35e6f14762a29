"""Sums with a calculator, as an environment of verifiers of several turns (0.3, `MultiTurnEnv`)."""

import re

import verifiers as vf
from datasets import Dataset

from rollwise.tasks import make_running_sums


class Calculator(vf.MultiTurnEnv):
    """Calculates the last word of each turn, such as `12-9`, until a turn holds `=`."""

    @vf.stop
    async def is_answered(self, state: vf.State) -> bool:
        """End with an answer."""
        steps = state["trajectory"]
        return bool(steps) and "=" in steps[-1]["completion"][-1]["content"]

    async def env_response(
        self, messages: vf.Messages, state: vf.State, **_: object
    ) -> vf.Messages:
        """Answer a turn."""
        said = messages[-1]["content"].split() or [""]
        call = re.fullmatch(r"(-?\d+)([+-]\d+)", said[-1])
        result = f"{int(call[1]) + int(call[2])} " if call else "? "
        return [{"role": "user", "content": result}]


def is_correct(completion: vf.Messages, answer: str) -> float:
    """Give 1.0 to an answer such as `7 12 3 6 =6`."""
    return float(completion[-1]["content"].rpartition("=")[2].strip() == answer)


def load_environment(count: int = 512) -> vf.Environment:
    """Make the environment; verifiers calls this."""
    problems = make_running_sums(count)
    rows = [{"question": p.messages[0]["content"], "answer": p.answer} for p in problems]
    return Calculator(
        dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[is_correct]), max_turns=8
    )
