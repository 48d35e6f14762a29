"""Problems written are problems read."""

from rollwise.tasks import Problem, ProblemSet, read_problems, write_problems
from rollwise.tasks.problem import problem_key


def test_what_is_written_is_read_back_as_it_was(tmp_path):
    talk = ({"role": "system", "content": "Ünïcode"}, {"role": "user", "content": "1\n2?\u2028"})
    problems = [
        Problem("own key", talk, " 3 ", "here", 5, "sums", "because"),
        Problem(problem_key(talk), talk, "3"),
    ]
    path = tmp_path / "problems.parquet"
    write_problems(path, problems, "math", {"pass_rate": [0.5, None]}, {"note": "x"})
    assert read_problems(path).problems == problems


def test_several_sources_are_joined_and_counted():
    one = ProblemSet.of([Problem.ask("a", "1"), Problem.ask("a", "2"), Problem.ask("b", "")])
    two = ProblemSet.of([Problem.ask("c", "3"), Problem.ask("a", "1")])
    joined = ProblemSet.join([one, two])
    assert [p.messages[0]["content"] for p in joined.problems] == ["a", "c"]
    assert joined.counts == {
        "read": 5,
        "duplicates": 2,
        "conflicting_answers": 1,
        "missing_answers": 1,
        "empty_problems": 0,
        "kept": 2,
    }
