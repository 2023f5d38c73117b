"""The stack as users see it: real processes, through the command line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from redrive.errors import LocalError
from redrive.local import stack, tcp_ports
from redrive.local.postgres import Postgres
from redrive.local.postgres import data_folder as postgres_folder
from redrive.local.waiting import wait_until


def pids(answer):
    return {member["name"]: member["pid"] for member in answer["members"]}


def tree(answer):
    """Every process of the stack, PostgreSQL's own children included."""
    leaders = [psutil.Process(pid) for pid in pids(answer).values()]
    return [*leaders, *(child for leader in leaders for child in leader.children(recursive=True))]


def gone(processes):
    """Dead, or waiting only for its parent to take notice."""
    return all(not process.is_running() or _status(process) == "zombie" for process in processes)


def _status(process):
    try:
        return process.status()
    except (psutil.NoSuchProcess, ProcessLookupError):  # it ended while it was looked at
        return "zombie"


def create_topic(bootstrap, name):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, num_partitions=1)])[name].result(30)


def produce(bootstrap, topic, value):
    """With acks=all; the error if it did not become durable."""
    errors = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 60000, "log_level": 0}
    )
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(90) == 0
    return errors


def first_value(bootstrap, topic):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(60)
    consumer.close()
    return message.value()


@pytest.fixture(scope="module")
def shared(make_home):
    """One stack for all tests that only look at it, brought up by two commands at once."""
    home = make_home()
    rivals = [home.begin("up", "--json") for _ in range(2)]
    yield home, [(rival.communicate()[0], rival.returncode) for rival in rivals]
    home.run("down", "--delete")


def test_two_ups_at_once_are_one_stack(shared):
    _, (first, second) = shared
    assert first == second
    assert first[1] == 0


def test_up_again_is_the_same_stack_and_says_what_to_do_next(shared):
    home, ((said, _), _) = shared
    first = json.loads(said)
    again = home.run("up")
    assert home.up() == first
    assert f"export REDRIVE_BOOTSTRAP='{first['bootstrap']}'\n" in again.stdout
    assert f"export REDRIVE_DATABASE='{first['database']}'\n" in again.stdout
    with psycopg.connect(first["database"]) as db:
        assert db.execute("show wal_level").fetchone() == ("logical",)


def test_the_password_is_shown_only_when_asked_for(shared):
    home, ((said, _), _) = shared
    passfile = home.folder / "local" / "postgres" / "passfile"
    password = passfile.read_text().strip().rpartition(":")[2]

    assert passfile.stat().st_mode & 0o777 == 0o600
    for arguments in (["up"], ["status", "--json"]):
        assert password not in home.run(*arguments).stdout
    shown = home.run("status", "--json", "--show-password").stdout
    assert f"postgresql://redrive:{password}@127.0.0.1" in shown
    wrong = json.loads(said)["database"].replace("redrive@", "redrive:wrong@")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


@pytest.mark.parametrize("option", ["--kafka-port", "--postgres-port"])
def test_a_running_stack_keeps_its_ports(shared, option):
    home, _ = shared
    refused = home.run("up", option, "19999")
    assert refused.returncode == 2
    assert "not 19999; stop it first with `redrive local down`" in refused.stderr


def test_a_stack_without_security_is_not_secured_later(shared):
    home, _ = shared
    refused = home.run("up", "--secure")
    assert refused.returncode == 2
    assert "is not secured; `redrive local up --fresh --secure`" in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.chaos
def test_a_stack_that_lost_power_comes_up_with_its_data(home):
    before = home.up()
    create_topic(before["bootstrap"], "kept")
    assert produce(before["bootstrap"], "kept", b"a record") == [None]
    with psycopg.connect(before["database"]) as db:
        db.execute("create table kept as select 'a row' as what")
    processes = tree(before)
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # one may have ended with its parent
            process.kill()
    assert wait_until(lambda: gone(processes), 60)
    # Worse than the truth: the stale numbers now belong to somebody else, this very test.
    for record in home.folder.glob("local/*/process.json"):
        record.write_text(f'{{"pid": {os.getpid()}, "started": "another-boot/1"}}')
    for stale in data_folder(home).glob("postmaster.pid"):
        lines = stale.read_text().splitlines()
        stale.write_text("\n".join([str(os.getppid()), *lines[1:]]))

    assert home.run("status").returncode == 1
    after = home.up()

    assert after["bootstrap"] == before["bootstrap"]
    assert after["database"] == before["database"]
    assert first_value(after["bootstrap"], "kept") == b"a record"
    with psycopg.connect(after["database"]) as db:
        assert db.execute("select what from kept").fetchone() == ("a row",)


