"""Rows of problems."""

NOTHING_DROPPED = dict.fromkeys(
    ("duplicates", "conflicting_answers", "missing_answers", "empty_problems"), 0
)


def plain(problem="1+1?", answer="2", **more):
    return {"problem": problem, "answer": answer, **more}


def verl(content="1+1?", ground_truth="2", **more):
    prompt = [{"role": "user", "content": content}]
    reward_model = {"ground_truth": ground_truth, "style": "rule"}
    return {"data_source": "sums", "prompt": prompt, "reward_model": reward_model, **more}


def contents(problem):
    return [message["content"] for message in problem.messages]
