"""What a stack consists of: its brokers, ports and folders, kept in stack.json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from redrive.errors import LocalError
from redrive.local import folders, tcp_ports
from redrive.local.broker import Broker, BrokerPlan, new_cluster_id
from redrive.local.member import Member
from redrive.local.postgres import Postgres, data_folder
from redrive.local.securing import Securing

FILE = "stack.json"
PATHS = ("postgres_data", "jars_home")
MOST_BROKERS = 9


@dataclass(frozen=True)
class Wish:
    """What the caller requested; None leaves it as it is, or up to redrive."""

    brokers: int | None = None
    kafka_port: int | None = None
    postgres_port: int | None = None
    secure: bool | None = None


@dataclass(frozen=True)
class Plan:
    local: Path
    cluster_id: str
    brokers: tuple[BrokerPlan, ...]
    postgres_port: int
    postgres_data: Path
    jars_home: Path
    short_lived: bool
    secure: bool = False

    @classmethod
    def load(cls, local: Path) -> Plan | None:
        try:
            content = json.loads((local / FILE).read_text())
            content["brokers"] = tuple(BrokerPlan(**broker) for broker in content["brokers"])
            content |= {name: Path(content[name]) for name in PATHS}
            return cls(local=local, **content)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise LocalError(
                f"{local / FILE} cannot be read ({error!r}); `redrive local up --fresh` deletes"
                " the stack and starts a new one."
            ) from error

    @classmethod
    def new(cls, local: Path, wish: Wish, jars_home: Path, *, short_lived: bool) -> Plan:
        nodes = range(1, _count(wish) + 1)
        blank = tuple(BrokerPlan(node, port=0, controller_port=0) for node in nodes)
        return cls(
            local=local,
            cluster_id=new_cluster_id(),
            brokers=blank,
            postgres_port=0,
            postgres_data=data_folder(local),
            jars_home=jars_home,
            short_lived=short_lived,
            secure=bool(wish.secure),
        )

    def save(self) -> None:
        content = asdict(self) | {name: str(getattr(self, name)) for name in PATHS}
        del content["local"]
        folders.write_durably(self.local / FILE, json.dumps(content, indent=1))

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{tcp_ports.HOST}:{broker.port}" for broker in self.brokers)

    @property
    def tls_bootstrap(self) -> str:
        """For mutual TLS, if the stack is secured."""
        return ",".join(f"{tcp_ports.HOST}:{broker.tls_port}" for broker in self.brokers)

    @property
    def securing(self) -> Securing | None:
        return Securing(self.local / "security") if self.secure else None

    def all_brokers(self) -> list[Broker]:
        return [
            Broker(
                self.local,
                plan,
                self.brokers,
                cluster_id=self.cluster_id,
                jars_home=self.jars_home,
                short_lived=self.short_lived,
                securing=self.securing,
            )
            for plan in self.brokers
        ]

    def postgres(self) -> Postgres:
        data, port = self.postgres_data, self.postgres_port
        return Postgres(self.local, port, data, short_lived=self.short_lived)

    def members(self) -> list[Member]:
        return [*self.all_brokers(), self.postgres()]

    def ports(self) -> Iterator[int]:
        for broker in self.brokers:
            yield from (broker.port, broker.controller_port)
            if self.secure:
                yield broker.tls_port
        yield self.postgres_port

    def with_usable_ports(self, wish: Wish) -> Plan:
        """For a stack that is not running: the requested ports, or the last ones, or new ones."""
        taken: set[int] = set()
        brokers = []
        for number, broker in enumerate(self.brokers):
            wanted = None if wish.kafka_port is None else wish.kafka_port + number
            port = _choose(wanted, broker.port, "--kafka-port", taken)
            controller = _choose(None, broker.controller_port, "", taken)
            tls = _choose(None, broker.tls_port, "", taken) if self.secure else 0
            brokers.append(replace(broker, port=port, controller_port=controller, tls_port=tls))
        postgres = _choose(wish.postgres_port, self.postgres_port, "--postgres-port", taken)
        return replace(self, brokers=tuple(brokers), postgres_port=postgres)

    def check(self, wish: Wish) -> None:
        """A stack with data keeps its number of brokers, and whether it is secured."""
        if wish.brokers not in (None, len(self.brokers)):
            raise LocalError(
                f"The stack in {self.local} has {len(self.brokers)} broker(s), not {wish.brokers};"
                f" `redrive local up --fresh --brokers {wish.brokers}` deletes its data and starts"
                " a new one, or set REDRIVE_HOME to another folder."
            )
        if wish.secure and not self.secure:
            raise LocalError(
                f"The stack in {self.local} is not secured; `redrive local up --fresh --secure`"
                " deletes its data and starts a new one, or set REDRIVE_HOME to another folder."
            )

    def check_running(self, wish: Wish) -> None:
        """A running stack keeps its ports as well."""
        asked = (wish.kafka_port, wish.postgres_port)
        has = (self.brokers[0].port, self.postgres_port)
        for wanted, actual in zip(asked, has, strict=True):
            if wanted not in (None, actual):
                raise LocalError(
                    f"The stack is already running on port {actual}, not {wanted}; stop it first"
                    " with `redrive local down`."
                )


def _count(wish: Wish) -> int:
    brokers = 1 if wish.brokers is None else wish.brokers
    if not 1 <= brokers <= MOST_BROKERS:
        raise LocalError(f"A stack has 1 to {MOST_BROKERS} brokers, not {brokers}.")
    return brokers


def _choose(wanted: int | None, last: int, option: str, taken: set[int]) -> int:
    if wanted is not None:
        port = tcp_ports.require(wanted, option)
    elif last and last not in taken and tcp_ports.problem(last) is None:
        port = last
    else:
        port = tcp_ports.free(taken)
    if wanted is not None and port in taken:
        raise LocalError(f"Port {port} is used twice; choose another with {option}.")
    taken.add(port)
    return port
