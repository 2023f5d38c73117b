"""Where others could look: the process list, and what Spark itself shows."""

from __future__ import annotations

import privates
import psutil

from redrive.config import load_settings
from redrive.engines.spark.frames import frame_session, reading
from redrive.engines.spark.ranges import Range
from redrive.kafka.topic_admin import KafkaTopics


def test_a_secret_setting_of_sparks_is_not_on_its_command_line(spark_session):
    assert spark_session.sparkContext.getConf().get("spark.tests.password") == "hunter2"
    mine = {one.pid for one in psutil.Process().children(recursive=True)}
    lines = [
        " ".join(one.info["cmdline"] or ())
        for one in psutil.process_iter(["cmdline"])
        if one.pid in mine
    ]
    assert any("spark.jars" in line for line in lines), "Spark's own process"
    assert not any("hunter2" in line for line in lines)


def test_what_is_sent_to_java_is_not_logged(spark_session, caplog):
    given = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "user": "me", "password": "hunter2"}
    mine = load_settings({"bootstrap": "127.0.0.1:9", "security": given}, environ={})
    frame_session.prepare(spark_session)
    with caplog.at_level("DEBUG", "py4j"):
        reading.read(spark_session, mine, [Range("orders", 0, 0, 0)], "shop")
    assert "hunter2" not in caplog.text


def test_no_plan_of_a_secured_read_that_spark_shows_has_the_password_in_it(
    spark_session, redrive_secure_stack, redrive_prefix
):
    mine = load_settings(redrive_secure_stack.settings, environ={})
    KafkaTopics(mine).create(redrive_prefix, 1, {})
    frame_session.prepare(spark_session)
    rows = reading.read(spark_session, mine, [Range(redrive_prefix, 0, 0, 0)], "shop")
    assert rows.collect() == []
    password = mine.security.password.reveal()
    modes = privates.jvm(spark_session).org.apache.spark.sql.execution.ExplainMode
    for mode in ("simple", "extended", "formatted", "cost", "codegen"):
        shown = privates.execution_of(rows).explainString(modes.fromString(mode))
        assert "kafka" in shown.lower()
        assert password not in shown
