"""Tuning: all numbers that somebody might want to change, in one place.

Times, sizes and bounds, by the room that uses them; each says what it is, and what a larger or a
smaller one would do. What a protocol prescribes stays where it is used.
"""

from __future__ import annotations

from typing import Final

# The heart

TURN_ORDERED: Final = 0.005
"""Seconds of a turn at fresh records in order. Larger: it is noticed later that handlers are not
quick, and that records should go by lanes. Smaller: more turns, each with the lock."""
TURN_SHARED: Final = 0.05
"""The same without order. Larger: threads look for other work later. Smaller: they wait for each
other at the dispatcher more often."""
COUNTED_ALONE: Final = 0.001
"""Seconds of a call above which its time is counted by itself. Larger: histograms are less exact.
Smaller: more to count for each record."""
SLOW_RECORD: Final = 0.02
"""Seconds after which those behind a record no longer wait for it, if they need not. Larger: one
slow call holds up others for longer. Smaller: lots are cut up for nothing."""
LOT: Final = 64
"""Records handed to a thread at once. Larger: a slow one has more behind it. Smaller: more handing
over, which costs more than running them."""
LARGE_LOT: Final = 500
"""The same for keys with much to do, and for quick handlers. Larger: a key has its thread for
longer. Smaller: more handing over."""
LARGE_LOT_SECONDS: Final = 1.0
"""Seconds of a large lot of such a key, as far as can be known. Larger: others wait longer for a
thread. Smaller: hot keys fall behind."""
QUICK_RECORD: Final = 0.0001
"""Seconds per record, below which handlers count as quick: a few threads run all. Larger: slower
handlers run one after the other. Smaller: threads get in the way of each other."""
QUICK_LOTS: Final = 2
"""Lots of one partition at once, where handlers are quick. Larger: more threads for the same
Python. Smaller: a slow record stops its partition sooner."""
MOST_GIVEN_BACK: Final = 10_000
"""Records given back whose tries are remembered. Larger: memory. Smaller: some begin at their first
try again."""
MAX_BEHIND: Final = 100_000
"""Records of one key that wait behind one that is parked, the default of `max_behind`. Larger:
memory, and longer until the key has caught up. Smaller: its partition waits sooner."""
FOLLOWERS_LET_GO: Final = 100
"""Records of one key that are in their lane at once after they have waited. Larger: more are taken
out again if the first of them fails. Smaller: more steps for the same."""
FOLLOWERS_AT_HAND: Final = 1_000
"""Records per partition that wait behind others in memory, or a quarter of `max_in_flight`, if that
is less; those beyond are read again when they may run. Larger: memory. Smaller: more is read
twice."""
LONG_RUNNING: Final = 30.0
"""Seconds after which a running handler is logged, then each time after twice as long. Larger: a
handler that hangs is noticed later. Smaller: lines about handlers that are only slow."""
LONG_RUNNING_EVERY: Final = 1.0
"""Seconds between two looks at the oldest handler. Larger: it is logged later. Smaller: more
looks."""
JOIN_STEP: Final = 0.1
"""Seconds of one step of waiting for threads to end. Larger: an end is noticed later. Smaller: more
steps."""
RESOURCES_TO_CLOSE: Final = 10.0
"""Seconds for an app's resources to close when its run ends. Larger: one that hangs delays the end.
Smaller: slow ones are left behind."""
LOOP_ANSWERS_WITHIN: Final = 5.0
"""Seconds in which an event loop answers at the end. Larger: one that is blocked delays the end.
Smaller: a busy one is left behind, with its resources open."""

GUARD_PASSING: Final = 0.05
"""Of the calls since then, the share that may have succeeded. Larger: half an outage opens a guard.
Smaller: one success by chance keeps it closed."""
GUARD_SETTLE: Final = 250
"""Milliseconds over which calls have to fail, or nothing has to have succeeded, before a guard
opens. Larger: it opens later. Smaller: an unlucky moment of a busy handler opens it."""
GUARD_DOUBT: Final = 500
"""Milliseconds for which a failure that may be an outage is not yet its record's own. Larger: a
record that fails alone holds up its key for longer. Smaller: the first records of an outage lose an
attempt."""
GUARD_LOOK: Final = 50
"""Milliseconds between two looks at what was seen. Larger: it opens later. Smaller: more looking,
while something fails."""
GUARD_BATCH: Final = 3
"""Records of a failed batch, called one by one, that have to fail in a row as in an outage before
the others are not called. Larger: more calls of what is away. Smaller: a few poisoned ones send the
others back."""
GUARD_PROBE: Final = 1.0
"""Seconds until the first probe of an outage; each further one takes twice as long. Larger: its end
is noticed later. Smaller: more calls of what is away."""
GUARD_PROBE_LONGEST: Final = 30.0
"""Seconds between two probes at most. Larger: the end of a long outage is noticed later. Smaller:
more calls of what is away."""
GUARD_AFTER_LONGEST: Final = 3_600_000
"""Milliseconds that a handler can ask for until the next probe. Larger: a mistaken one keeps an
outage open for longer. Smaller: more calls of what has said when it is back."""
GUARD_QUIET: Final = 1000
"""Milliseconds for which nothing has to wait before an outage is over that few calls came after.
Larger: it is shown for longer. Smaller: what is just being read is let through all at once."""
GUARD_LANES: Final = 3
"""Lanes whose heads all have to fail, where order keeps other keys from being tried. Larger: with
few partitions an outage is not seen. Smaller: a poisoned record in each of them is one."""
GUARD_PROBES_LATE: Final = 100
"""Calls that were let out during an outage and have not ended after the longest wait for a probe:
while there are no more of them, others are let out beside them. Larger: more threads may hang with
what is away. Smaller: a handler that acknowledges many records at once may never get so many."""
GUARD_LOST: Final = 1000
"""Milliseconds between two looks for calls that were let out and that nothing will be heard of.
Larger: such a loss holds up the end of an outage for longer. Smaller: more looking."""
GUARD_PROBES_PASSED: Final = 3
"""Probes that have to succeed in a row, of different records, before others follow. Larger: it
takes longer. Smaller: one lucky call ends it."""
GUARD_TURN: Final = 1000
"""On Spark: milliseconds for which a lane leaves the next probe to the other one, if that has
records waiting. Larger: a lane that is busy holds up the end of an outage. Smaller: it is passed
over."""
GUARD_TRIED: Final = 100
"""On Spark: so many records of a partition that were probes and have failed are known. Larger: more
is told to each task. Smaller: among many poisoned ones the same are tried again."""
GUARD_PASSING_KEPT: Final = 40
"""On Spark: for so many looks it is known how many calls have succeeded in a task. Larger: more is
told to the driver. Smaller: where calls take long to fail, others that pass count less."""
GUARD_READ: Final = 1000
"""On Spark: records of a partition that are read to find those that are called during an outage.
Larger: more is read for nothing. Smaller: fewer keys to choose from."""
GUARD_BATCH_SECONDS: Final = 1.0
"""On Spark: how long a task runs during an outage. Larger: the end of the outage is noticed later,
where other handlers are busy. Smaller: these pay more often for a batch."""
GUARD_RETENTION: Final = 0.8
"""Share of its topic's retention that a record may wait for before it is said. Larger: little time
is left to do something. Smaller: it is said of every long outage."""
GUARD_RETENTION_EVERY: Final = 60_000
"""Milliseconds between two looks at that, during an outage. Larger: said later. Smaller: more
questions to Kafka."""
BRAKE_DEAD: Final = 20
"""Records that would be buried at least, before `stop_on_dead` ends a run. Larger: more are buried
before. Smaller: a few bad ones end a run that has just begun."""
BRAKE_WINDOW: Final = 10
"""Seconds for which outcomes are counted for that. Larger: what went well a while ago hides a
mistake. Smaller: a run of bad records ends it."""

