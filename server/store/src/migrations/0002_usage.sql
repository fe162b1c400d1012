-- What model calls used, by day. No conversation content: an erased session's rows stay without its key, so that
-- a day's sums stay true.
CREATE TABLE usage (
    day            INTEGER NOT NULL, -- days since the epoch, UTC
    session_pk     INTEGER REFERENCES sessions (pk) ON DELETE SET NULL,
    provider       TEXT    NOT NULL,
    model          TEXT    NOT NULL,
    steps          INTEGER NOT NULL,
    input          INTEGER NOT NULL,
    cached_input   INTEGER NOT NULL,
    output         INTEGER NOT NULL,
    cost_nanos     INTEGER NOT NULL, -- billionths of a US dollar
    unpriced_steps INTEGER NOT NULL,
    UNIQUE (day, session_pk, provider, model)
) STRICT;

CREATE INDEX usage_by_session ON usage (session_pk) WHERE session_pk IS NOT NULL;
