"""A Spark standalone cluster on loopback: a master and two workers, from the pip package."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark

from redrive.local.waiting import wait_until

SPARK = Path(pyspark.__file__).parent
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


class Cluster:
    """A master and its workers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.processes: list[psutil.Popen] = []
        port, page = _free_port(), _free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self._start(_MASTER, "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page))
        wait_until(lambda: _listens(port), 60)
        for _ in range(2):
            self._start(
                _WORKER, "--host", "127.0.0.1", "--cores", "2", "--memory", "1g", self.master
            )

    def close(self) -> None:
        """End everything, executors too."""
        tree = [p for one in self.processes for p in (*one.children(recursive=True), one)]
        for process in tree:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(tree, timeout=30)

    def _start(self, what: str, *arguments: str) -> None:
        log = (self._folder / f"{what.rpartition('.')[2]}-{len(self.processes)}.log").open("wb")
        with log:
            process = psutil.Popen(
                [str(SPARK / "bin" / "spark-class"), what, *arguments],
                env=environment(self._folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)


def environment(folder: Path) -> dict[str, str]:
    """What Spark's own scripts need, and a Python that does not have redrive."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {
        **kept,
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "PYSPARK_PYTHON": str(without_redrive(folder)),
    }


def without_redrive(folder: Path, *but: str) -> Path:
    """The Python of an environment with all that is installed here but redrive and these."""
    made = folder / "-".join(("python", *but))
    if not made.exists():
        venv.create(made)
        (there,) = made.glob("lib/python*/site-packages")
        here = Path(sysconfig.get_path("purelib"))
        for each in here.iterdir():
            if "redrive" not in each.name and each.name.partition("-")[0] not in but:
                (there / each.name).symlink_to(each)
    return made / "bin" / "python"


def packed(folder: Path) -> Path:
    """redrive as the documentation says to ship it: its wheel, under the name of a zip file."""
    root = Path(__file__).parents[2]
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "-w", str(folder), str(root)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    (wheel,) = folder.glob("redrive-*.whl")
    return wheel.rename(folder / "redrive.zip")


@contextmanager
def submitted(
    cluster: Cluster,
    folder: Path,
    program: Path,
    files: list[Path],
    *arguments: str,
    settings: Mapping[str, str],
) -> Iterator[psutil.Popen]:
    """A program under spark-submit, ended at the end."""
    command = [
        str(SPARK / "bin" / "spark-submit"),
        "--master", cluster.master,
        "--conf", "spark.ui.enabled=false",
        "--conf", "spark.executor.cores=2",
        "--conf", f"spark.executor.extraJavaOptions={os.environ['SPARK_DAEMON_JAVA_OPTS']}",
        "--py-files", ",".join(map(str, files)),
        str(program), *arguments,
    ]  # fmt: skip
    with (folder / "submit.log").open("wb") as log:
        process = psutil.Popen(
            command, cwd=folder, env={**environment(folder), **settings}, stdout=log,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        for each in (*_children(process), process):
            try:
                each.kill()
            except psutil.NoSuchProcess:
                continue
        process.wait(30)


@contextmanager
def cluster_in(folder: Path) -> Iterator[Cluster]:
    made = Cluster(folder)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder / "work", ignore_errors=True)


def _children(process: psutil.Popen) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
