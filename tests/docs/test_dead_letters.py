"""What the page for the night shows is what the commands print, about such an app in memory."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest
from operating import World

from redrive.dead import DeadLetters

PAGE = Path(__file__).parents[2] / "docs/how-to/dead-letters.md"
SHOP = """
from redrive import App, RetryPolicy

app = App("shop", retry=RetryPolicy("2s"), ordering="partition")  # whose order no clock decides
prices, addresses = {"hat": 20}, set()


@app.handler("orders", sends=["invoices"])
def handle(record, ctx):
    what, number = record.value.decode().split()
    prices[what]
    if int(number) % 20 == 3 and number not in addresses:
        raise ValueError(f"order {number} has no address")
    ctx.send("invoices", record.value)


def repair():
    prices["coat"] = 80
    addresses.update(map(str, range(800)))
"""
VARIES = {
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d": "TIME",
    r"replay-\d{8}-\d{6}-[0-9a-f]{4}": "OPERATION",
    r"^id +\S+/": "id ID/",
    r"\b\d+[smhd](\d+[smh])?(?= ago| +orders$)": "AGE",
    r" +": " ",
}
"""What is another one each time, and the widths of columns that follow it."""


def same(text):
    """Lines without what differs from run to run."""
    for varies, name in VARIES.items():
        text = re.sub(varies, name, text, flags=re.MULTILINE)
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def commands():
    """Each command of the page, with what it shows."""
    blocks = re.findall(r"^```text\n(\$ .*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for block in blocks:
        for part in re.split(r"^\$ redrive ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


@pytest.fixture
def shop(monkeypatch, tmp_path):
    """The module of an app of which records have died for two reasons."""
    made = ModuleType("shop")
    made.__file__ = str(tmp_path / "shop.py")
    monkeypatch.setitem(sys.modules, "shop", made)
    exec(compile(SHOP, made.__file__, "exec"), vars(made))  # noqa: S102 -- what stands above
    return made


def test_the_commands_print_what_the_page_shows(shop, redrive, monkeypatch):
    world = World(app=shop.app, partitions=3)
    for number in range(800):
        what = "coat" if number % 8 == 4 else "hat"
        world.sim.send("orders", f"{what} {number}", key=f"k{number % 9}")
    world.sim.run_until_empty()

    def opened(app, settings, **how):
        return DeadLetters(world.broker, app=app, **how)

    for module in ("dead_options", "parked"):
        monkeypatch.setattr(f"redrive.cli.{module}.load_app", lambda target: shop.app)
    monkeypatch.setattr("redrive.dead.open_letters", opened)
    monkeypatch.setattr(
        "redrive.cli.dead_replay.open_operator",
        lambda found, settings, by: world.operator_of(found, by),
    )
    monkeypatch.setattr("redrive.cli.parked.open_steering", lambda *_: world.sim.steering)
    monkeypatch.setenv("LOGNAME", "root")
    monkeypatch.setenv("REDRIVE_BOOTSTRAP", "127.0.0.1:1")
    ran = []
    for command, output in commands():
        if command.startswith("dead try"):
            [would_fail] = re.findall(r"`(\d+ x ValueError: [^`]+)`", PAGE.read_text())
            assert " ".join(would_fail.split()) in redrive(*shlex.split(command)).stdout
            shop.repair()
        answer = redrive(*shlex.split(command))
        assert answer.exit_code == 0, (command, answer.output, answer.exception)
        assert same(answer.stdout) == same(output), command
        ran.append(command.split()[1])
    verbs = "groups list show try replay replay list list stats jobs"
    assert ran == verbs.split()
