"""TRL's tools and environments in adaptive sampling: episodes as TRL plays them."""

import numpy as np
import pytest

pytestmark = pytest.mark.trl
pytest.importorskip("trl")

from rollwise.integrations.trl.tools import cannot_parse  # noqa: E402

parses = pytest.mark.skipif(bool(cannot_parse()), reason=cannot_parse() or "")


@pytest.fixture
def make(tmp_path):
    """Makes a trainer whose model calls a tool: `make(sampling, max_steps=1)`."""
    from tool_runs import build_with_tools

    def make(sampling=None, **changed):
        return build_with_tools(tmp_path, sampling, **changed)

    return make


def rendered(tokens):
    from tool_runs import WORDS

    return "".join(WORDS[token] for token in tokens)


class Seen:
    """A reward function that keeps what it is called with."""

    __name__ = "seen"

    def __init__(self):
        self.calls = []

    def __call__(self, **given):
        self.calls.append(given)
        return [
            float(any(m["role"] == "tool" for m in messages)) for messages in given["completions"]
        ]


@parses
@pytest.mark.parametrize("engine", ["rollwise", "trl"])
def test_tools_are_called_and_what_they_say_is_not_learned(make, watch, engine):
    from rollwise import Balanced, Rounds
    from rollwise.integrations.trl import AdaptiveSampling

    reward = Seen()
    sampling = AdaptiveSampling(
        exit_rule=Balanced(2, 2), schedule=Rounds(size=4, rounds=3), engine=engine
    )
    trainer = make(sampling, given={"tools": [double_of()], "reward_funcs": reward})
    watched = watch(trainer)
    trainer.train()
    for batch, rows in zip(watched.ours, watched.rows, strict=True):
        for place, row in enumerate(rows):
            length = len(row.completion.tokens)
            mask = batch["tool_mask"][place][:length].bool().numpy()
            assert (mask == row.completion.own).all()
            assert batch["completion_ids"][place][:length].tolist() == row.completion.tokens
            assert batch["advantages"][place] == pytest.approx(row.advantage)
        learned = batch["completion_mask"] * batch["tool_mask"]
        assert batch["num_items_in_batch"] == max(1, learned.sum())
    told = [e for pools in watched.pools for p in pools.values() for e in p.responses]
    several = [episode for episode in told if episode.price.turns > 1]
    assert several and len(several) < len(told)
    for episode in several:
        spans = [rendered(span.tokens) for span in episode.spans]
        assert len(spans) == 2 * episode.price.turns - 1
        assert all(s.startswith("<tool>") and s.endswith("<end><assistant>") for s in spans[1::2])
        assert len(episode.tokens) <= 32
    rewards = [p.rewards for pools in watched.pools for p in pools.values()]
    assert sum(map(sum, rewards)) == len(several)
    for conversation in (c for call in reward.calls for c in call["completions"]):
        calls = [call for m in conversation for call in m.get("tool_calls", [])]
        heard = [m["content"] for m in conversation if m["role"] == "tool"]
        doubled = [str(2 * call["function"]["arguments"]["number"]) for call in calls]
        assert heard == doubled[: len(heard)]
    logged = [line for line in trainer.state.log_history if "rollwise/turns" in line]
    assert logged and all(line["rollwise/tool_calls"] > 0 for line in logged)


def double_of():
    from tool_runs import double

    return double


class Scripted:
    """Stands in for TRL's generation: what it says follows from the context alone."""

    def __init__(self, lengths=(4, 9)):
        self.low, self.high = lengths

    def __call__(self, prompt_ids, *_, **__):
        return [self.say(ids) for ids in prompt_ids], None

    def say(self, ids):
        rng = np.random.default_rng([len(ids), *ids])
        said = rng.choice([5, 7, 8, 9, 10, 16], size=rng.integers(self.low, self.high)).tolist()
        return [*said, 1]


@parses
@pytest.mark.parametrize("limits", [{}, {"max_tool_calling_iterations": 1}])
def test_an_episode_is_what_trl_makes_of_the_same_replies(make, limits):
    """Both take replies by one rule; tokens, masks and messages are the same."""
    from trl import GRPOTrainer

    from rollwise import FixedCount, Rounds
    from rollwise.integrations.trl import AdaptiveSampling
    from rollwise.sampling import Draw

    theirs = make(trainer=GRPOTrainer, **limits)
    theirs._generate_single_turn = Scripted()
    questions = [theirs.train_dataset[key]["prompt"] for key in range(12)]
    inputs = [{"prompt": question} for question in questions]
    found = generated(theirs, inputs)

    once = AdaptiveSampling(
        exit_rule=FixedCount(4), schedule=Rounds(4, rounds=1), engine="trl", unresolved="keep"
    )
    ours = make(once, **limits)
    ours._generate_single_turn = Scripted()
    engine = ours._tools
    draws = [Draw(key, 0, key) for key in range(12)]
    engine.submit(draws, ours._prompts)
    episodes = {}
    while results := engine.wait():
        episodes |= {episode.draw: episode for episode in results}
    assert max(episode.price.turns for episode in episodes.values()) > 1
    for draw, tokens, mask, messages in zip(draws, *found, strict=True):
        episode = episodes[draw]
        assert rendered(episode.tokens) == rendered(tokens)
        assert episode.own.astype(int).tolist() == mask
        assert engine.said([draw]) == [messages]
    if limits:
        assert max(episode.price.turns for episode in episodes.values()) == 2


