"""What is refused before minutes are spent."""

import math

import pytest

from overspill_demo.arrangement import ArrangementError
from overspill_demo.performance import Options, perform


@pytest.mark.parametrize("deadline", [0.0, -1.0, math.nan, math.inf])
async def test_a_deadline_that_never_comes_or_has_passed_is_refused(deadline: float) -> None:
    with pytest.raises(ArrangementError, match=r"--deadline .*: give seconds, more than 0"):
        await perform(Options(deadline=deadline))
