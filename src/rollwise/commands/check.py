"""What works on this machine: installed packages, and the containment of a model's programs."""

import os
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from rollwise.grading.sandbox import bubblewrap
from rollwise.grading.system_calls import filter_program
from rollwise.releases import admitted

State = Literal["works", "missing", "broken"]


@dataclass(frozen=True)
class Check:
    """One thing that works here, or does not, and what to type, or to do.

    It is `missing` if it is not installed, or not possible here, and `broken` if it is installed,
    but not as it should be.
    """

    part: str
    name: str
    state: State
    detail: str
    fix: str = ""


TINKER_KEY = "TINKER_API_KEY"

EXTRAS = (
    ("train", "built-in model and learner", "train", ("torch", "transformers")),
    ("train", "adapters (LoRA)", "lora", ("peft",)),
    ("train", "data sets of the hub", "hub", ("datasets",)),
    ("train", "TensorBoard", "trackers", ("tensorboard",)),
    ("train", "Weights & Biases", "trackers", ("wandb",)),
    ("engines", "transformers", "train", ("torch", "transformers")),
    ("engines", "vllm", "vllm", ("vllm",)),
    ("engines", "server", "server", ("openai",)),
    ("graders", "math", "train", ("math-verify",)),
    ("graders", "environment", "verifiers", ("verifiers",)),
    ("trainers", "TRL", "trl", ("trl",)),
    ("trainers", "verl", "verl", ("verl",)),
    ("trainers", "Tinker", "tinker", ("tinker",)),
)
"""What extras bring: part, name, the extra, and the packages that say whether it is here."""

OWN_ENVIRONMENT = {
    "vllm": "; it needs an environment of its own (docs/engines.md)",
    "verl": "; it needs an environment of its own (docs/verl.md)",
}


def checks() -> list[Check]:
    """Look at everything."""
    sandbox, filters = _sandbox(), filter_program() is not None
    calls = "filtered" if filters else f"no filter for {platform.machine()}"
    state: State = "works" if filters else "missing"
    return [
        *(_extra(*entry) for entry in EXTRAS if entry[0] != "trainers"),
        Check("graders", "exact", "works", "the text after the last ="),
        Check("graders", "function", "works", "your own function, in worker processes"),
        Check("graders", "code", sandbox.state, "runs programs in the sandbox", sandbox.fix),
        *(_extra(*entry) for entry in EXTRAS if entry[0] == "trainers"),
        sandbox,
        Check("containment", "system calls (seccomp)", state, calls),
    ]


def _extra(part: str, name: str, extra: str, packages: tuple[str, ...]) -> Check:
    install = f"pip install 'rollwise[{extra}]'"
    here, wrong = [], []
    for package in packages:
        try:
            found = version(package)
        except PackageNotFoundError:
            fix = install + OWN_ENVIRONMENT.get(extra, "")
            return Check(part, name, "missing", f"no {package}", fix)
        here.append(f"{package} {found}")
        wanted = admitted(package, extra)
        if not wanted.contains(found, prereleases=True):
            wrong.append(f"{package} {found} is not {wanted}")
    if wrong:
        return Check(part, name, "broken", "; ".join(wrong), install)
    if extra == "tinker" and not os.environ.get(TINKER_KEY):
        detail = f"{here[0]}, but no key in {TINKER_KEY}"
        return Check(part, name, "missing", detail, f"export {TINKER_KEY}=...")
    return Check(part, name, "works", ", ".join(here))


def _sandbox() -> Check:
    """Run a program in the sandbox."""
    name = ("containment", "sandbox")
    try:
        with bubblewrap("print(6 * 7)") as process:
            out, said = process.communicate(timeout=60)
    except FileNotFoundError as error:
        return Check(*name, "missing", str(error), "install bubblewrap (Linux)")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(*name, "broken", str(error), "see docs/grading.md")
    if out.strip() == b"42":
        return Check(*name, "works", "bubblewrap runs a program")
    why = (said.decode(errors="replace").strip().splitlines() or ["no reply"])[-1]
    return Check(*name, "broken", why, "allow user namespaces (docs/grading.md)")
