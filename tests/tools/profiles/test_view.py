"""Pictures of a profile."""

import re

from npu_sim.tools.profiles.view import time_bars


def test_a_launch_without_a_bound_has_none_in_its_picture():
    picture = time_bars([("Sort", 10.0, None), ("Cast", 5.0, 2.0)])
    assert picture.count("<rect") == 3
    assert re.findall(r"\w+: [^<]*at least [^<]*", picture) == ["Cast: 5.00 us, at least 2.00 us"]
    assert time_bars([("Sort", 0.0, None)]).count('width="0"') == 1
