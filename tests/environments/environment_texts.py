"""Two small environments, one of each kind."""

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

CLASSIC = """
    import verifiers as vf
    from datasets import Dataset

    def is_right(completion, answer, info):
        return float(completion[-1]["content"] == answer == str(sum(info["terms"])))

    async def is_short(completion, state, parser):
        return float(len(parser.parse_answer(completion)) < 3)

    def rows(numbers):
        return Dataset.from_list([
            {"question": f"{i}+2?", "answer": str(i + 2), "info": {"terms": [i, 2]}}
            for i in numbers
        ])

    def load_environment(count=3, **others):
        rubric = vf.Rubric(funcs=[is_right, is_short], weights=[2.0, 0.5])
        return vf.SingleTurnEnv(**{
            "dataset": rows(range(count)),
            "eval_dataset": rows([7]),
            "system_prompt": "Add.",
            "rubric": rubric,
            **others,
        })
"""
