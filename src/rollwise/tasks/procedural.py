"""Problems that are made, not read: those of the built-in task, and of reasoning-gym."""

from rollwise.config.data import ReadingSettings
from rollwise.config.drawing import BenchmarkSettings
from rollwise.environments import procedural
from rollwise.errors import ConfigError
from rollwise.tasks.problem import Problem, problem_key, with_system_prompt
from rollwise.tasks.running_sums import make_problems

TRIES = 20
"""How many entries of a task are looked at for each problem, before there are too few."""


def make_from_source(
    source: str,
    data: ReadingSettings | BenchmarkSettings,
    count: int,
    seed: int,
    excluded: frozenset[str] = frozenset(),
) -> list[Problem]:
    """Make `count` problems of a source as the section `data` says, none twice.

    None is in `excluded`, by its key or by a hash of what is shown. Problems of reasoning-gym
    are keyed by their question alone, and have the task's own settings as columns.

    Raises:
        ConfigError: There are not that many, or a task of reasoning-gym is not named rightly.
        DataError: A task's own verifier refuses its answers.
    """
    if source.startswith(procedural.PREFIX):
        return _of_reasoning_gym(source, data, count, seed, excluded)
    try:
        return make_problems(count, data.min_terms, data.max_terms, seed, excluded)
    except ValueError as error:
        raise ConfigError(f"`data`: {error}") from None


def _of_reasoning_gym(
    source: str,
    data: ReadingSettings | BenchmarkSettings,
    count: int,
    seed: int,
    excluded: frozenset[str],
) -> list[Problem]:
    specs = procedural.find_tasks(source)
    said = data.system_prompt or procedural.system_prompt(data.reasoning_gym_prompt)
    below = f"\n\n{data.instruction}" if data.instruction else ""
    tagged = "<answer>" in said + below
    total, before, due = sum(spec.weight for spec in specs), 0, 0.0
    seen, problems = set(excluded), list[Problem]()
    for spec in specs:
        due += count * spec.weight / total
        wanted, before = round(due) - before, round(due)
        made = 0
        entries = spec.entries(seed, TRIES * wanted + 100, tagged) if wanted else iter(())
        for question, row in entries:
            asked = ({"role": "user", "content": question + below},)
            messages = with_system_prompt(asked, said)
            key = problem_key(({"role": "user", "content": question},))
            if not seen.isdisjoint((key, problem_key(messages))):
                continue
            seen.add(key)
            levels = {f"{spec.name}.{name}": value for name, value in spec.config.items()}
            problems.append(Problem(key, messages, row, spec.name, columns=levels))
            made += 1
            if made == wanted:
                break
        if made < wanted:
            apart = " besides those held out" if excluded else ""
            raise ConfigError(
                f"{source}: {spec.name} makes only {made} different problems{apart}, of {wanted}: "
                "widen its settings, or lower its weight, `data.problems` or "
                "`evaluation.problems`"
            )
    return problems
