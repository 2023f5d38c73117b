"""Plan check: what a frame handler asks of Spark must leave each row in the task that read it.

A task has the rows of one topic-partition, and commits for it. What moves rows to other tasks, or
changes their order, is refused before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from redrive.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_READ: Final = ("KafkaRelation", "KafkaTable")
"""As the older and the newer way of reading are called in a plan."""
_BESIDE: Final = ("BroadcastExchange", "ReusedExchange")
"""What is under it is made once and given to every task: it may be anything."""
_REFUSED: Final = {
    "Exchange": "a shuffle (groupBy, distinct, orderBy, a window, repartition, or a join that is"
    " not broadcast)",
    "Coalesce": "coalesce",
    "Union": "a union",
    "Sort": "a sort",
    "CartesianProduct": "a cross join",
}


def check(frame: DataFrame, topic: str) -> None:
    """Refuse a plan that moves rows; a ConfigurationError says what does."""
    problem = refusal(list(_streamed(_plan(frame))))
    if problem is not None:
        raise ConfigurationError(f'frame handler of "{topic}": {problem}')


def refusal(nodes: list[str]) -> str | None:
    """What is against a plan with these nodes, those of broadcast sides left out."""
    for name, found in _REFUSED.items():
        if name in nodes:
            return (
                f"its plan has {found}, which moves rows between tasks, while each task commits"
                " the rows that it read; join with broadcast(...), and aggregate in a query of its"
                " own"
            )
    if not any(read in name for name in nodes for read in _READ):
        return (
            "its result is not made of the rows that it was given, read from Kafka: the given frame"
            " must not be cached, made a checkpoint or an RDD, stand on the broadcast side of a"
            " join, or be filtered to nothing"
        )
    return None


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().executedPlan()  # noqa: SLF001 -- Spark shows its plan to Java only


def _streamed(node: Any) -> Iterator[str]:
    name = str(node.nodeName())
    if name == "AdaptiveSparkPlan":
        yield from _streamed(node.executedPlan())
        return
    yield name
    if name in _BESIDE:
        return
    children = node.children()
    for number in range(children.size()):
        yield from _streamed(children.apply(number))
