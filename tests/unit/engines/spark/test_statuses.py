"""What the one planner of strict order saw, as each of the two lanes would tell it."""

from __future__ import annotations

from redrive.engines.spark.statuses import of_lane


def test_in_strict_order_each_lane_tells_of_its_own_topics():
    status = {
        "at": 5,
        "trouble": "away",
        "ahead": {
            "lag": {"in": 3, "app.retry.5m": 2, "app.retry.behind": 1},
            "due": {"app.retry.5m": 1, "app.retry.behind": 1},
        },
    }
    main, retry = (of_lane(status, lane, {"in"}) for lane in ("main", "retry"))
    assert (main["ahead"], main["trouble"]) == ({"lag": {"in": 3}, "due": {}}, "away")
    assert retry == {
        "ahead": {
            "lag": {"app.retry.5m": 2, "app.retry.behind": 1},
            "due": {"app.retry.5m": 1, "app.retry.behind": 1},
        }
    }  # troubles are told once
    assert of_lane({}, "main", {"in"}) == {"ahead": {}}