HISTORY_ATTEMPTS: Final = 10
"""Failed attempts that travel with a record, the last ones. Larger: larger headers, of which every
parked and dead record has some. Smaller: the time line of a dead letter begins later."""
SENT_TOPICS_KEPT: Final = 10_000
"""Topics that a process remembers as good to send to. Larger: memory, if handlers make names up.
Smaller: the names of others are checked with every message."""
CAUSES_TOLD_APART: Final = 50
"""Causes of failures that are counted one by one between two looks; those beyond are counted
together. Larger: memory, and larger reports of tasks. Smaller: details are lost sooner."""
CAUSE_MESSAGE_BYTES: Final = 500
"""Bytes of the message in the log line of a cause. Larger: longer lines. Smaller: messages are cut
off sooner."""
CAUSE_TRACE_CHARACTERS: Final = 8192
"""Characters of the stack trace that is logged with a cause. Larger: longer logs. Smaller: the
middle of deep stacks is left out."""
CAUSE_GROUP_BYTES: Final = 200
"""Bytes of the name that an app gives a group of failures. Larger: longer lines and reports.
Smaller: names are cut off, and groups that differ at their end become one."""
COLLECTOR_ALLOCATIONS: Final = 50_000
"""Objects made between two looks of Python's garbage collector for cycles. Larger: cycles take up
memory for longer. Smaller: it goes through all records in flight more often."""

# Dead letters

DEAD_GROUPS: Final = 1000
"""Groups that are distinguished in one scan. Larger: memory, and lists that nobody reads. Smaller:
rare causes disappear among the others."""
DEAD_PATTERNS: Final = 20
"""Patterns of messages, and origin topics, that are distinguished within a group. Larger: memory
for each group. Smaller: kinds of messages disappear among the others."""

DEAD_RANGE: Final = 50_000
"""Offsets of a dead topic that one task of Spark reads. Larger: fewer tasks, each of which is given
more marks: with 12 bytes for each, so many stay below the size at which Spark warns of large tasks.
Smaller: more tasks, each of which begins with a new consumer."""

SETTLE_EVERY: Final = 0.05
"""Seconds between two looks at whether what was written to the state topic can be read. Larger:
shards begin later. Smaller: more requests."""

DEAD_DIFFERENCES: Final = 3
"""Letters of which a dry run shows what a fix changes. Larger: more to read. Smaller: less is seen
before anything is written."""
TRIAL_PATIENCE: Final = 10.0
"""Seconds that `redrive dead try` waits for a manual acknowledgement, where its handler has no
time-out. Larger: a handler that acknowledges nothing takes as long for each letter. Smaller: slow
ones count as not acknowledged."""
TRIAL_TIMEOUT: Final = 30.0
"""Seconds that a letter may take in `redrive dead try`, where neither its handler nor the command
says how long; and that a fix may take for a value. Larger: what hangs is waited for longer.
Smaller: what is only slow counts as not ended."""
TRIAL_GRACE: Final = 1.0
"""Seconds that an async handler which is tried has to end after it was cancelled. Larger: one that
does not heed that is waited for longer. Smaller: the threads of more are left behind."""
TRIAL_HANGING: Final = 3
"""Letters in a row that do not end in time, or threads that hang at once, until a trial or a dry
run ends. Larger: it takes longer to say that all of them hang. Smaller: a few odd ones end it."""
DEAD_TOLD_EVERY: Final = 15.0
"""Seconds between two lines of a job about letters that nobody watches on a terminal. Larger: it
seems to hang. Smaller: longer logs."""
DEAD_NAMES: Final = 10
"""Topics or apps that a dry run names with each reason to leave letters out. Larger: longer lines.
Smaller: the one that is needed may not be named."""
DEAD_BLOCK: Final = 1000
"""Offsets that are read at once when letters are listed from the end, at most. Larger: a page may
take longer than its time. Smaller: more requests for letters that are far apart."""
DEAD_PAGE_BYTES: Final = 16_000_000
"""Bytes of letters on one page, nearly. Larger: memory, for each page that is being made. Smaller:
fewer large letters on a page."""
DEAD_STEP: Final = 5000
"""Letters that a replay looks at before it commits how far it has come, also if it leaves them out.
Larger: a crash repeats more looking. Smaller: more transactions for nothing."""
DEAD_BYTES: Final = 4_000_000
"""Bytes of copies in one transaction of a replay. Larger: it may not end in its time. Smaller: more
transactions."""
DEAD_LOOK_EVERY: Final = 2.0
"""Seconds between two looks at what became of the copies of a replay. Larger: it stops later.
Smaller: more reading of delay topics and the dead topic."""
DEAD_REMOVED_AT_ONCE: Final = 10_000
"""Marks of letters that are gone, which one operation removes. Larger: a longer first transaction.
Smaller: the state topic is tidied up more slowly."""
IDS_AT_ONCE: Final = 1000
"""Ids that an inbox is asked for at once by a dry run, a replay or a rewind. Larger: longer
statements. Smaller: more of them."""
RAMP_PATIENCE: Final = 600.0
"""Seconds that a replay waits for the next of the copies of one step of its ramp to be handled,
beyond their delay. Larger: a job waits longer for an app that does not run. Smaller: an app that is
busy with others stops it."""
OPERATIONS_KEPT: Final = 20
"""Operations that a letter's mark names, the last ones. Larger: larger marks in the state topic.
Smaller: less of a letter's story is known."""
MASKED_DEEPEST: Final = 50
"""Parts within parts of a value that are looked through for masked fields; whatever is deeper is
hidden. Larger: deeper calls, up to what Python allows. Smaller: more is hidden."""
MASKED_SECRETS: Final = 200
"""Masked parts that are looked for in the rest of a value; one with more is hidden as a whole.
Larger: showing it takes longer. Smaller: more values are hidden."""

