"""Consoles on a real Kafka, and a real browser."""

from __future__ import annotations

import shutil
import sys

import pytest
from consoles import SHOTS, Served
from shops import Shop


@pytest.fixture
def shop(redrive_stack, redrive_prefix, tmp_path, monkeypatch):
    """An app with its topics, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = "shop" if SHOTS else redrive_prefix
    made = Shop(redrive_stack, name, tmp_path, more=f', sends="{name}.done"')
    yield made
    made.close()


@pytest.fixture
def serve(shop):
    """Starts consoles of the app."""
    made = []

    def start(*arguments, **how):
        made.append(Served(shop, *arguments, **how))
        return made[-1]

    yield start
    for each in made:
        each.stop()


@pytest.fixture(scope="module")
def chromium():
    """A real browser. Of one module: while it is there, no other event loop can run."""
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("there is no Chromium on this machine, and tools/browser could not install it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Containers and root have no user namespaces for its sandbox; it visits loopback only.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium):
    """A page that fails the test if a script of a record runs, or anything is blocked."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    trouble = []
    opened.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
    opened.on("pageerror", lambda error: trouble.append(str(error)))
    opened.on("console", lambda said: trouble.append(said.text) if _is_trouble(said) else None)
    yield opened
    context.close()
    assert trouble == []


def _is_trouble(said):
    """Whether the browser complains of the page; a console that was killed is no fault of it."""
    return said.type == "error" and not said.text.startswith("Failed to load resource: net::")
