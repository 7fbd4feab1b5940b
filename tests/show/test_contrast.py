"""Words on the shapes of pictures can be read in light, in dark and on paper: WCAG asks for 4.5 to 1."""

import re

import pytest

from npu_sim.show.reports.html import asset

LEAST = 4.5


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def themes():
    """Colours by name, of every block that sets them; short ones such as #fff in full."""
    for block in re.findall(r":root \{(.*?)\}", asset("report.css"), re.DOTALL):
        colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6});", block))
        yield {name: colour if len(colour) == 7 else "#" + "".join(2 * one for one in colour[1:]) for name, colour in colours.items()}


@pytest.mark.parametrize("theme", list(themes()))
def test_words_on_shapes_and_pages_can_be_read(theme):
    shapes = [name for name in theme if re.fullmatch(r"c\d", name)]
    assert len(shapes) == 8
    assert {name: round(contrast(theme[name], theme["on"]), 2) for name in shapes if contrast(theme[name], theme["on"]) < LEAST} == {}
    words = [(word, ground) for word in ("ink", "faint", "accent", "good") for ground in ("page", "panel")]
    assert [(word, ground) for word, ground in words if contrast(theme[word], theme[ground]) < LEAST] == []