# Delivery

UNIT_END_AGAIN: Final = 1.0
"""Seconds until the database is asked again to end the transaction of a thread that hangs. Larger:
its record waits longer. Smaller: more questions to a database in trouble."""
EXPIRE_EVERY: Final = 60.0
"""Seconds between two looks for expired ids. Larger: the inbox grows. Smaller: more queries."""
EXPIRE_MORE: Final = 1.0
"""The same while there are more than one look takes. Larger: a backlog of them lasts. Smaller: it
disturbs the work."""
UNIT_SECONDS: Final = 0.1
"""Seconds that handlers run, about, before their work is committed. Larger: a crash repeats more,
and rivals wait longer. Smaller: more commits."""
UNIT_FIRST_SIZE: Final = 16
"""Records of a unit of work while it is not known how long handlers take. Larger: slow ones keep
their first transaction open for long. Smaller: more commits at the start."""
UNIT_ALONE_WAIT: Final = 1000
"""Milliseconds until a record that cannot be committed even alone is tried again, doubled each
time. Larger: it is late. Smaller: a database in trouble is asked more often."""
UNIT_ALONE_LONGEST: Final = 30_000
"""The longest of these waits. Larger: it is noticed later that it can be committed. Smaller: more
tries for nothing."""
DATABASE_LOST_BY_CHANCE: Final = 2
"""How often the database may be lost while a record is handled before that record is tried alone.
Larger: one that ends its connection takes others with it more often. Smaller: an outage makes
records go one by one."""
REFUSED_WAIT: Final = 1000
"""Milliseconds until a topic that refused a write is looked at again, doubled each time. Larger:
records wait longer than it does. Smaller: more questions to the brokers."""
REFUSED_LONGEST: Final = 30_000
"""The longest of these waits. Larger: it is noticed later that the topic takes writes again.
Smaller: more questions to the brokers."""

# Both engines

MAX_BYTES_IN_FLIGHT: Final = 64 * 1024 * 1024
"""Bytes in flight, of one partition on the worker, of all ranges of a task on Spark. Larger:
memory. Smaller: large records are read in short steps."""
START_PATIENCE: Final = 15.0
"""Seconds that a start waits for a broker. Larger: a wrong address is reported late. Smaller: a
broker that restarts is taken for a wrong address."""
DOCTOR_PATIENCE: Final = 4.0
"""Seconds that `redrive doctor` waits for a broker: somebody sits there. Larger: a wrong address is
reported late. Smaller: a busy broker is taken for a wrong address."""
MEMBERS_GONE_WITHIN: Final = 60.0
"""Seconds in which stopped workers leave the group. Larger: a worker that runs is reported late.
Smaller than a session (45 s): one that was stopped is taken for one that runs."""
MEMBERS_LOOK_EVERY: Final = 0.5
"""Seconds between two looks at who is left in the group. Larger: a start takes that much longer.
Smaller: more questions to the coordinator."""
START_CONNECT_SECONDS: Final = 15
"""Seconds for the first connection to the database. Larger: a wrong address is reported late.
Smaller: a busy server is taken for a wrong address."""
RENAMED_SIDE_BY_SIDE: Final = 8
"""Groups asked at once whether they were this app's. Larger: more clients at once. Smaller: the
first start of an app takes longer."""
RENAMED_MOST_GROUPS: Final = 50
"""Groups asked at all, those of similar names first: each takes a client. Larger: the first start
takes longer. Smaller: a renamed app may not be noticed."""
TAKE_OVER_LOOK_EVERY: Final = 1.0
"""Seconds between two looks at whether a run on Spark still commits under an old name. Larger: the
first start under the new one takes longer. Smaller: more questions to the coordinator."""
TAKE_OVER_LOOKS: Final = 60
"""How many looks there are at most. Larger: a run that never ends is reported later. Smaller: one
that is about to end is refused."""
TAKE_OVER_STOOD: Final = 6
"""Looks for which nobody must have committed. Larger: a first start under a new name takes longer.
Smaller than a batch lasts (5 s): a run on Spark may go on unnoticed."""
REWIND_STOOD: Final = 10
"""Looks, as often, for which a rewind must not have been committed over. Larger: a rewind takes
longer. Smaller than a commit of a task can be under way (6 s): it may be lost unnoticed."""
MOST_DUE_MARKS: Final = 64
"""Marks kept per partition of a delay topic to tell since when records are due. Larger: memory.
Smaller: the lateness of a backlog is reported less exactly."""
NEWS_KEPT: Final = 1000
"""Batches kept for whoever shows them. Larger: memory. Smaller: some are never shown when many end
at once."""
CAUSES_EVERY: Final = 60.0
"""Seconds between two summaries of why records fail. Larger: news are old. Smaller: more lines."""
CAUSES_FORGOTTEN_AFTER: Final = 3600.0
"""Seconds without a cause after which it is news again. Larger: it comes back unnoticed. Smaller: a
rare one is logged with its trace each time."""
MOST_CAUSES: Final = 500
"""Causes remembered; beyond them failures are summed up by topic and reason. Larger: memory and
lines. Smaller: details are lost sooner."""
FENCED_AT_ONCE: Final = 8
"""Partitions fenced off at once: each takes a producer. Larger: more connections. Smaller: a large
assignment, or a first batch, begins later."""

PARKED_RULES_EVERY: Final = 3.0
"""Seconds between two looks for rules about parked records (`redrive parked`). Larger: a hold or a
run-now begins later. Smaller: more questions to the brokers."""

