"""What a process may use of its machine."""

import os

import pytest
import torch

from rollwise.commands.compare_runs import runs_at_a_time
from rollwise.config import make_config
from rollwise.grading import MathGrader
from rollwise.machine import usable_cores, usable_memory
from rollwise.training.learner import learner_threads

GROUPS = "sys/fs/cgroup"
V2 = {"proc/self/cgroup": "0::/slice/job\n"}


@pytest.fixture
def eight_cores(monkeypatch):
    """This process may use 8 of 64 cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {*range(8)}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.mark.parametrize(
    ("files", "cores", "memory"),
    [
        ({}, 8, None),
        (V2 | {f"{GROUPS}/slice/job/cpu.max": "max 100000\n"}, 8, None),
        (V2 | {f"{GROUPS}/slice/job/cpu.max": "350000 100000\n"}, 3, None),
        (V2 | {f"{GROUPS}/slice/cpu.max": "50000 100000\n"}, 1, None),  # of the group above
        (V2 | {f"{GROUPS}/slice/job/memory.max": "4096\n"}, 8, 4096),
        (V2 | {f"{GROUPS}/memory.max": "max\n"}, 8, None),
    ],
)
def test_affinity_and_the_limits_of_control_groups_count(
    files, cores, memory, eight_cores, tmp_path
):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert usable_cores(tmp_path) == cores
    assert usable_memory(tmp_path) == (memory or usable_memory(tmp_path / "nothing"))


def test_all_that_run_in_parallel_count_the_cores_that_they_may_use(eight_cores, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3}, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert runs_at_a_time(make_config({})) == 1  # whose model computes in one thread
    assert learner_threads("cpu") == 1
    with MathGrader(timeout=2.0) as grader:
        assert grader.workers == 1
