"""Many who look at once."""

from __future__ import annotations

import http.client

from consoles import READ


def test_fifty_viewers_of_one_address_are_told_and_pages_are_answered_meanwhile(serve, shop):
    # As a team behind one tunnel, with one token.
    served = serve()
    viewers = [http.client.HTTPConnection("127.0.0.1", served.port, timeout=120) for _ in range(50)]
    try:
        for number, each in enumerate(viewers):
            path = served.path(f"/live/{('flow', 'groups')[number % 2]}")
            each.request("GET", path, headers={"Authorization": f"Bearer {READ}"})
        answers = [each.getresponse() for each in viewers]
        assert [answer.status for answer in answers] == [200] * 50
        assert all(answer.readline().startswith(b"data: ") for answer in answers)
        assert served.ask(served.path(), token=READ)[0] == 200
    finally:
        for each in viewers:
            each.close()
