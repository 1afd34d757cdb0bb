"""Contract suites, one per protocol, run by every implementation and by the plain references they are compared with."""

import pytest

pytest.register_assert_rewrite(
    *(
        f"tests.contracts.{name}"
        for name in ("analyzer", "connector", "filter_form", "fusion_rule", "reference", "scenario", "world")
    )
)