# The worker

TRANSACTION_EVERY: Final = 0.1
"""Seconds from one transaction of a partition to the next on the worker. Larger: readers wait
longer. Smaller: more transactions, which cost the same whatever is in them."""
TRANSACTION_SOONER: Final = 10_000
"""Records after which one is begun sooner. Larger: memory. Smaller: more transactions."""
TRANSACTIONS_SIDE_BY_SIDE: Final = 8
"""Transactions of different partitions at once. Larger: more threads. Smaller: partitions wait for
each other."""
TRANSACTION_LOOK_EVERY: Final = 0.02
"""Seconds between two looks at what could be committed. Larger: it is later. Smaller: an idle
worker takes more CPU time."""
MAX_IN_FLIGHT: Final = 10_000
"""Records in flight per partition, the default of `--max-in-flight`. Larger: memory, and longer
metadata. Smaller: one slow record holds up its partition sooner."""
POLL: Final = 0.01
"""Seconds of one poll while no handler runs. Larger: handlers that begin are noticed later.
Smaller: an idle worker takes more CPU time."""
POLL_BUSY: Final = 0.002
"""The same while handlers run. Larger: commits come later, and a crash repeats more. Smaller: more
turns of the loop, which take the lock from handlers."""
POLL_SHORTEST: Final = 0.0005
"""The same just before a record is due. Larger: it runs that much later. Smaller: the loop
spins."""
FENCED_BY_ITSELF_WITHIN: Final = 60.0
"""Seconds after an outage in which the group may take a worker for another one of its name: a
coordinator that died had given it a new id. Larger: a rival of that name is noticed late. Smaller:
the worker ends by mistake."""
NAME_WAIT: Final = 1.0
"""Seconds until a name that is in use is tried again. Larger: a restarted worker begins later.
Smaller: more refused joins."""
NAME_LOOK_EVERY: Final = 0.1
"""Seconds between two looks whether a refused client has ended. Larger: stopping meanwhile takes
longer. Smaller: nothing is gained."""
CLOSE_WAIT: Final = 1.0
"""Seconds for threads that are over time already. Larger: a stop takes longer where handlers hang.
Smaller: calls that were about to return are abandoned."""
LEAVE_WAIT: Final = 5.0
"""Seconds to leave the group, besides those for revoked partitions. Larger: a stop takes longer
without a coordinator. Smaller: others wait for the session to time out."""
LIVE_WITHIN: Final = 10.0
"""Seconds without a poll after which `/live` fails. Larger: a worker that is stuck is restarted
later. Smaller: one on a busy machine is restarted for nothing."""
UPKEEP_EVERY: Final = 0.1
"""Seconds between two rounds of upkeep (hung handlers, lost threads). Larger: time-outs are noticed
later. Smaller: the poll thread has less time to poll."""
LOOK_REST: Final = 10.0
"""Times as long as a look took for which nobody looks again. Larger: what a look would have seen is
seen later. Smaller: with many partitions, looking takes a larger share of a core."""
LOOK_SELDOMEST: Final = 0.5
"""Seconds between two looks at the most, however long one took. Larger: what has ended is seen
later. Smaller: with very many partitions, looking takes a larger share of a core."""
FINISH_LOOK_EVERY: Final = 0.005
"""Seconds between two looks whether the handlers of revoked partitions have ended. Larger: a
rebalance takes longer. Smaller: CPU time."""
COMMIT_SOON: Final = 0.005
"""Seconds between two commits where `COMMIT_MANY` records are complete. Larger: a crash repeats
more. Smaller: more commits for the coordinator."""
COMMIT_MANY: Final = 10
"""Complete records that are worth a commit at once. Larger: a crash repeats more. Smaller: more
commits for the coordinator."""
COMMIT_AT_LEAST_EVERY: Final = 0.1
"""Seconds until fewer than that are committed too. Larger: a crash repeats more. Smaller: more
commits for the coordinator."""
COMMITS_ON_THEIR_WAY: Final = 2
"""Commits without an answer yet. Larger: no gain, as a broker takes those of one connection one
after the other, and more are lost with their sender. Smaller: the next waits for the answer to the
last."""
COMMIT_PAUSE_FACTOR: Final = 5
"""How many times as long as it took to write a commit the next one waits. Larger: a crash repeats
more where much is complete beyond a gap. Smaller: writing it takes more of the poll thread's
time."""
LAST_COMMIT_PATIENCE: Final = 1.0
"""Seconds at least for the last commit of all. Larger: a stop takes longer without a coordinator.
Smaller: a slow one gets no last commit, and records run again."""
COMMIT_LOST_AFTER: Final = 30.0
"""Seconds without an answer after which a commit is not waited for any more. Larger: progress
stands still for longer. Smaller: a slow broker gets the same commit twice."""
COMMIT_LOST_LOOK_EVERY: Final = 1.0
"""Seconds between two looks for such commits while others are on their way. Larger: they are found
later. Smaller: CPU time, where there are many partitions."""
DELIVERY_POLL: Final = 0.005
"""Seconds of one wait for messages on their way. Larger: their records are settled later. Smaller:
CPU time."""
DELIVERY_IDLE: Final = 0.5
"""Seconds of one wait while nothing is on its way: news end it. Larger: nothing is gained. Smaller:
an idle worker takes more CPU time."""
UNSUBSCRIBE_WAIT: Final = 1.0
"""Seconds for the group to notice that a member leaves to join again. Larger: joining again
takes longer without a coordinator. Smaller: it may join before it has left."""
LOOK_EVERY: Final = 1.0
"""Seconds between two looks at lag and topics. Larger: metrics are older, and recreated topics
noticed later. Smaller: more questions to the brokers."""
LOOK_EVERY_WHEN_ENDING: Final = 0.2
"""The same with `--once` and `--until-empty`. Larger: such a run ends later. Smaller: more
questions to the brokers."""
NEWS_EVERY: Final = 5.0
"""Seconds between two lines on what was done. Larger: fewer lines. Smaller: more."""
NEW_TOPICS_EVERY: Final = 10.0
"""Seconds between two looks for delay topics that others of the group have made. Larger: they are
read later. Smaller: more questions to the brokers."""
LOOK_CLOSE_WAIT: Final = 2.0
"""Seconds for the last look, when the worker ends. Larger: a stop takes longer without brokers.
Smaller: the summary is older."""
LEADERS_LOOK_AGAIN: Final = 60.0
"""Seconds after which it is asked again who leads a topic that is resumed. Larger: a reader resumed
after a move waits for librdkafka. Smaller: more questions to the brokers."""
LEADERS_ASK_AGAIN: Final = 10.0
"""Seconds for which a broker that did not answer is not asked again. Larger: its partitions are
read later once it is back. Smaller: the poll thread waits for it more often."""
REJOIN_AGAIN_AFTER: Final = 30.0
"""Seconds from one time a worker joins again to the next. Larger: a wrong assignment lasts longer.
Smaller: a group that settles is disturbed."""
STALLED_AFTER: Final = 10.0
"""Seconds without progress after which it is asked whether anybody reads a partition. Larger: one
that nobody reads stays so longer. Smaller: more questions to the coordinator."""
REOPEN_WAIT: Final = 1.0
"""Seconds until a partition whose transaction failed begins again. Larger: its records are late.
Smaller: a trouble that lasts is met more often."""
MOST_INSTANCES: Final = 10_000
"""Workers of one app on one machine that get a name in the group by themselves. Larger: longer
looks for a free name if there is none. Smaller: more of them are refused."""

