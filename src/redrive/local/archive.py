"""A class archive: makes a broker start in a third of the time, on one core or many.

Java stores the classes of a trial run in a file and maps that file the next time. Java itself
ignores an archive of another Java or of other jars: slower, never wrong.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from redrive.local import tcp_ports
from redrive.local.java import find_java

TRIAL_SECONDS = 120
# The trial must load what a broker loads and then exit by itself, even if its parent is killed: its
# address is one that no machine has (a documentation address), so it fails at the very end.
TRIAL = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://192.0.2.1:9092,CONTROLLER://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
"""
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def options(jars: Sequence[Path]) -> list[str]:
    """The options for Java, if there is an archive next to these jars."""
    archive = _archive(jars)
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"] if archive.exists() else []


def make(jars: Sequence[Path]) -> None:
    """Best effort: everything works without an archive, only more slowly."""
    archive = _archive(jars)
    part = archive.with_suffix(".part")
    part.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="redrive-trial-") as folder:
        properties = Path(folder) / "server.properties"
        properties.write_text(TRIAL.format(folder=folder, port=tcp_ports.free()))
        format_storage = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"]
        _run(jars, [], [*format_storage, str(properties)])
        _run(jars, [f"-XX:ArchiveClassesAtExit={part}"], ["kafka.Kafka", str(properties)])
    if part.exists():
        part.replace(archive)


def _archive(jars: Sequence[Path]) -> Path:
    return jars[0].with_name("classes.jsa")


def _run(jars: Sequence[Path], options: list[str], arguments: list[str]) -> None:
    class_path = ":".join(str(jar) for jar in jars)
    command = [str(find_java()), "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true", *options]
    try:
        subprocess.run(
            [*command, "-cp", class_path, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TRIAL_SECONDS,
            check=False,  # the trial is meant to fail
        )
    except subprocess.TimeoutExpired:
        pass
