"""Contract suites, one per seam, run by every implementation and by the plain references they are compared with."""

import pytest

pytest.register_assert_rewrite("tests.contracts.world", "tests.contracts.reference")