# Spark

RANGE_WINDOW: Final = 4_000
"""Records of a range in flight in a task. Larger: memory. Smaller: threads wait for records."""
RANGE_SILENCE: Final = 1.0
"""Seconds without a record after which a range that ends unread says so. Larger: it goes unsaid.
Smaller: a slow broker is reported."""
TASK_TRANSACTION_RECORDS: Final = 20_000
"""Records read for one transaction of a task. Larger: memory, and a crash repeats more. Smaller:
more transactions."""
TASK_TRANSACTION_EVERY: Final = 1.0
"""Seconds after which it is committed, if it is not full before. Larger: readers wait longer.
Smaller: more transactions."""
FRAME_BYTES: Final = 32_000_000
"""Bytes of rows that are written and not settled. Larger: memory. Smaller: a task waits for the
broker more often."""
FRAME_POLL: Final = 0.1
"""Seconds of one wait for them. Larger: a refusal is noticed later. Smaller: more calls."""
RETRY_HORIZON: Final = 250
"""Milliseconds that the retry lane plans ahead; a record is held in its task until it is due.
Larger: tasks hold their slots while they wait. Smaller: records are late by the start of a
batch."""
TASK_IDLE_WAIT: Final = 0.02
"""Seconds of one wait in a task that has nothing to do. Larger: it ends later after a stop.
Smaller: CPU time."""
TASK_READ_WAIT: Final = 0.005
"""Seconds of one wait for records on their way from a broker. Larger: results are collected later.
Smaller: CPU time."""
TASK_PUMP_EVERY: Final = 0.2
"""Seconds that handlers run before outcomes are made durable and offsets committed. Larger: a crash
repeats more. Smaller: more commits."""
HOUSE_LOOK_EVERY: Final = 1.0
"""Seconds between two looks of a task at whether its houses are still its own, in strict order.
Larger: one that is late runs handlers for longer. Smaller: more questions to the brokers."""
TOPICS_EVERY: Final = 2000
"""Milliseconds between two looks at the topics and at rivals. Larger: new partitions are read
later, and rivals noticed later. Smaller: more questions to the brokers."""
REFUSED_RANGES_LONGEST: Final = 300_000
"""Milliseconds at most until a range whose writes were refused is tried again where only its
handler can tell. Larger: it is late when the topic is well. Smaller: handlers are called for
nothing."""
HALVING_GROWTH: Final = 8
"""By how much ranges grow again behind a record that killed its worker. Larger: the next such
record takes more steps to find. Smaller: the rest of the range takes more tasks."""
HANDLE_POLL: Final = 0.1
"""Seconds between two looks of the driver at its queries. Larger: the end of a run is noticed
later. Smaller: calls of the JVM."""
FAILED_BATCH_WAIT: Final = 1.0
"""Seconds after a failed batch, or a planner's death. Larger: a trouble that is over costs more
time. Smaller: one that lasts is met more often."""
NOTHING_DONE_WAIT: Final = 0.05
"""Seconds after a batch in which nothing was done, doubled each time up to the above. Larger:
records are late once the trouble is over. Smaller: empty batches."""
OTHER_LANE_WAIT: Final = 10.0
"""Seconds for the tasks of one lane to end when the other has failed. Larger: the error is reported
later. Smaller: their work since the last commit runs again."""
LAST_LOOK_WAIT: Final = 2.0
"""Seconds for the planners' last look, when a run is stopped. Larger: a stop takes longer. Smaller:
the summary is older."""
MOST_PLANNER_DEATHS: Final = 5
"""Deaths of a lane's planners that a run survives within the time below. Larger: a planner that
always dies is reported late. Smaller: a driver short of memory for a moment ends the run."""
PLANNER_DEATHS_WITHIN: Final = 300.0
"""Seconds for which a planner's death counts. Larger: rare ones add up and end the run. Smaller:
one that dies slowly is never reported."""
PLANNER_START_PATIENCE: Final = 240.0
"""Seconds for which a planner's Python process may fail to start in time. Larger: a driver that can
never start one is reported late. Smaller: one that is busy for a while ends the run."""
PLANNER_SILENCE: Final = 60.0
"""Seconds without a plan, while no batch is under way, after which `/live` fails. Larger: a lane
that is stuck is restarted later. Smaller: a busy driver is restarted for nothing."""
BATCH_GRACE: Final = 30.0
"""Seconds beyond its deadline until a batch is said to take long: Spark has to start Python
processes. Larger: it is said later. Smaller: it is said of the first batch of every run."""
NOTHING_TO_PLAN_WAIT: Final = 0.05
"""Seconds of a planner's wait while nothing is ahead. Larger: records begin later. Smaller: more
questions to the brokers."""
PLANNER_TROUBLE_WAIT: Final = 1.0
"""Seconds until a planner that could not plan tries again. Larger: records are late once the
trouble is over. Smaller: more questions to brokers in trouble."""
PLANNER_PATIENCE: Final = 5.0
"""Seconds that a planner waits for brokers before it reports them. Larger: an outage is reported
later. Smaller: a change of leaders is reported as one."""
LOST_TASK_PATIENCE: Final = 5.0
"""Seconds until Spark knows how a task has ended: a moment after it has started the next attempt.
Larger: a batch with a lost task takes longer. Smaller: a death may not be seen as one."""
LOST_EXECUTOR_PATIENCE: Final = 2.0
"""Seconds in which the driver notices that an executor is gone. Larger: the search for a record
that kills its Python worker takes longer on a cluster. Smaller: one whose container was ended with
all of its processes may be taken for it."""
LOST_TASK_PAUSE: Final = 0.05
"""Seconds between two looks at that. Larger: the same takes longer. Smaller: calls of the JVM."""
KEPT_UNUSED: Final = 600.0
"""Seconds after which a Python process lets go of what another app has left in it. Larger: its
connections and memory stay. Smaller: apps that take turns open them again and again."""
KEPT_TO_CLOSE: Final = 5.0
"""Seconds for its resources to close. Larger: one that hangs holds up the next task. Smaller: slow
ones are abandoned."""
PROCESS_TO_CLOSE: Final = 5
"""Seconds for the resources of a Python process that Spark ends. Larger: one that hangs keeps it
alive. Smaller: slow ones end with it."""

