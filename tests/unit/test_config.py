"""Settings: from where they come, which mistakes are told, and what is never printed."""

from __future__ import annotations

import logging
import pickle

import pytest

from redrive.app import App
from redrive.config import Settings, load_settings, pem_text
from redrive.errors import ConfigurationError
from redrive.secret import Dsn, Secret, is_secret

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nvery-private\n-----END PRIVATE KEY-----\n"


def load(*arguments, environ=None, folder=None, toml=None):
    if toml is not None:
        (folder / "redrive.toml").write_text(toml)
    return load_settings(*arguments, environ=environ or {}, folder=folder)


def mistakes(*arguments, **places):
    with pytest.raises(ConfigurationError) as caught:
        load(*arguments, **places)
    return list(caught.value.problems)


# Places


def test_nothing_given(tmp_path):
    settings = load(folder=tmp_path)
    assert settings == Settings()
    with pytest.raises(ConfigurationError, match="REDRIVE_BOOTSTRAP"):
        settings.servers()


def test_arguments_then_environment_then_file(tmp_path):
    toml = 'bootstrap = "file:1"\ndatabase = "dbname=file"\n[security]\nuser = "file"'
    toml += '\nprotocol = "SASL_SSL"\nmechanism = "PLAIN"\npassword = "file"\n'
    environ = {"REDRIVE_BOOTSTRAP": "environment:1", "REDRIVE_SECURITY_PASSWORD": "environment"}
    settings = load(
        {"bootstrap": "first:1"},
        {"bootstrap": "second:1", "database": "dbname=second"},
        environ=environ,
        folder=tmp_path,
        toml=toml,
    )
    assert settings.servers() == "first:1"
    assert settings.database.reveal() == "dbname=second"
    assert settings.security.password.reveal() == "environment"
    assert settings.security.user == "file"


def test_environment_before_file(tmp_path):
    settings = load(environ={"REDRIVE_BOOTSTRAP": "e:1"}, folder=tmp_path, toml='bootstrap = "f:1"')
    assert settings.bootstrap == "e:1"


def test_the_file_can_be_named(tmp_path):
    (tmp_path / "other.toml").write_text('bootstrap = "other:1"')
    settings = load(
        environ={"REDRIVE_CONFIG": "other.toml"}, folder=tmp_path, toml='bootstrap = "f:1"'
    )
    assert settings.bootstrap == "other:1"


def test_an_apps_arguments_are_settings(tmp_path):
    app = App("a", bootstrap="app:1", librdkafka={"socket.timeout.ms": 5})
    settings = load(app.settings, folder=tmp_path)
    assert settings.bootstrap == "app:1"
    assert settings.librdkafka == {"socket.timeout.ms": 5}


def test_tables_for_the_rest_are_merged_key_by_key(tmp_path):
    # TOML makes tables of dotted names, deep ones too.
    toml = (
        "[librdkafka]\nsocket.timeout.ms = 1\n'client.id' = 'me'\n[spark]\nspark.ui.enabled = false"
    )
    settings = load({"librdkafka": {"client.id": "argument"}}, folder=tmp_path, toml=toml)
    assert settings.librdkafka == {"socket.timeout.ms": 1, "client.id": "argument"}
    assert settings.spark == {"spark.ui.enabled": False}


def test_words_may_be_written_small(tmp_path):
    settings = load({"security": {"protocol": "ssl"}}, folder=tmp_path)
    assert settings.security.protocol == "SSL"


def test_pem_as_text_or_as_a_file_beside_the_settings(tmp_path, monkeypatch):
    (tmp_path / "ca.pem").write_text(PEM)
    toml = '[security]\nprotocol = "SSL"\nca = "ca.pem"\n'
    monkeypatch.chdir("/")
    settings = load({"security": {"certificate": PEM, "key": KEY}}, folder=tmp_path, toml=toml)
    assert settings.security.ca == str(tmp_path / "ca.pem")
    assert pem_text(settings.security.ca) == settings.security.certificate == PEM
    assert settings.security.key.reveal() == KEY


# Mistakes


