"""Every name of TRL's that the integration uses is where it says; one that moved is named."""

import pytest

pytest.importorskip("trl")

from trl import GRPOTrainer

from rollwise.integrations.trl.upstream import UPSTREAM, UPSTREAM_ASYNC
from rollwise.releases import moved

pytestmark = pytest.mark.trl


def test_every_name_is_where_the_table_says(monkeypatch):
    assert moved({**UPSTREAM, **UPSTREAM_ASYNC}) == []
    monkeypatch.delattr(GRPOTrainer, "_generate_single_turn")
    monkeypatch.setattr(GRPOTrainer, "_calculate_rewards", lambda self, inputs: inputs)
    first, second = moved(UPSTREAM)
    assert "GRPOTrainer._calculate_rewards(" in first
    assert "GRPOTrainer._generate_single_turn(" in second
