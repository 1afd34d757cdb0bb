"""The engine lives the scenario as the model does, scored exactly and over HNSW."""

from __future__ import annotations

import pytest

from tests.contracts.scenario import live
from tests.contracts.world import World


@pytest.mark.parametrize(
    "options", [{}, {"chroma": "always", "exact_limit": 0}, {"chroma": "auto"}], ids=["exact", "hnsw", "auto"]
)
def test_every_answer_is_the_model_s_and_that_of_a_store_of_one_s_own(options):
    world = World(**options)
    try:
        live(world)
        assert world.searches > 400
    finally:
        world.close()