def test_all_mistakes_at_once_each_with_its_place(tmp_path):
    toml = 'bootstrap = 7\ndatabse = "x"\n[security]\nprotocl = "SSL"\n[librdkafka]\nacks = 1\n'
    found = mistakes(
        {"spark": 5, "security": {"protocol": "TLS"}},
        environ={"REDRIVE_DATABASE": " ", "REDRIVE_BOOTSTRP": "x:1"},
        folder=tmp_path,
        toml=toml,
    )
    file = tmp_path / "redrive.toml"
    assert found == [
        "argument spark: must be a table of settings, not int",
        (
            "environment variable REDRIVE_BOOTSTRP: is not a setting: did you mean"
            ' "REDRIVE_BOOTSTRAP"?'
        ),
        (
            "argument security.protocol: is 'TLS'; it can be"
            " 'PLAINTEXT' or 'SSL' or 'SASL_PLAINTEXT' or 'SASL_SSL'"
        ),
        "environment variable REDRIVE_DATABASE: is empty",
        f"{file}: bootstrap: must be text, not int",
        f'{file}: databse: is not a setting: did you mean "database"?',
        f'{file}: security.protocl: is not a setting: did you mean "security.protocol"?',
        (
            f"{file}: librdkafka.acks: cannot be set:"
            " redrive sets it itself: its guarantees depend on it"
        ),
    ]


def test_a_name_like_nothing_known_gets_the_list(tmp_path):
    (found,) = mistakes({"quux": 1}, folder=tmp_path)
    assert found.startswith(
        "argument quux: is not a setting: known settings: bootstrap, database, "
    )


def test_variables_of_other_parts_are_left_alone(tmp_path):
    load(environ={"REDRIVE_HOME": "/x", "REDRIVE_SOMETHING_ELSE": "1"}, folder=tmp_path)


def test_files_that_cannot_be_read(tmp_path):
    (found,) = mistakes(environ={"REDRIVE_CONFIG": "gone.toml"}, folder=tmp_path)
    assert "gone.toml (named by REDRIVE_CONFIG): cannot be read: No such file" in found
    (found,) = mistakes(folder=tmp_path, toml="bootstrap = ")
    assert "redrive.toml: is not TOML: " in found


def test_a_certificate_file_that_is_not_there(tmp_path):
    (found,) = mistakes({"security": {"protocol": "SSL", "ca": "gone.pem"}}, folder=tmp_path)
    assert found == (
        "argument security.ca: is neither PEM text (-----BEGIN ...) nor a file that exists"
    )


@pytest.mark.parametrize(
    ("security", "told"),
    [
        (
            {"protocol": "SASL_SSL", "user": "u", "password": "p"},
            ["SASL_SSL needs security.mechanism"],
        ),
        (
            {"protocol": "SASL_SSL", "mechanism": "PLAIN"},
            ["needs security.user", "needs security.password"],
        ),
        ({"user": "u"}, ["security.user: has no effect with PLAINTEXT"]),
        ({"ca": PEM}, ["security.ca: has no effect with PLAINTEXT"]),
        ({"protocol": "SSL", "certificate": PEM}, ["security.certificate: needs security.key"]),
        ({"protocol": "SSL", "key": KEY}, ["security.key: needs security.certificate"]),
    ],
)
def test_contradictions(tmp_path, security, told):
    found = mistakes({"security": security}, folder=tmp_path)
    assert len(found) == len(told)
    assert all(part in problem for part, problem in zip(told, found, strict=True))


def test_sasl_by_hand_needs_no_password(tmp_path):
    load(
        {"security": {"protocol": "SASL_SSL"}, "librdkafka": {"sasl.mechanisms": "OAUTHBEARER"}},
        folder=tmp_path,
    )


@pytest.mark.parametrize(
    "name",
    ["bootstrap.servers", "group.id", "isolation.level", "enable.auto.commit", "partitioner"],
)
def test_what_guarantees_stand_on_cannot_be_changed(tmp_path, name):
    (found,) = mistakes({"librdkafka": {name: "x"}}, folder=tmp_path)
    assert found.startswith(f"argument librdkafka.{name}: cannot be set: ")


def test_a_value_that_no_client_library_takes(tmp_path):
    (found,) = mistakes({"librdkafka": {"client.id": ["a"]}}, folder=tmp_path)
    assert found.endswith("must be text, a number or true/false, not a list")


# Secrets

HIDDEN = {
    "security": {
        "protocol": "SASL_SSL",
        "mechanism": "PLAIN",
        "user": "me",
        "password": "hunter2",
        "certificate": PEM,
        "key": KEY,
    },
    "database": "postgresql://me:hunter2@db/shop?sslpassword=hunter2",
    "librdkafka": {
        "ssl.key.password": "hunter2",
        "sasl.oauthbearer.client.secret": "hunter2",
        "ssl.key.pem": "hunter2",
        "socket.timeout.ms": 77,
    },
    "spark": {"spark.hadoop.fs.s3a.secret.key": "hunter2", "spark.ssl.keyPassword": "hunter2"},
}