FRAME_STOP_SECONDS: Final = 10.0
"""Seconds that a stop waits for the batch of a frame lane. Larger: a stop takes longer. Smaller: a
batch is cancelled, and runs again."""
FRAME_NOTHING_DONE_WAIT: Final = 0.1
"""Seconds before the next batch after one that did nothing. Larger: what comes then waits longer.
Smaller: an idle lane takes more CPU time."""
DUE_LONG_HOLD: Final = 60.0
"""Seconds after which a record that `redrive-due` holds by its header is logged, and of one step of
holding it. Larger: a wrong header goes unnoticed for longer. Smaller: lines about short holds."""
FRAME_FIRST_ROWS: Final = 200
"""Rows of an Arrow batch while their size is not known. Larger: memory, if they are large. Smaller:
the first batch takes longer."""
FRAME_MOST_ROWS: Final = 2000
"""Rows of an Arrow batch, at most. Larger: a task commits less often. Smaller: more batches, each
with its own overhead."""
ARROW_BATCH_BYTES: Final = 16_000_000
"""Bytes of an Arrow batch, about. Larger: memory, as it is there on both sides, and several times
in Python's. Smaller: more batches."""
FRAME_READ_TIMEOUT: Final = 20_000
"""Milliseconds that a task waits for a broker that says nothing; Spark's default is two minutes.
Larger: an outage is noticed later. Smaller: a slow broker fails tasks."""
FRAME_LATENESS_KEPT: Final = 100_000
"""Rows of a range whose lateness is reported one by one, the last ones. Larger: larger reports.
Smaller: percentiles of large ranges are less exact."""
DUE_MOST_RECORDS: Final = 500_000
"""Records of a batch of `redrive-due`, unless `maxRecordsPerBatch` says otherwise. Larger: longer
batches after an outage. Smaller: more of them."""

# Kafka

BROKER_PATIENCE: Final = 30.0
"""Seconds that a trouble may last before it is an error. Larger: outages are reported late.
Smaller: a change of leaders is reported as an outage."""
BROKER_PAUSE: Final = 0.05
"""Seconds between two attempts meanwhile. Larger: they end later than the trouble. Smaller: more
questions to brokers in trouble."""
BROKER_LOOK_TIMEOUT: Final = 1.0
"""Seconds for a broker to say whether it is there. Larger: outages are noticed later. Smaller: a
slow one is taken for absent."""
TRANSACTION_TIMEOUT: Final = 60_000
"""Milliseconds after which a broker takes an open transaction back. Larger: readers wait longer
behind one whose owner died. Smaller: slow ones are taken back under their owner."""
TRANSACTION_CALL_SECONDS: Final = 30.0
"""Seconds for one call of a transactional producer. Larger: an outage is noticed later. Smaller:
slow coordinators fail transactions."""
TRANSACTION_OFFSETS_SECONDS: Final = 15.0
"""Seconds for the offsets of a transaction, which librdkafka would wait for much longer. Larger:
less time is left to commit. Smaller: slow coordinators fail transactions."""
TRANSACTION_SHARE: Final = 0.75
"""How much of its time-out a transaction uses. Larger: less time to abort before the broker does,
which fences the producer. Smaller: slow ones fail for nothing."""
TRANSACTION_LEAST_SECONDS: Final = 1.0
"""Seconds for the end of a transaction whose time is over. Larger: the broker may be first.
Smaller: one that was about to end fails."""
TRANSACTION_FLUSH: Final = 0.1
"""Seconds of one wait for its messages. Larger: a refused one is noticed later. Smaller: CPU
time."""
TRANSACTION_PARTS: Final = 16
"""Parts in which a batch that was refused is written again, to find the message that it was refused
for. Larger: more writes that are waited for. Smaller: more transactions that are taken back."""
TRANSACTION_ROUNDS: Final = 20
"""So many are taken back at most in order to find it. Larger: a broker that refuses everything is
reported later. Smaller: records may be buried for their neighbours."""
BURIED_AT_ONCE: Final = 16
"""Records buried in a row before a transaction commits them. Larger: their dead letters are
written more often. Smaller: more transactions."""
TRANSACTION_GROWTH: Final = 4
"""By how much transactions grow again after records were buried one by one. Larger: one that is
refused is found at a higher cost. Smaller: more transactions until they are as large as before."""
TRANSACTION_WRITES: Final = 20_000
"""Messages of one transaction. Larger: it may not end in its time. Smaller: more transactions, each
with its own commit."""
TRANSACTION_BYTES: Final = 16_000_000
"""Bytes of one transaction. Larger: it may not end in its time. Smaller: more transactions."""
TRANSACTION_QUICK: Final = 0.25
"""The share of its time below which the next transaction may be twice as large. Larger: the next
may be late. Smaller: they stay small after a slow one."""
READ_AT_ONCE: Final = 1000
"""Records taken from librdkafka in one call. Larger: memory, and longer steps. Smaller: more calls
per record."""
READ_SILENCE: Final = 1.0
"""Seconds without a record after which it is asked whether the topic is there at all. Larger: a
deleted topic is noticed later. Smaller: more questions to slow brokers."""
COMMITTED_SECONDS: Final = 2.0
"""Seconds for one attempt to fetch committed offsets. Larger: a coordinator that moved is asked
again later. Smaller: a slow one never answers in time."""
MEET_PATIENCE: Final = 1.0
"""Seconds for a client to learn where a topic's leaders are. Larger: a start takes longer without
brokers. Smaller: the first message or record waits for librdkafka."""
WAKE_PATIENCE: Final = 0.2
"""The same in the poll thread, which has little time. Larger: the worker polls late. Smaller:
resumed partitions wait for librdkafka."""
PUBLISH_POLL: Final = 0.1
"""Seconds of one wait for messages to be durable: news end it. Larger: nothing is gained. Smaller:
CPU time."""
TOPIC_ASK_PATIENCE: Final = 2.0
"""Seconds to ask whether a topic takes writes. Larger: refusals are reported later without brokers.
Smaller: a slow broker's answer is missed."""
QUEUE_FULL_POLL: Final = 0.1
"""Seconds of one wait while librdkafka's queue is full. Larger: nothing is gained, as news end it.
Smaller: CPU time."""
PERMISSION_SECONDS: Final = 5.0
"""Seconds to try a transactional id at the start. Larger: a start takes longer where it is refused
silently. Smaller: a slow coordinator counts as no."""
MISSING_PATIENCE: Final = 5.0
"""Seconds to ask which permission a refusal was for. Larger: the error is reported later. Smaller:
it does not name the permission."""
GROUP_SECONDS: Final = 5.0
"""Seconds to ask who is in the group. Larger: without a coordinator the next look is later.
Smaller: large groups are never seen."""
RENEWAL_SECONDS: Final = 30.0
"""Seconds to join the group once, before Spark commits for it; brokers wait three for more members.
Larger: a start without a coordinator fails later. Smaller: a busy one fails it."""

