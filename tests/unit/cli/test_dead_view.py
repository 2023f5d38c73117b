"""`redrive dead` in memory: what is printed, whatever is in the letters."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import replace
from io import StringIO
from pathlib import Path
from threading import Event

import pytest
from operating import World
from rich.console import Console

from redrive import App
from redrive.cli.progress import Bar, Lines, progress
from redrive.dead import DeadLetters, Filter
from redrive.dead.desk import Desk
from redrive.dead.operator import ReplayOptions
from redrive.errors import ConfigurationError
from redrive.record import TopicPartition
from redrive.tuning import DEAD_TOLD_EVERY

EVIL = "\x1b]0;gone\x07\x9b2J\u202e[red]"
"""A title for the terminal, a clear screen, text that runs backwards, and a colour."""
FIELDS = ("error-type", "error-message", "error-group", "error-trace", "dead-reason", "app", "id")


@pytest.fixture
def ask(redrive, monkeypatch):
    """Runs `redrive dead` on the letters of a world."""

    def of(world):
        def opened(app, settings, **how):
            return DeadLetters(world.broker, app=app, **how)

        monkeypatch.setattr("redrive.cli.dead_options.load_app", lambda target: world.app)
        monkeypatch.setattr("redrive.dead.open_letters", opened)
        monkeypatch.setattr(
            "redrive.cli.dead_replay.open_operator",
            lambda found, settings, by: world.operator_of(found, by),
        )

        def run(verb, *arguments, code=0, err=False):
            answer = redrive("dead", verb, "shop:app", *arguments, "--bootstrap", "127.0.0.1:1")
            if isinstance(answer.exception, ConfigurationError):
                raise answer.exception
            assert answer.exit_code == code, (answer.output, answer.exception)
            return answer.stderr if err else answer.stdout

        return run

    return of


@pytest.mark.parametrize(
    "command",
    [
        ("groups",),
        ("list",),
        ("show", "--at", "shop.dead[0]@0"),
        ("stats",),
        ("try",),
        ("discard", "--reason", "no"),
        ("replay", "--fix", f"{__name__}:evil"),
        ("jobs",),
    ],
)
def test_no_letter_can_play_with_the_terminal(ask, command):
    world = World(values=())
    data = EVIL.encode()
    headers = [(f"redrive-{name}", data) for name in FIELDS]
    headers += [("redrive-origin-topic", data), ("redrive-replay-of", b"shop.dead[0]@9")]
    headers += [(EVIL, data), ("redrive-history", b"1@1 " + data)]
    world.sim.send("shop.dead", data, key=data, headers=headers)
    world.operator(EVIL).discard(Filter(groups=("none",)), EVIL)
    shown = ask(world)(*command)
    assert not [sign for sign in shown if sign in "\x1b\x07\x9b\u202e"]
    assert "\\x1b]0;gone" in shown
    assert "[red]" in shown or command[0] == "replay"


@pytest.mark.parametrize("command", [["list"], ["show", "--at", "shop.dead[0]@0"], ["groups"]])
def test_words_between_colons_are_shown_as_they_are(ask, command):
    app = App("shop")

    @app.handler("orders")
    def handle(record, ctx):
        raise KeyError("a:100:b")

    world = World(app=app)
    world.sim.send("orders", "a:100:b", key="a:100:b")
    world.run()
    shown = ask(world)(*command)
    assert "a:100:b" in shown or command == ["groups"]
    assert "\N{HUNDRED POINTS SYMBOL}" not in shown


def evil(record):
    raise ValueError(EVIL)


def test_masked_fields_are_not_in_the_data_either(ask):
    app = App("shop", masked=["card"])

    @app.handler("orders", decode=json.loads)
    def handle(record, ctx):
        raise KeyError("x")

    world = World(app=app, values=['{"card": "4711", "n": 1}'])
    at = ("show", "--at", "shop.dead[0]@0")
    for how in ((), ("--json",)):
        shown = ask(world)(*at, *how)
        assert "4711" not in shown
        assert "***" in shown
    app.masked = ()
    assert "4711" in json.loads(ask(world)(*at, "--json"))["value"]


def test_a_trial_shows_how_letters_would_fail_and_what_they_would_send(ask):
    world = World(values=["a", "b"])
    shown = ask(world)("try", code=1)
    assert "2 x KeyError: 'a' in operating:World._app.<locals>.handle (shop.dead[0]@0)" in shown
    world.repair()
    assert "would send to" not in ask(world)("try")
    shown = ask(world)("try", "--show-sends", "1")
    assert "2 to done" in shown
    assert shown.count("would send to") == 1
    assert "shop.dead[0]@0 would send to done, key k0:\na\n" in shown
    [group] = json.loads(ask(world)("try", "--show-sends", "1", "--json"))["groups"]
    assert [each["value"] for each in group["sent"]] == ["a"]


def test_a_job_after_which_too_many_failed_again_has_failed(ask):
    world = World(values=["a", "b"])
    how = ("--stop-above", "5%", "--yes")
    said = ask(world)("replay", "--at", "shop.dead[0]@0", *how, code=1)
    assert "done (1 of 1 failed again, more than 5%: look at them" in said
    world.repair()
    assert ": done, 1 replayed" in ask(world)("replay", "--at", "shop.dead[0]@1", *how)


@pytest.fixture
def edits(monkeypatch, tmp_path):
    """An editor that makes "better" of "worse"; what is kept, is kept in this folder."""
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "sed -i s/worse/better/")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def kept_in(said):
    [(at, file)] = re.findall(r"replay it with --at '(\S+)' --value (\S+) --yes", said)
    assert at == "shop.dead[0]@0"
    return Path(file)


EDITED = "shop.dead[0]@0\n    @@ -1 +1 @@\n    -worse\n    +better\n"


def test_an_edit_without_yes_is_kept_and_can_be_replayed(ask, edits):
    world = World(values=["worse"])
    file = kept_in(ask(world)("replay", "--edit", err=True))
    assert world.states() == {"worse": "open"}
    assert file.stat().st_mode & 0o777 == 0o600
    said = ask(world)("replay", "--at", "shop.dead[0]@0", "--value", str(file))
    assert EDITED in said
    assert "nothing was written: add --yes to do it" in said
    world.repair()
    said = ask(world)("replay", "--at", "shop.dead[0]@0", "--value", str(file), "--yes")
    assert said.startswith(EDITED)
    assert world.run() == ["better"]


def test_an_edit_with_yes_shows_what_it_changes(ask, edits):
    world = World(values=["worse"])
    world.repair()
    assert ask(world)("replay", "--edit", "--yes").startswith(EDITED)
    assert world.run() == ["better"]
    assert [*edits.iterdir()] == []


@pytest.mark.parametrize("answer", [True, False])
def test_whoever_edits_at_a_terminal_is_asked(ask, edits, monkeypatch, answer):
    world = World(values=["worse"])
    world.repair()
    monkeypatch.setattr("redrive.cli.dead_replay.can_ask", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda question: answer and question == "Replay it?")
    said = ask(world)("replay", "--edit")
    assert EDITED in said
    assert "add --yes" not in said
    assert world.run() == (["better"] if answer else [])
    assert len([*edits.iterdir()]) == (0 if answer else 1)


def test_a_letter_that_goes_while_somebody_is_asked_is_told_of(ask, edits, monkeypatch):
    world = World(values=["worse"])

    def agree(_question):
        world.broker.truncate(TopicPartition("shop.dead", 0), 1)
        return True

    monkeypatch.setattr("redrive.cli.dead_replay.can_ask", lambda: True)
    monkeypatch.setattr("typer.confirm", agree)
    said = ask(world)("replay", "--edit")
    assert "done, 0 replayed\n  1 offset was deleted by retention, unread\n" in said
    assert len([*edits.iterdir()]) == 1  # what was edited is not lost


@pytest.mark.parametrize("how", [[], ["--yes"]])
def test_an_edit_is_not_for_a_letter_that_took_the_place_meanwhile(ask, edits, monkeypatch, how):
    world = World(values=["worse"])

    def recreate(*_given):
        world.broker.delete("shop.dead")
        world.broker.create("shop.dead")
        world.sim.send("orders", "another", key="k")
        world.run()
        return b"better"

    monkeypatch.setattr("redrive.cli.dead_replay.can_ask", lambda: True)
    monkeypatch.setattr("redrive.cli.dead_replay.edited", recreate)
    monkeypatch.setattr("typer.confirm", lambda _question: True)
    with pytest.raises(AssertionError, match="recreated since somebody looked"):
        ask(world)("replay", "--edit", *how)
    assert world.states() == {"another": "open"}
    assert len([*edits.iterdir()]) == 1


def test_an_edit_is_kept_if_it_cannot_be_replayed(ask, edits, monkeypatch, redrive):
    world = World(values=["worse"])
    monkeypatch.setattr("redrive.dead.operator.Operator.replay", lambda *_, **__: 1 / 0)
    ask(world)
    failed = redrive("dead", "replay", "x:y", "--edit", "--yes", "--bootstrap", "127.0.0.1:1")
    assert isinstance(failed.exception, ZeroDivisionError)
    assert kept_in(failed.stderr).read_bytes() == b"better\n"


def test_an_edit_of_a_letter_that_is_left_out_is_kept(ask, edits):
    world = World(values=["worse"])
    world.operator().replay(Filter())
    said = ask(world)("replay", "--edit", "--yes", err=True)
    assert kept_in(said).read_bytes() == b"better\n"


def test_an_edit_is_of_one_letter_and_in_one_way(ask, edits):
    world = World(values=["worse", "b"])
    with pytest.raises(ConfigurationError, match="--value is for one letter, but more than one"):
        ask(world)("replay", "--value", "file")
    with pytest.raises(ConfigurationError, match="give one of --edit, --value and --fix"):
        ask(world)("replay", "--at", "shop.dead[0]@0", "--edit", "--value", "file")


def test_a_job_that_was_paused_says_how_to_go_on(ask):
    world = World(values=["a", "b"])
    paused = world.operator().replay(Filter(), ReplayOptions(), stopping=lambda: True)
    assert "paused: by a signal" in ask(world)("jobs")
    said = ask(world)("jobs", "--pause", paused.id)
    assert f"continue with: redrive dead jobs shop:app --resume {paused.id}" in said
    said = ask(world)("jobs", "--resume", paused.id, "--by", "carol")
    assert "done (resumed by carol), 2 replayed" in said


@pytest.mark.parametrize("command", [("replay",), ("discard", "--reason", "no")])
def test_ctrl_c_pauses_what_changes_letters(ask, monkeypatch, command):
    world = World(values=["a", "b"])
    monkeypatch.setattr("redrive.dead.running.DEAD_BYTES", 1)  # each letter is a step
    commit, interrupts = Desk.commit, iter([False, True])

    def commit_and_interrupt(desk, writes, operation):
        written = commit(desk, writes, operation)
        if next(interrupts, False):
            signal.raise_signal(signal.SIGINT)
        return written

    monkeypatch.setattr(Desk, "commit", commit_and_interrupt)
    said = ask(world)(*command, "--yes", code=1)
    assert "paused (by a signal), 1 " in said
    [job] = world.operator().operations()
    assert job.status == "paused"
    assert f"continue with: redrive dead jobs shop:app --resume {job.id}" in said
    assert "), 2 " in ask(world)("jobs", "--resume", job.id)


def test_a_replay_that_has_written_nothing_does_not_say_where_its_copies_are(ask):
    run = ask(World(values=["a"]))
    assert "written, not yet known to be handled" in run("replay", "--yes")
    said = run("replay", "--yes")
    assert "done, 0 replayed" in said
    assert "written" not in said


def test_a_job_without_a_terminal_says_now_and_then_how_it_stands():
    now, out = 0.0, StringIO()
    say = Lines(Console(file=out, width=200), clock=lambda: now)
    say(8, 1, "8 replayed", name="replay-1")
    assert out.getvalue() == ""
    now = DEAD_TOLD_EVERY
    say(8, 1, "8 replayed", name="replay-1")
    say(8, 1, "8 replayed", name="replay-1")
    assert out.getvalue() == "replay-1: 8 replayed, 1 offset to look at\n"


def test_a_terminal_shows_a_bar_and_what_came_of_it():
    out = StringIO()
    console = Console(file=out, width=200, force_terminal=True)
    with Bar(console) as show:
        show(8, 2, "8 [replayed]", name="replay-1")
        console.print("beside it")
    assert "80%" in out.getvalue()
    assert "8 [replayed]" in out.getvalue()


@pytest.mark.parametrize("as_json", [False, True])
def test_a_bar_is_not_among_what_programs_read(capsys, monkeypatch, as_json):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress(as_json=as_json) as show:
        show(8, 2, "")
    printed = capsys.readouterr()
    shown, other = (printed.err, printed.out) if as_json else (printed.out, printed.err)
    assert "80%" in shown
    assert other == ""


def test_a_trial_says_how_far_it_is(ask, monkeypatch):
    monkeypatch.setattr("redrive.cli.progress.DEAD_TOLD_EVERY", 0.0)
    world = World(values=["a", "b"])
    lines = ask(world)("try", code=1, err=True).splitlines()
    assert lines == [
        "1 letter tried, 1 would not pass, 1 offset to look at",
        "2 letters tried, 2 would not pass, 0 offsets to look at",
    ]


def test_a_letter_that_hangs_is_given_up_and_told_of(ask, monkeypatch):
    world, back = World(values=["a"]), Event()
    handler = world.app.handlers["orders"]
    slow = replace(handler, call=lambda *_: back.wait(), timeout=10)
    monkeypatch.setitem(world.app.handlers, "orders", slow)
    said = ask(world)("try", "--timeout", "1h", code=1)
    assert "1 did not end" in said
    assert f"HandlerTimeout: did not end within 10ms in {__name__}:" in said
    monkeypatch.setitem(world.app.handlers, "orders", replace(slow, timeout=None))
    assert "did not end within 20ms" in ask(world)("try", "--timeout", "20ms", code=1)
    back.set()


def test_an_export_tells_programs_what_it_has_written(ask, tmp_path):
    file = tmp_path / "letters"
    options = ("--out", str(file), "--key", "k0", "--json")
    said = json.loads(ask(World(values=["a", "b"]))("export", *options))
    assert (said["file"], said["written"]) == (str(file), 1)
    assert (said["scan"]["scanned"], said["scan"]["complete"]) == (2, True)
    assert len(file.read_text().splitlines()) == 1


def test_standard_output_has_an_export_or_what_is_said_of_it(ask):
    with pytest.raises(ConfigurationError, match="--json: standard output has the letters"):
        ask(World(values=["a"]))("export", "--json")


FLAGS = {
    "--newer 2h": {"a", "b"},
    "--newer 1h": {"b"},
    "--older 1h": {"a"},
    "--attempts 2": {"a"},
    "--attempts 1": {"a", "b"},
    "--id k/a": {"a"},
    "--id k/a --id k/b": {"a", "b"},
    "--header colour": {"a", "b"},
    "--header colour=red": {"b"},
    "--key a": {"a"},
    "--key a --key b": {"a", "b"},
    "--operation OPERATION": {"b"},
}


@pytest.mark.parametrize(("flags", "meant"), FLAGS.items())
def test_letters_are_named_on_the_command_line(ask, monkeypatch, flags, meant):
    world = World(values=())
    for value, colour, attempts in (("a", "blue", 2), ("b", "red", 1)):
        headers = {
            "colour": colour,
            "redrive-id": f"k/{value}",
            "redrive-app": "shop",
            "redrive-attempt": str(attempts),
            "redrive-dead-reason": "exhausted",
            "redrive-origin-topic": "orders",
        }
        written = [(name, text.encode()) for name, text in headers.items()]
        world.sim.send("shop.dead", value, key=value, headers=written)
        world.sim.advance("50m")
    now = world.sim.clock.now() / 1000
    monkeypatch.setattr("redrive.cli.dead_options.time", lambda: now)
    job = world.operator().discard(Filter(keys=("b",)), "no")
    given = flags.replace("OPERATION", job.id).split()
    found = json.loads(ask(world)("list", *given, "--json"))["letters"]
    assert {each["id"][-1] for each in found} == meant
    counted = json.loads(ask(world)("groups", *given, "--json"))
    assert sum(each["count"] for each in counted["groups"]) == len(meant)
    assert counted["scan"]["scanned"] == 2


def test_an_option_that_would_do_nothing_is_refused(ask):
    with pytest.raises(ConfigurationError, match="--to: letters of an app go back to that app"):
        ask(World(values=["a"]))("replay", "--to", "orders")