def data_folder(home):
    return Path(json.loads((home.folder / "local" / "stack.json").read_text())["postgres_data"])


def test_up_starts_only_what_died_and_down_ends_all_of_it(home):
    before = pids(home.up())
    os.kill(before["postgres"], signal.SIGKILL)
    assert home.run("status").returncode == 1
    answer = home.up()
    after, processes = pids(answer), tree(answer)
    assert after["kafka-1"] == before["kafka-1"]
    assert after["postgres"] != before["postgres"]

    assert home.run("status").returncode == 0
    assert home.run("down").stdout == "Stopped kafka-1, postgres.\n"
    assert gone(processes)
    assert home.run("status").returncode == 1
    assert home.run("down").stdout == "Nothing was running.\n"


@pytest.mark.parametrize("option", ["--kafka-port", "--postgres-port"])
def test_a_port_that_cannot_be_used_is_one_sentence(home, option):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = home.run("up", option, str(port))
    assert refused.returncode == 2
    assert refused.stderr == (
        f"redrive: Port {port} on 127.0.0.1 cannot be used (another process uses it); "
        f"choose another with {option}.\n"
    )


def test_a_folder_that_cannot_be_used_is_one_sentence(home):
    home.folder.write_text("a file, not a folder")
    refused = home.run("up")
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"redrive: The folder {home.folder} cannot be used (")
    assert refused.stderr.count("\n") == 1


def test_a_server_that_does_not_start_shows_the_end_of_its_log(tmp_path):
    tmp_path.chmod(0o711)
    postgres = Postgres(tmp_path, tcp_ports.free(), postgres_folder(tmp_path), short_lived=True)
    try:
        postgres.prepare()
        (postgres.data / "postgresql.conf").write_text("no_such_setting = 1\n")
        with pytest.raises(LocalError, match=r"(?s)postgres exited at once; .*no_such_setting"):
            postgres.start()
        assert not postgres.running
    finally:
        shutil.rmtree(postgres.data.parent)


@pytest.mark.chaos
def test_three_brokers_survive_the_loss_of_one(home):
    answer = home.up("--brokers", "3")
    processes = tree(answer)
    refused = home.run("up", "--brokers", "1")
    assert refused.returncode == 2
    assert "has 3 broker(s), not 1" in refused.stderr

    create_topic(answer["bootstrap"], "kept")
    os.kill(pids(answer)["kafka-1"], signal.SIGKILL)
    assert produce(answer["bootstrap"], "kept", b"still durable") == [None]
    assert first_value(answer["bootstrap"], "kept") == b"still durable"

    assert home.run("down", "--delete").stdout == "Stopped kafka-2, kafka-3, postgres.\n"
    assert wait_until(lambda: gone(processes), 60)
    assert not (home.folder / "local").exists()


def test_the_context_manager_leaves_alone_what_ran_before(home, monkeypatch):
    monkeypatch.setenv("REDRIVE_JARS", home.env["REDRIVE_JARS"])
    with stack(home=home.folder) as mine:
        broker = mine.brokers[0]
        own = home.up()
        assert own["bootstrap"] == mine.bootstrap
        broker.stop()
        assert broker.pid is None
        broker.start()
        mine.postgres.kill()
        assert mine.postgres.pid is None
        mine.postgres.start()
        with stack(home=home.folder) as same:
            assert same.bootstrap == mine.bootstrap
        assert broker.running
        assert mine.postgres.running
    assert not broker.running
    assert not mine.postgres.running
    assert home.run("status").returncode == 1


OWNER = """
import sys
from redrive.errors import LocalError
from redrive.local import tcp_ports, stack
from redrive.local.postgres import Postgres
from redrive.local.postgres import data_folder as postgres_folder
with stack(ephemeral=True) as mine:
    print(mine.home, mine.brokers[0].pid, mine.postgres.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGTERM])
def test_an_ephemeral_stack_ends_with_its_owner(home, fate):
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, env=home.env, stdin=pipe, stdout=pipe, text=True) as owner:
        folder, *numbers = owner.stdout.readline().split()
        processes = [psutil.Process(int(number)) for number in numbers]
        owner.send_signal(fate)
    assert wait_until(lambda: gone(processes), 60)
    assert wait_until(lambda: not Path(folder).exists(), 60)
