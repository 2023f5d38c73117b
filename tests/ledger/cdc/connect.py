"""Kafka Connect with Debezium's connector on the outbox, as docs/reference/relay.md has it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from cdc.standalone import Standalone
from redrive.local import Stack

DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "reference" / "relay.md"
NAME: Final = "shop-outbox"


class Connect(Standalone):
    """Debezium on the outbox of a database."""

    def __init__(self, stack: Stack, database: str, folder: Path, **changes: str) -> None:
        worker = documented("worker.properties") | {"bootstrap.servers": stack.bootstrap}
        connector = documented("outbox.properties") | {
            "name": NAME,
            "database.hostname": "127.0.0.1",
            "database.port": str(stack.postgres.port),
            "database.user": "redrive",
            "database.password": stack.postgres.password,
            "database.dbname": database,
            "slot.name": f"slot_{database}",
            **changes,
        }
        super().__init__("debezium", folder, worker, connector)


def documented(file: str) -> dict[str, str]:
    """A file of settings, as the documentation shows it."""
    text = DOCUMENT.read_text()
    shown = re.search(rf"```properties\n# {re.escape(file)}\n(.*?)```", text, re.DOTALL)
    assert shown is not None, f"docs/reference/relay.md shows no {file}"
    lines = (line.partition("=") for line in shown[1].splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in lines}


def documented_sql() -> str:
    """How the database is prepared, as the documentation shows it."""
    shown = re.search(r"```sql\n(create publication.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert shown is not None
    return shown[1]