# The ledger and its relay

LOCK_TIMEOUT: Final = 5000
"""Milliseconds that a statement waits for a rival before it is tried again later. Larger: a
connection is held for longer. Smaller: more work is undone and done again."""
CONNECT_SECONDS: Final = 5
"""Seconds to connect. Larger: an outage is noticed later. Smaller: a busy server counts as
absent."""
END_BACKEND_MILLISECONDS: Final = 5000
"""Milliseconds for the server to end the transaction of a handler that hangs. Larger: the thread in
its place begins later. Smaller: a busy server may not have done so."""
EXPIRED_AT_ONCE: Final = 1000
"""Ids deleted in one transaction. Larger: others wait for their locks. Smaller: more
transactions."""
CLAIM_TRIES: Final = 3
"""How often ids are claimed that others claim and forget meanwhile. Larger: a unit holds its locks
for longer. Smaller: it is undone more often."""
BACKLOG_MOST: Final = 1_000_000
"""Rows counted for the backlog's metric. Larger: counting costs the database more. Smaller: a large
backlog is reported as this number."""
TAKE_OF_A_SHARD: Final = 2000
"""Rows of one shard taken at once. Larger: one busy shard goes before the others. Smaller: more
statements."""
TAKE_BYTES: Final = 16_000_000
"""Bytes of values taken at once, and one row more: they are in memory several times. Larger:
memory. Smaller: more statements."""
RELAY_LEASE_SECONDS: Final = 20.0
"""Seconds after which the share of a silent relay goes to others. Larger: its rows wait for longer.
Smaller: a slow one loses its share."""
RELAY_BATCH: Final = 20_000
"""Rows in one transaction. Larger: a crash repeats more. Smaller: more commits."""
RELAY_CHUNK: Final = 4000
"""Rows taken at once: the next are read while these are on their way. Larger: less goes on side by
side. Smaller: more statements."""
RELAY_PATIENCE: Final = 10.0
"""Seconds without an acknowledgement after which rows are taken back. Larger: an outage holds their
locks. Smaller: a slow broker gets them twice."""
RELAY_POLL: Final = 1.0
"""Seconds until the outbox is looked at without a notification. Larger: a lost one makes rows late.
Smaller: more queries of an idle relay."""
RELAY_NOTICE_SIGNALS: Final = 0.5
"""Seconds of one wait for notifications. Larger: a stop is noticed later. Smaller: CPU time."""
RELAY_BALANCE: Final = 1.0
"""Seconds between two looks at how many relays there are. Larger: new ones get their share later.
Smaller: more queries."""
RELAY_FIRST_PAUSE: Final = 0.1
"""Seconds after a trouble, doubled each time. Larger: rows are late after a short one. Smaller:
more attempts."""
RELAY_LONGEST_PAUSE: Final = 5.0
"""The longest of these pauses. Larger: rows are late after a long trouble. Smaller: more attempts
meanwhile."""
RELAY_PUBLISH_POLL: Final = 0.001
"""Seconds of one wait for acknowledgements. Larger: rows are deleted later. Smaller: CPU time."""
RELAY_PING: Final = 1.0
"""Seconds between two signs of life to the database while Kafka is waited for. Larger: a lost lease
is noticed later. Smaller: more queries."""
RELAY_PRODUCER_BATCH: Final = 1_000_000
"""Bytes of one batch to a broker. Larger: topics with small limits refuse it. Smaller: more
requests."""
RELAY_ADMISSION_PATIENCE: Final = 2.0
"""Seconds to ask what a topic takes. Larger: rows wait for longer without brokers. Smaller: a slow
broker's answer is missed."""
RELAY_SILENCE: Final = 30.0
"""Seconds without a turn after which `/live` fails. Larger: a relay that is stuck is restarted
later. Smaller: one that waits for Kafka is restarted for nothing."""
RELAY_METRICS_CONNECT_SECONDS: Final = 3
"""Seconds to connect for the metrics. Larger: a scrape takes longer in an outage. Smaller: a busy
server's backlog is missing."""
REFUSED_ROW_FIRST_WAIT: Final = 1.0
"""Seconds until a refused row is tried again, doubled each time. Larger: it is late when its topic
is well. Smaller: more attempts."""
REFUSED_ROW_LONGEST_WAIT: Final = 60.0
"""The longest of these waits. Larger: it is late when its topic is well. Smaller: more attempts
meanwhile."""
MOST_HELD_OF_A_TOPIC: Final = 500
"""Aggregates of one topic held one by one; with more, the topic is. Larger: longer queries.
Smaller: others of the topic wait with them."""

# Console

