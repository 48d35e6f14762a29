"""Running sums, such as `7+5-9+3?`, as an environment of verifiers: a taskset and its reward."""

from collections.abc import Iterator

import verifiers.v1 as vf

from rollwise.tasks import make_running_sums


class SumData(vf.TaskData):
    """A row: beside its prompt, the answer."""

    answer: str


class SumTask(vf.Task[SumData]):
    """What a response to a row is worth."""

    @vf.reward(weight=1.0)
    async def is_correct(self, trace: vf.Trace) -> float:
        """Give 1.0 to `7 12 3 6=6` where the answer is `6`."""
        return float(trace.last_reply.rpartition("=")[2].strip() == self.data.answer)


class SumsConfig(vf.TasksetConfig):
    """What the environment can be opened with."""

    count: int = 512


class Sums(vf.Taskset[SumTask, SumsConfig]):
    """The rows."""

    def load(self) -> Iterator[SumTask]:
        """Make them, the same each time."""
        for problem in make_running_sums(self.config.count):
            data = SumData(prompt=problem.messages[0]["content"], answer=problem.answer)
            yield SumTask(data, self.config.task)


__all__ = ["Sums"]
