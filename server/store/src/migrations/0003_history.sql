-- What deleting, forking, taking in, rating and searching sessions need.

-- What people think of messages: beside the log, since it may change.
CREATE TABLE feedback (
    session_pk INTEGER NOT NULL REFERENCES sessions (pk) ON DELETE CASCADE,
    seq        INTEGER NOT NULL, -- of the message
    score      INTEGER NOT NULL CHECK (score IN (-1, 1)),
    PRIMARY KEY (session_pk, seq)
) STRICT, WITHOUT ROWID;

-- Sessions that are being taken in. Nothing here is seen until it is copied into the log in one
-- transaction; that also gives the events their `gseq` in the order of commits.
CREATE TABLE imports (
    pk         INTEGER PRIMARY KEY AUTOINCREMENT,
    dead       INTEGER NOT NULL DEFAULT 0, -- to be thrown away, bit by bit
    principal  TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    title      TEXT,
    workspace  BLOB    NOT NULL,
    created_at INTEGER NOT NULL,
    head_seq   INTEGER NOT NULL DEFAULT 0,
    state      TEXT    NOT NULL
) STRICT;

CREATE TABLE import_events (
    import_pk         INTEGER NOT NULL REFERENCES imports (pk) ON DELETE CASCADE,
    seq               INTEGER NOT NULL,
    at                INTEGER NOT NULL,
    turn_id           TEXT,
    kind              TEXT    NOT NULL,
    client_message_id TEXT,
    decided_at        INTEGER,
    decision          TEXT,
    body_version      INTEGER NOT NULL,
    body              TEXT    NOT NULL,
    PRIMARY KEY (import_pk, seq)
) STRICT;

-- Which message has which term: an event's row has its `gseq`, a title's the session's key below zero. It
-- keeps neither text nor places in it, only the terms that the program made, separated by spaces.
CREATE VIRTUAL TABLE search USING fts5 (
    terms, content = '', detail = 'none', columnsize = 0, tokenize = 'ascii', prefix = '2 3'
);

-- A term that is removed is gone from the file, not only marked.
INSERT INTO search (search, rank) VALUES ('secure-delete', 1);

-- Events from this place on are in `search`; those before are added by and by, the newest first. 0: all are.
INSERT INTO meta (key, value) SELECT 'search_from', coalesce(max(gseq) + 1, 0) FROM events;