CONSOLE_LOOK_EVERY: Final = 2.0
"""Seconds between two looks at an app's offsets. Larger: the page is older. Smaller: more requests
to the brokers, for each app."""
CONSOLE_OLD_SECONDS: Final = 30.0
"""Seconds after which a page says that nothing newer was seen. Larger: what is shown may be old.
Smaller: it is said of a slow broker, too."""
CONSOLE_UNREAD_SECONDS: Final = 60.0
"""Seconds for which records wait and none is handled before the page says that nobody seems to read
them. Larger: a run that is gone is missed for longer. Smaller: it is said of long batches, too."""
CONSOLE_WARN_AFTER: Final = 7 * 86_400_000
"""Milliseconds for which a letter waits for a decision before the page warns of it, unless
`--warn-after` says otherwise. Larger: forgotten letters are seen later. Smaller: more warnings."""
CONSOLE_TOPICS_EVERY: Final = 30.0
"""Seconds between two looks at which topics there are. Larger: a new delay topic is seen later.
Smaller: all topics of the cluster are listed more often."""
CONSOLE_BROKER_EVERY: Final = 600.0
"""Seconds between two looks at a broker's settings. Larger: a change is seen later. Smaller: more
requests, and refusals where the console may not see them."""
CONSOLE_POINT_SECONDS: Final = 10
"""Seconds between two points of a chart. Larger: coarser charts. Smaller: memory."""
CONSOLE_POINTS: Final = 2160
"""Points of a chart: six hours. Larger: memory. Smaller: charts begin later."""
CONSOLE_ENDPOINT_SECONDS: Final = 1.0
"""Seconds in which a question to a run must be answered, all of it. Larger: a silent one delays the
page. Smaller: a busy one seems to be away."""
CONSOLE_ENDPOINT_BYTES: Final = 2_000_000
"""Bytes that are read of an answer. Larger: memory. Smaller: metrics are cut off."""
CONSOLE_SCAN_SECONDS: Final = 3.0
"""Seconds that one page may look for letters before it says how far it came. Larger: a slow page.
Smaller: more clicks."""
CONSOLE_LETTERS: Final = 50
"""Letters on one page. Larger: long pages. Smaller: more of them."""
CONSOLE_CODE_SECONDS: Final = 5.0
"""Seconds that a page waits for code of the app, such as a decoder. Larger: a page that seems to
hang. Smaller: what a slow decoder reads is shown as it was written."""
CONSOLE_CODE_THREADS: Final = 4
"""Calls of an app's code at once, for pages. Larger: more threads are lost to decoders that hang.
Smaller: after fewer of them nothing is decoded any more."""
CONSOLE_LETTER_PAGES: Final = 8
"""Pages of letters that are made at once. Larger: more threads wait for slow decoders. Smaller:
those who look at letters wait for each other."""
CONSOLE_ASKING: Final = 20
"""Other requests that ask brokers at once. Larger: more threads wait for brokers that are away.
Smaller: visitors wait for each other."""
CONSOLE_INDEX_STEP: Final = 20_000
"""Letters that are counted before the page hears of it. Larger: it moves in jumps. Smaller: more
asking."""
CONSOLE_CATCH_UP_SECONDS: Final = 2.0
"""Seconds that one page waits for somebody else who reads what was done about letters. Larger: slow
pages while a broker is slow. Smaller: pages may lack what was done a moment ago."""
CONSOLE_RECOUNT_EVERY: Final = 600.0
"""Seconds after which letters that retention has deleted are no longer counted. Larger: counts are
too high for longer. Smaller: all letters are read again more often."""
CONSOLE_VALUE: Final = 100_000
"""Characters of a value that a page shows. Larger: slow pages. Smaller: more is cut off."""
CONSOLE_BODY: Final = 2_000_000
"""Bytes of a request. Larger: memory that anybody can ask for. Smaller: values that cannot be
edited."""
CONSOLE_BODY_SECONDS: Final = 10.0
"""Seconds in which a request must have arrived. Larger: slow senders keep connections. Smaller:
slow networks are cut off."""
CONSOLE_CONNECTIONS: Final = 300
"""Connections at once. Larger: memory. Smaller: fewer viewers."""
CONSOLE_CONNECTIONS_EACH: Final = 100
"""Connections at once of one address, unless it is the proxy's. Larger: one visitor can take the
places of others. Smaller: fewer viewers behind one address."""
CONSOLE_LIVE: Final = 150
"""Viewers who are notified of changes. Larger: more to send. Smaller: others have to reload."""
CONSOLE_LIVE_EACH: Final = 60
"""Pages of one visitor that are notified of changes; fewer than connections of one address.
Larger: one visitor can take all places. Smaller: many who share a token and an address reload."""
CONSOLE_REQUESTS: Final = 20.0
"""Requests per second of one address, or of one user of the proxy, on average. Larger: one visitor
can keep others waiting. Smaller: a busy visitor is refused."""
CONSOLE_BURST: Final = 100
"""Requests that may come at once before that counts. Larger: as above. Smaller: a page with its
parts is refused."""
CONSOLE_LOGINS: Final = 10
"""Wrong tokens per minute of one address, after which further wrong ones are refused; right ones
are not. Larger: more guesses. Smaller: somebody who mistypes has to wait sooner."""
CONSOLE_JOB_SECONDS: Final = 60.0
"""Seconds that a page waits for Kafka to know of a job that was begun on it. Larger: a page that
seems to hang. Smaller: a slow cluster's jobs are paused before they have begun."""
CONSOLE_FATE_SECONDS: Final = 3600.0
"""Seconds after a replay for which its page asks what became of the copies, besides the delay that
they wait. Larger: topics are read for longer. Smaller: what is handled later stays unknown."""
CONSOLE_PARKED: Final = 200_000
"""Parked records of one delay topic that are counted for a page. Larger: more is read for whoever
looks. Smaller: of more records, only some are counted."""
CONSOLE_PARKED_EVERY: Final = 5.0
"""Seconds after which parked records are counted again, if somebody looks. Larger: older counts.
Smaller: they are read more often."""
CONSOLE_DIFF_LINES: Final = 200
"""Lines of a difference that a plan shows of one letter. Larger: long pages. Smaller: less of a
large change is seen."""
CONSOLE_RULES: Final = 200
"""Rules about parked records that the audit page shows, the newest. Larger: long pages. Smaller:
older ones are only in their topic."""
CONSOLE_REFUSALS: Final = 500
"""Refused requests that the audit page remembers. Larger: memory. Smaller: an attack hides the one
before it."""
