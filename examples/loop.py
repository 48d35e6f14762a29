"""The whole method on one page: adaptive sampling with a fake engine.

    python examples/loop.py

Replace `generate`, `grade` and `learn` with yours; the rest is what every trainer here runs.
"""

import numpy as np

import rollwise as rw
from rollwise.step import Response, RolloutCost, StepRecipe, TrainedGroup, take_step

PASS_RATES = {"easy": 0.95, "even": 0.5, "hard": 0.1, "hopeless": 0.0}
"""What the fake engine gets right: prompt -> probability of a correct response."""


def generate(draw: rw.Draw) -> Response:
    """Draw a response; a real engine samples tokens from the model with the draw's seed."""
    lucky = np.random.default_rng(draw.seed).random() < PASS_RATES[str(draw.key)]
    return Response(tokens=[0], text="right" if lucky else "wrong")


def grade(response: Response) -> float:
    """Give a response its reward."""
    return float(response.text == "right")


def learn(group: TrainedGroup) -> None:
    """Update the model; here, only show what it would learn from."""
    if group.dropped:
        print(f"  {group.pool.key:<9} nothing: {len(group.pool)} responses, all of one reward")
        return
    pairs = zip(group.responses, group.advantages, strict=True)
    shown = ", ".join(f"{response.text} {advantage:+.2f}" for response, advantage in pairs)
    print(f"  {group.pool.key:<9} {shown}")


def roll_out(session: rw.RolloutSession) -> RolloutCost:
    """Draw and grade until every prompt has enough signal, or has used its budget."""
    cost = RolloutCost()
    while draws := session.next_draws():
        for draw in draws:
            response = generate(draw)
            cost.tokens += len(response.tokens)
            session.record(draw, reward=grade(response), response=response)
    return cost


def main(steps: int = 2, seed: int = 0) -> None:
    """Ask for prompts, draw, choose groups, tell the sampler, learn."""
    sampler = rw.Uniform(PASS_RATES, batch_size=4, seed=seed)
    recipe = StepRecipe(
        exit_rule=rw.Balanced(positives=2, negatives=2),
        schedule=rw.Rounds(size=8, rounds=4),
        group_size=4,
        objective="reference",
        seed=seed,
    )
    for number in range(1, steps + 1):
        step = take_step(recipe, sampler, roll_out, number)
        print(f"step {number}: {step.metrics['draws']} responses drawn; trained on")
        for group in step.groups:
            learn(group)


if __name__ == "__main__":
    main()