def test_settings_are_safe_to_print(tmp_path, caplog):
    settings = load(HIDDEN, folder=tmp_path)
    logging.getLogger("test").warning("%s %r", settings, settings)
    shown = f"{settings} {settings!r} {settings.security} {settings.librdkafka} {caplog.text}"
    assert "hunter2" not in shown
    assert "very-private" not in shown
    assert "postgresql://me:***@db/shop" in shown
    assert "77" in shown
    assert settings.librdkafka["ssl.key.pem"].reveal() == "hunter2"


def test_what_an_app_was_given_is_safe_to_print(tmp_path):
    app = App("shop", **HIDDEN)
    shown = f"{app.settings} {vars(app)}"
    assert "hunter2" not in shown
    assert "very-private" not in shown
    assert "postgresql://me:***@db/shop" in shown
    assert load(app.settings, folder=tmp_path) == load(HIDDEN, folder=tmp_path)


def test_mistakes_do_not_print_secrets(tmp_path):
    found = mistakes(
        {
            "security": {"password": ["hunter2"], "key": "hunter2.pem", "passwrd": "hunter2"},
            "database": {"password": "hunter2"},
            "librdkafka": {"sasl.password": {"hunter2"}},
        },
        environ={"REDRIVE_SECURITY_PASWORD": "hunter2"},
        folder=tmp_path,
    )
    assert len(found) == 6
    assert "hunter2" not in str(found)


def test_a_secret_shows_itself_only_when_asked():
    secret = Secret("hunter2")
    assert f"{secret} {secret!r} {secret!s} {[secret]}" == "*** '***' *** ['***']"
    assert secret.reveal() == "hunter2"
    assert secret == Secret("hunter2")
    assert secret != Secret("other")
    assert secret != "hunter2"
    assert len({secret, Secret("hunter2")}) == 1
    assert pickle.loads(pickle.dumps(secret)) == secret  # noqa: S301 -- Spark sends it to its tasks


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://me:hunter2@db:5432/shop", "postgresql://me:***@db:5432/shop"),
        ("postgresql://me@db/shop", "postgresql://me@db/shop"),
        ("postgres://me:a:b?c@h1:1,h2:2/shop", "postgres://me:***@h1:1,h2:2/shop"),
        ("postgresql://me:hun%40ter2@[::1]:5432/shop", "postgresql://me:***@[::1]:5432/shop"),
        ("postgresql:///shop?host=/run/pg", "postgresql:///shop?host=/run/pg"),
        ("postgresql://db/shop?user=me&password=hunter2&sslmode=require",
         "postgresql://db/shop?user=me&password=***&sslmode=require"),
        ("postgresql://me@db/shop?passwrd=hunter2", "postgresql://me@db/shop?passwrd=***"),
        ("host=db password=hunter2 user=me", "host=db password=*** user=me"),
        ("host=db password=hun'ter2 user=me", "host=db password=*** user=me"),
        (r"host=db password = 'hun\' ter2' user=me", "host=db password=*** user=me"),
        ("host=db passfile=/x user=me", "host=db passfile=/x user=me"),
        ("dbname=postgresql://me:hunter2@db/shop", "dbname=***"),
    ],
)  # fmt: skip
def test_a_database_address_is_shown_without_its_password(dsn, shown):
    assert str(Dsn(dsn)) == shown
    assert repr(Dsn(dsn)) == repr(shown)
    assert Dsn(dsn).reveal() == dsn


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://shop:hunter2%zz@db/shop",
        "postgresql://shop:hun@ter2@db/shop",
        "postgresql://shop:hun/ter2@db/shop",
        "postgresql://shop:12/hunter2@db/shop",
        "postgresql://shop@db:hunter2/shop",
        "postgresql://shop@db/shop?hunter2",
        "postgresql//shop:hunter2@db/shop",
        "postgres:/shop:hunter2@db/shop",
        "host=db password='hunter2",
        "host=db password=hun ter2 user=me",
        "hunter2 is my password",
    ],
)
def test_an_address_that_is_not_understood_is_a_mistake_and_none_of_it_is_shown(tmp_path, dsn):
    assert str(Dsn(dsn)) == "***"
    for given in (dsn, Dsn(dsn)):
        (found,) = mistakes({"database": given}, folder=tmp_path)
        assert found.startswith("argument database: is not a PostgreSQL address")
        assert "ter2" not in found


def test_which_names_are_secret():
    secret = ["sasl.password", "ssl.key.pem", "ssl.keystore.password", "sasl.jaas.config"]
    secret += ["ssl.keystore.key", "sasl.oauthbearer.config", "spark.authenticate.secret"]
    assert [name for name in secret if not is_secret(name)] == []
    harmless = ["ssl.key.location", "sasl.username", "client.id", "key.deserializer"]
    assert [name for name in harmless if is_secret(name)] == []
