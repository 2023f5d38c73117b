-- What was handled: a record whose id is here is a duplicate, or one that was parked.
create table inbox (
    app text not null,
    id text not null,
    state text not null check (state in ('done', 'parked')),
    attempt integer not null,
    fingerprint bytea,
    source text not null,
    at timestamptz not null default now(),
    primary key (app, id)
);
create index inbox_at on inbox (at);

-- What shall be published. Rows are inserted, read and deleted, never updated; Debezium's
-- EventRouter reads them as they are. Within one aggregate (topic and key), the order of `number`
-- is the order of commits: whoever inserts holds the aggregate's lock.
create table outbox (
    number bigint generated always as identity,
    app text not null,
    shard smallint not null,
    id text not null,
    aggregatetype text not null,
    aggregateid text,
    type text not null default 'record',
    topic text not null,
    key bytea,
    partition integer,
    payload bytea,
    headers json,
    created timestamptz not null default clock_timestamp(),
    primary key (app, shard, number),
    constraint outbox_id unique (app, id)
);
comment on column outbox.shard is 'which share of the relays'' work it is; all of one aggregate have the same';
comment on column outbox.headers is 'the sender''s headers: [[name, value in base64 or null], ...]';

-- The ids that senders chose, remembered when their rows are long published and deleted.
create table sent (
    app text not null,
    id text not null,
    at timestamptz not null default now(),
    constraint sent_id primary key (app, id)
);
create index sent_at on sent (at);

-- Headers that have a column of their own in the outbox, for tools that read the table.
create table header_column (
    header text primary key,
    name text not null unique
);
