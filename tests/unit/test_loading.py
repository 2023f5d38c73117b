"""`module:name`: what is found, and what is said when it is not."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.app import App
from redrive.errors import ConfigurationError
from redrive.loading import load_app, load_object, target_of

NUMBERS = itertools.count()
SHOP = "from redrive.app import App\napp = App('shop')\nother = App('other')\nnumber = 7\n"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module of a name that no other test has imported; undone afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    known = set(sys.modules)

    def make(content, folder="."):
        name = f"shop_{next(NUMBERS)}"
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{name}.py").write_text(content)
        return name

    yield make
    for name in set(sys.modules) - known:
        if name.startswith(("shop_", "pack")):
            del sys.modules[name]


def mistake(target):
    with pytest.raises(ConfigurationError) as caught:
        load_app(target)
    return str(caught.value)


def test_an_app_in_the_working_directory(module):
    app = load_app(f"{module(SHOP)}:app")
    assert isinstance(app, App)
    assert app.name == "shop"


def test_the_same_app_each_time(module):
    name = module(SHOP)
    assert load_app(f"{name}:app") is load_app(f"{name}:app")


def test_an_app_in_a_package_and_in_an_object(module):
    name = module(SHOP + "class box: inner = other\n", folder="pack")
    assert load_app(f"pack.{name}:box.inner").name == "other"


def test_a_module_that_is_not_there(module):
    assert "there is no module gone, neither installed nor in " in mistake("gone:app")
    module("", folder="pack")
    assert "there is no module pack.gone, neither" in mistake("pack.gone:app")


def test_what_the_module_imports_is_not_there(module):
    name = module("import redrive.app\nimport gone_with_it\n")
    told = mistake(f"{name}:app")
    assert "there is no module" not in told
    assert "ModuleNotFoundError: No module named 'gone_with_it'" in told
    assert "line 2" in told


def test_an_attribute_that_is_not_there_names_those_that_are(module):
    name = module(SHOP)
    assert mistake(f"{name}:ap") == f"module {name} has no ap; its apps: {name}:app, {name}:other"


def test_a_module_without_apps(module):
    name = module("x = 1\n")
    assert mistake(f"{name}:app").startswith(f"module {name} has no app: it has no App; create one")


def test_something_else_than_an_app(module):
    name = module(SHOP)
    told = mistake(f"{name}:number")
    assert told == f"{name}:number is an int, not an App; its apps: {name}:app, {name}:other"


@pytest.mark.parametrize("target", ["", "shop", "shop:", ":app"])
def test_names_that_name_no_app(target):
    assert "write module:name, such as shop:app" in mistake(target)


def test_main_is_refused_with_a_hint():
    assert "move it to its own module" in mistake("__main__:app")


@pytest.mark.parametrize(
    ("target", "meant"),
    [("shop.py:app", "shop:app"), ("src/shop.py", "src.shop:app"), ("./a/shop:x", "a.shop:x")],
)
def test_a_file_instead_of_a_module(target, meant):
    assert mistake(target).endswith(f"not as a file: {meant}")


def test_an_exception_in_the_module_is_shown_with_the_users_own_traceback(module):
    inner = module("def work():\n    return {}['missing']\n")
    outer = module(f"import {inner}\n\n{inner}.work()\n")
    told = mistake(f"{outer}:app")
    assert f"{outer} cannot be imported:" in told
    assert f'{outer}.py", line 3, in <module>' in told
    assert f'{inner}.py", line 2, in work' in told
    assert "return {}['missing']" in told
    assert told.endswith("KeyError: 'missing'")
    assert "importlib" not in told
    assert "load.py" not in told


def test_a_syntax_error_shows_the_line(module):
    told = mistake(f"{module('x = (')}:app")
    assert "SyntaxError" in told
    assert "x = (" in told


def test_a_module_that_exits(module):
    assert "SystemExit: 3" in mistake(f"{module('raise SystemExit(3)')}:app")


def test_causes_are_shown(module):
    text = (
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise OSError('no') from error\n"
    )
    told = mistake(f"{module(text)}:app")
    assert "ZeroDivisionError" in told
    assert told.endswith("OSError: no")


def test_the_folder_can_be_given(tmp_path, module):
    name = module(SHOP, folder="elsewhere")
    assert load_app(f"{name}:app", Path(tmp_path / "elsewhere")).name == "shop"


def test_an_app_that_a_program_has_is_named_as_a_command_would(module):
    name = module(SHOP)
    app = load_app(f"{name}:app")
    assert target_of(app) == f"{name}:app"
    assert load_app(target_of(app)) is app
    assert target_of(App("nowhere")) == "module:app"


@pytest.mark.parametrize("how", [["program.py"], ["-m", "program"]])
def test_an_app_in_the_file_that_is_run_is_named_by_the_file(tmp_path, how):
    (tmp_path / "program.py").write_text(
        "from redrive import App\nfrom redrive.loading import target_of\n"
        "app = App('shop')\nprint(target_of(app))\n"
    )
    run = subprocess.run(
        [sys.executable, *how], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert run.stdout == "program:app\n"


def test_a_function_that_is_not_there_is_not_taken_for_an_app(module):
    name = module("def better(record): ...")
    with pytest.raises(ConfigurationError) as caught:
        load_object(f"{name}:nope", "a fix")
    assert str(caught.value) == (
        f"module {name} has no nope: {name}:nope should be a fix; its functions: {name}:better"
    )
