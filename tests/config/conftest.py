"""What a command would run with."""

import pytest

from rollwise.cli import main
from rollwise.config import TrainConfig, make_config


@pytest.fixture(autouse=True)
def own_folder(monkeypatch, tmp_path):
    """Without `--output` the folder is named by the second, and another test may have it."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def settle(monkeypatch, tmp_path):
    """What `rollwise train ARGUMENTS`, with `toml` in the file it is given, would train with."""
    seen = []

    def instead_of_training(layers, folder, resume, console):
        seen.append(make_config(*layers))

    monkeypatch.setattr("rollwise.commands.train.train", instead_of_training)

    def settle(*arguments: str, toml: str | None = None) -> TrainConfig:
        if toml is not None:
            path = tmp_path / "settings.toml"
            path.write_text(toml, encoding="utf-8")
            arguments = (str(path), *arguments)
        assert main(["train", *arguments]) == 0
        return seen.pop()

    return settle