def generated(trainer, inputs):
    """Tokens, masks and messages of TRL's own loop."""
    trainer._sync_tool_dicts = [{"double": double_of()} for _ in inputs]
    trainer._async_tool_dicts = [{} for _ in inputs]
    found = trainer._generate([row["prompt"] for row in inputs])
    return found[1], found[2], found[3]


class Counter:
    """An environment: it shows a number, doubles what it is given, and counts how often."""

    made = 0

    def __init__(self):
        type(self).made += 1

    def reset(self, start=None, **others):
        self.start, self.count = start, 0
        return f"{start}"

    def double(self, number: int) -> str:
        """Double a number.

        Args:
            number: What is doubled.
        """
        self.count += 1
        return str(2 * number)


def counted(environments, completions, start, prompts, **others):
    """1.0 where the environment was asked; checks that each belongs to its row."""
    for environment, messages, number, prompt in zip(
        environments, completions, start, prompts, strict=True
    ):
        assert environment.start == number
        assert prompt[-1]["content"] == f"1{number}", "with what the environment shows"
        assert sum(m["role"] == "tool" for m in messages) <= environment.count
    return [float(environment.count > 0) for environment in environments]


ROWS = [{"prompt": [{"role": "user", "content": "1"}], "start": n} for n in range(12)]


@parses
def test_each_draw_has_an_environment_of_its_own(make, watch):
    """Single responses against a belief, chosen by their worth."""
    import rollwise as rw
    from rollwise.integrations.trl import AdaptiveSampling

    sampling = AdaptiveSampling(
        prompt_sampler=rw.Worth,
        exit_rule=rw.FixedCount(1),
        schedule=rw.Rounds(1, rounds=1),
        group_size=1,
        strategy="all",
        objective="linear",
        baseline="belief",
    )
    given = {"environment_factory": Counter, "reward_funcs": counted}
    Counter.made = 0
    trainer = make(
        sampling, rows=ROWS, given=given, per_device_train_batch_size=8, num_generations=2
    )
    made_by_trl = Counter.made
    watched = watch(trainer)
    trainer.train()
    assert Counter.made - made_by_trl <= 8 + 1, "they are reset and used again"
    pools = [pool for pools in watched.pools for pool in pools.values()]
    assert [len(pool) for pool in pools] == [1] * 16
    asked = [pool.responses[0].price.turns > 1 for pool in pools]
    assert 0 < sum(asked) < len(asked)
    assert all(pool.rewards[0] >= turned for pool, turned in zip(pools, asked, strict=True))
    for batch in watched.ours:
        assert (batch["tool_mask"] * batch["completion_mask"] == 0).any()


@parses
def test_an_environment_is_never_in_two_episodes(make):
    """Not where a process without results grades its last one again, beside another process."""
    from rollwise.sampling import Draw

    engine = make(rows=ROWS, given={"environment_factory": Counter, "reward_funcs": counted})._tools
    first, last, *others = [Draw(key, 0, key) for key in range(6)]
    of = {draw: engine._begin(draw).environment for draw in (first, last)}
    engine.release([first, last])
    of[others[0]] = engine._begin(others[0]).environment
    assert of[others[0]] is of[first]
    engine.release([last, last])
    of[others[1]] = engine._begin(others[1]).environment
    assert of[others[1]] is not of[last], "it may be graded once more"
    engine.release([others[0], others[1]])
    engine.release([others[1]])
    for draw in others[2:]:
        of[draw] = engine._begin(draw).environment
    assert {id(of[draw]) for draw in others[2:]} == {id(of[last]), id(of[first])}


@parses
def test_a_tool_that_waits_or_raises_is_answered_like_any_other(make):
    import asyncio

    import rollwise as rw
    from rollwise.integrations.trl import AdaptiveSampling

    async def double(number: int) -> int:
        """Double a number.

        Args:
            number: What is doubled.
        """
        await asyncio.sleep(0)
        if number % 2 == 0:
            raise ValueError("even")
        return 2 * number

    reward = Seen()
    once = AdaptiveSampling(
        exit_rule=rw.FixedCount(16), schedule=rw.Rounds(16, rounds=1), unresolved="keep"
    )
    given = {"tools": [double], "reward_funcs": reward}
    trainer = make(once, given=given, max_steps=1, max_completion_length=64)
    trainer.train()
    messages = [m for call in reward.calls for c in call["completions"] for m in c]
    heard = {m["content"] for m in messages if m["role"] == "tool"}
    assert "{'error': 'even'}" in heard and len(heard) > 1
    [logged] = [line for line in trainer.state.log_history if "rollwise/turns" in line]
    assert 0 < logged["rollwise/tool_failures"] < logged["rollwise/tool_calls"]


@parses
def test_an_environment_that_shows_another_thing_each_time_is_refused(make):
    class Fickle(Counter):
        def reset(self, **others):
            type(self).made += 1
            return str(self.made)

    trainer = make(rows=ROWS, given={"environment_factory": Fickle, "reward_funcs": counted})
    with pytest.raises(ValueError, match="shows another thing at each `reset`"):
        trainer.train()


@parses
def test_what_tools_need_is_said_before_anything_is_drawn(make):
    with pytest.raises(ValueError, match="need prompts that are conversations"):
        make(rows=[{"prompt": str(n)} for n in range(12)])


@pytest.mark.skipif(not cannot_parse(), reason="this release can parse calls")
def test_a_release_that_reads_calls_as_text_is_refused(make):
    with pytest.raises(ValueError, match="every call of a tool would be read as text"):
        make()
