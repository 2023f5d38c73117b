"""A real Kafka broker (KRaft, broker and controller in one process)."""

from __future__ import annotations

import base64
import shutil
import signal
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

from redrive.errors import LocalError
from redrive.local import archive, processes, tcp_ports
from redrive.local.jars import fetch
from redrive.local.java import find_java
from redrive.local.member import Member
from redrive.local.processes import Identity
from redrive.local.securing import Securing
from redrive.local.tcp_ports import HOST

LOGGING = Path(__file__).with_name("log4j2.xml")


@dataclass(frozen=True)
class BrokerPlan:
    node: int
    port: int
    controller_port: int
    tls_port: int = 0
    """For mutual TLS, if the stack is secured."""


def new_cluster_id() -> str:
    """A UUID in Kafka's form; it must not look like a command line option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))[0] == "-":
        pass
    return text


class Broker(Member):
    # When all brokers of a cluster stop together, the last ones find no majority of controllers to
    # sign off from and would wait for minutes; their data is safe either way.
    stop_signals = ((signal.SIGTERM, 10.0),)
    discard_signals = ()

    def __init__(
        self,
        local: Path,
        plan: BrokerPlan,
        cluster: tuple[BrokerPlan, ...],
        *,
        cluster_id: str,
        jars_home: Path,
        short_lived: bool,
        securing: Securing | None = None,
    ) -> None:
        super().__init__(f"kafka-{plan.node}", local, plan.port)
        self.node = plan.node
        self._plan, self._cluster, self._cluster_id = plan, cluster, cluster_id
        self._short_lived, self._jars_home = short_lived, jars_home
        self._securing = securing

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def marker(self) -> str:
        return f"-Dredrive.member={self.folder}"

    def prepare(self) -> None:
        self._properties.write_text(self._settings())
        formatted = self.folder / "formatted"
        if formatted.exists():
            return
        shutil.rmtree(self._data, ignore_errors=True)
        tool = self._java("kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c")
        first = [] if self._securing is None else [self._securing.format_argument()]
        done = subprocess.run(
            [*tool, str(self._properties), *first], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip()[-500:]
            raise LocalError(
                f"{self.name}: Kafka could not format its storage in {self._data}: {said}"
            )
        formatted.touch()

    def spawn(self) -> Identity:
        return processes.spawn(self._java("kafka.Kafka", str(self._properties)), self.log)

    def ready(self) -> bool:
        """It is ready when it lists itself; until then the controllers keep it fenced."""
        if not tcp_ports.answers(self.port):
            return False
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        from redrive.local.clients import client_config

        security = {} if self._securing is None else self._securing.by_password()
        config = client_config(self.address, security)
        admin = AdminClient({**config, "log_level": 0})
        try:
            return self.node in admin.list_topics(timeout=2).brokers
        except KafkaException:
            return False

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _java(self, *arguments: str) -> list[str]:
        options = [
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-Xshare:auto",
            "-Djava.net.preferIPv4Stack=true",
        ]
        if self._short_lived:
            # Ready 0.7 s sooner, but slower for benchmarks.
            options.append("-XX:TieredStopAtLevel=1")
        options += [f"-Dlog4j2.configurationFile={LOGGING}", self.marker]
        jars = fetch("kafka", self._jars_home)
        class_path = ":".join(str(jar) for jar in jars)
        return [str(find_java()), *options, *archive.options(jars), "-cp", class_path, *arguments]

    def _settings(self) -> str:
        settings = SETTINGS | self._place() | replication(len(self._cluster))
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def _place(self) -> dict[str, str]:
        voters = ",".join(f"{peer.node}@{HOST}:{peer.controller_port}" for peer in self._cluster)
        place = {
            "node.id": str(self.node),
            "controller.quorum.voters": voters,
            "log.dirs": str(self._data),
        }
        if self._securing is not None:
            plan = self._plan
            return place | self._securing.broker_settings(
                plan.port, plan.tls_port, plan.controller_port
            )
        return place | {
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{HOST}:{self._plan.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
        }


def replication(brokers: int) -> dict[str, str]:
    """As many replicas as brokers, at most three; with three, one may fail."""
    copies, enough = str(min(brokers, 3)), str(2 if brokers >= 3 else 1)
    return {
        "default.replication.factor": copies,
        "min.insync.replicas": enough,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": enough,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": enough,
    }


SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # A typo in a topic's name must be an error, not a new topic.
    "auto.create.topics.enable": "false",
    # Quick to start: few partitions of Kafka's own topics, no waiting for further members.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    # Tests of crashed members ask for shorter sessions than the default minimum of 6 s.
    "group.min.session.timeout.ms": "1000",
    # A killed broker is fenced, and its partitions fail over, after this time (default 9 s).
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "1000",
    # An expired transaction is aborted soon, and its readers go on (default 10 s).
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # 30 days, for records and for a group's offsets.
    "log.retention.hours": "720",
    "offsets.retention.minutes": "43200",
    # Small for one machine: the default cleaner buffer alone is a quarter of the heap.
    "log.cleaner.dedupe.buffer.size": "16777216",
    "num.network.threads": "2",
    "num.io.threads": "4",
}
