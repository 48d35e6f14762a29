"""Reports of prompts as verl's workers make them."""

from rollwise.integrations.verl.reports import PromptReport


def make_report(key, rewards=(1.0, 0.0, 0.0), dropped=False, **changed):
    """A prompt whose responses have 3, 1, 3, 1, … tokens; the first two are its members."""
    rewards, mean = list(rewards), sum(rewards) / len(rewards)
    figures = [[3, 1.5, False, 1, 3, 0.6, "done"], [1, 0.5, True, 1, 1, 0.2, "truncated"]]
    fields = {
        "key": key,
        "rewards": rewards,
        "indices": list(range(len(rewards))),
        "figures": [figures[place % 2] for place in range(len(rewards))],
        "weights": [3] * len(rewards),
        "exit_reason": "satisfied",
        "members": [0, 1],
        "advantages": [rewards[0] - mean, rewards[1] - mean],
        "dropped": dropped,
        "tokens": 10,
        "surplus": 1,
        "failures": 0,
        "lost": 0,
        "records": [],
    }
    return PromptReport(**{**fields, **changed})
