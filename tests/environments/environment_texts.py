"""A small environment."""

TASKSET = """
    import verifiers.v1 as vf

    class Data(vf.TaskData):
        answer: str

    class Task(vf.Task[Data]):
        @vf.reward(weight=2.0)
        async def is_right(self, trace: vf.Trace) -> float:
            return float(trace.last_reply == self.data.answer)

        @vf.reward(weight=0.5)
        async def asked(self, task, trace) -> float:
            roles = [message.role for message in trace.messages]
            return float(roles == ["system", "user", "assistant"] and task.prompt == "2+2?")

    class Config(vf.TasksetConfig):
        count: int = 3

    class Rows(vf.Taskset[Task, Config]):
        def load(self):
            for i in range(self.config.count):
                data = Data(prompt=f"{i}+2?", answer=str(i + 2), system_prompt="Add.")
                yield Task(data, self.config.task)

    __all__ = ["Rows"]
"""
