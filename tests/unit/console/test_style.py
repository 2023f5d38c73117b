"""What is written on the pages can be read, in light and in dark."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

LEAST = 4.5
"""The contrast that WCAG 2 asks for, for text of ordinary size (level AA)."""
PAIRS = [
    ("ink", "page"),
    ("ink", "card"),
    ("ink", "bad-card"),
    ("quiet", "page"),
    ("quiet", "card"),
    ("quiet", "bad-card"),
    ("link", "page"),
    ("link", "card"),
    ("on-main", "main"),
    ("bad", "page"),
    ("bad", "card"),
    ("bad", "bad-card"),
    ("good", "page"),
    ("good", "card"),
    ("warm", "page"),
    ("warm", "card"),
]
"""Text, and what it is written on."""


def colours(scheme):
    css = files("redrive.console").joinpath("static", "console.css").read_text()
    light, dark = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    return dict(re.findall(r"--([a-z-]+): #([0-9a-f]{6})", {"light": light, "dark": dark}[scheme]))


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_text_stands_out_from_what_it_is_written_on(scheme, text, ground):
    known = colours(scheme)
    darker, lighter = sorted(luminance(known[name]) for name in (text, ground))
    assert (lighter + 0.05) / (darker + 0.05) >= LEAST


def test_both_schemes_have_the_same_colours():
    assert colours("light").keys() == colours("dark").keys()
    assert {name for pair in PAIRS for name in pair} <= colours("light").keys()
