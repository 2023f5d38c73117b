"""The links that the console prints can be followed."""

from __future__ import annotations

import pytest

from redrive.cli.console import READ_TOKEN, TOKEN, print_links
from redrive.console import new_access


@pytest.mark.parametrize(
    ("host", "shown"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("name.example", "name.example")],
)
def test_the_link_of_an_address_of_any_kind_can_be_followed(capsys, monkeypatch, host, shown):
    for name in (TOKEN, READ_TOKEN):
        monkeypatch.delenv(name, raising=False)
    print_links(new_access(), host, 8484)
    links = capsys.readouterr().out.splitlines()
    assert len(links) == 2
    assert all(f": http://{shown}:8484/login?token=" in each for each in links)
