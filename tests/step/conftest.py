"""What tests of a session compare with."""

import pytest
from drawing import expected_rewards


@pytest.fixture(scope="session")
def expected():
    return expected_rewards()
