"""What a person is warned of, on a real Kafka."""

from __future__ import annotations

import html
import signal
import time

import pytest
from consoles import Served
from shops import Shop

from redrive.kafka.topic_admin import KafkaTopics
from redrive.local import broker, stack
from redrive.local.waiting import wait_until
from redrive.record import Write


def flow(served):
    return html.unescape(served.ask(served.path())[2])


def says(served, words, seconds=60):
    return wait_until(lambda: words in flow(served), seconds, pause=0.5)


def test_letters_that_retention_is_about_to_delete(serve, shop):
    # Of an hour, so that the broker, which looks every five minutes, does not delete it meanwhile.
    KafkaTopics(shop.settings).configure(shop.app.dead_topic, {"retention.ms": "3600000"})
    written = int((time.time() - 3000) * 1000)
    shop.publisher.publish([Write(shop.app.dead_topic, b"k", b"bad 1", timestamp=written)])
    served = serve()
    assert says(served, "the oldest letter that waits for a decision is 50m old"), flow(served)
    assert "and retention deletes it after 1h" in flow(served)


@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_progress_that_a_broker_is_about_to_forget(redrive_prefix, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(broker.SETTINGS, "offsets.retention.minutes", "1")
        with stack(1, ephemeral=True) as running:
            shop = Shop(running, redrive_prefix, tmp_path)
            shop.publisher.publish([Write(f"{shop.name}.orders", b"k", b"fine 1")])
            shop.run("run", shop.target, "--engine", "worker", "--until-empty")
            served = Served(shop)
            try:
                words = "brokers forget its progress 1m after the last one"
                assert words not in flow(served)
                assert says(served, words, 120), flow(served)
            finally:
                served.stop()
                shop.close()


@pytest.mark.parametrize(
    "how",
    [
        ("--engine", "spark"),
        ("--engine", "worker", "--group-protocol", "consumer"),
    ],
)
@pytest.mark.chaos
def test_a_run_without_visible_members_is_not_said_to_be_away(serve, shop, how):
    # Whose handler takes longer for a record than it takes the page to look.
    module = shop.folder / f"{shop.target.partition(':')[0]}.py"
    slow = "def handle(record, ctx):\n    import time; time.sleep(3)\n"
    module.write_text(module.read_text().replace("def handle(record, ctx):\n", slow))
    shop.publisher.publish(
        [Write(f"{shop.name}.orders", b"k%d" % n, b"fine %d" % n) for n in range(60)]
    )
    served = serve()
    run = shop.start("run", shop.target, *how)
    try:
        seen = []
        done = lambda: len(shop.read(f"{shop.name}.done")) >= 30  # noqa: E731 -- asked again and again

        def looked():
            seen.append("nobody seems to read" in flow(served))
            return done()

        assert wait_until(looked, 240, pause=1)
        assert not any(seen)
    finally:
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=60)
