"""The whole method on one page: adaptive sampling with a fake engine.

    python examples/loop.py

Replace `generate`, `grade` and `learn` with yours; everything else stays.
"""

import numpy as np

import rollwise as rw

PASS_RATES = {"easy": 0.95, "even": 0.5, "hard": 0.1, "hopeless": 0.0}
"""What the fake engine gets right: prompt -> probability of a correct response."""


def generate(draw: rw.Draw) -> str:
    """Draw a response; a real engine samples from the model with the draw's seed."""
    lucky = np.random.default_rng(draw.seed).random() < PASS_RATES[str(draw.key)]
    return "right" if lucky else "wrong"


def grade(response: str) -> float:
    """Give a response its reward."""
    return float(response == "right")


def learn(key: str, responses: list[str], advantages: np.ndarray) -> None:
    """Update the model; here, only show what it would learn from."""
    shown = ", ".join(f"{r} {a:+.2f}" for r, a in zip(responses, advantages, strict=True))
    print(f"  {key:<9} {shown}")


def main(steps: int = 2, seed: int = 0) -> None:
    """Ask, draw, grade, choose, learn, tell."""
    sampler = rw.Uniform(PASS_RATES, batch_size=4, seed=seed)
    for step in range(1, steps + 1):
        keys = sampler.ask()
        session = rw.RolloutSession(
            keys,
            exit_rule=rw.Balanced(positives=2, negatives=2),
            schedule=rw.Rounds(size=8, rounds=4),
            seed=seed,
            step=step,
        )
        while draws := session.next_draws():
            for draw in draws:
                response = generate(draw)
                session.record(draw, reward=grade(response), response=response)

        pools = [session.pools[key] for key in keys]
        print(f"step {step}: {sum(map(len, pools))} responses drawn; trained on")
        for pool in pools:
            if pool.uniform:
                print(f"  {pool.key:<9} nothing: {len(pool)} responses, all of one reward")
                continue
            group = rw.select_group(pool, size=4, strategy="balanced")
            advantages = rw.advantages(pool, group, objective="reference")
            learn(str(pool.key), [pool.responses[i] for i in group.indices], advantages)
        sampler.tell(keys, [pool.positives for pool in pools], [len(pool) for pool in pools])


if __name__ == "__main__":
    main()
