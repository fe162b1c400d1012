-- The first schema. Times are microseconds since the epoch. A released migration is never edited.

-- Facts about the store itself: `epoch` names this store and changes when it is made anew.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Keys are never used twice (AUTOINCREMENT), since collections of documents are named by them.
CREATE TABLE sessions (
    pk         INTEGER PRIMARY KEY AUTOINCREMENT,
    principal  TEXT    NOT NULL DEFAULT 'local',
    session_id TEXT    NOT NULL,
    title      TEXT,
    workspace  BLOB    NOT NULL, -- a path need not be UTF-8
    epoch      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    head_seq   INTEGER NOT NULL DEFAULT 0,
    UNIQUE (principal, session_id)
) STRICT;

CREATE INDEX sessions_by_update ON sessions (principal, updated_at, pk);

-- What holds for a session now. Apart from its row, which every append rewrites: prompts make this long.
CREATE TABLE session_states (
    session_pk     INTEGER PRIMARY KEY REFERENCES sessions (pk) ON DELETE CASCADE,
    has_open_turns INTEGER NOT NULL,
    version        INTEGER NOT NULL,
    body           TEXT    NOT NULL
) STRICT;

CREATE INDEX session_states_open ON session_states (session_pk) WHERE has_open_turns;

-- The log. `gseq` and the one of documents come from one counter. The body stands last, so that the
-- columns before it are read without its overflow pages.
CREATE TABLE events (
    gseq              INTEGER PRIMARY KEY,
    session_pk        INTEGER NOT NULL REFERENCES sessions (pk) ON DELETE CASCADE,
    seq               INTEGER NOT NULL,
    at                INTEGER NOT NULL,
    turn_id           TEXT,
    kind              TEXT    NOT NULL,
    client_message_id TEXT,    -- of a user's message
    decided_at        INTEGER, -- of an audit record
    decision          TEXT,    -- of an audit record
    body_version      INTEGER NOT NULL,
    body              TEXT    NOT NULL
) STRICT;

CREATE UNIQUE INDEX events_by_seq ON events (session_pk, seq);

CREATE UNIQUE INDEX events_by_client_message ON events (session_pk, client_message_id)
    WHERE client_message_id IS NOT NULL;

-- Holds audit records only, so other events don't pay for it.
CREATE INDEX events_audited ON events (gseq, session_pk, decided_at, decision) WHERE decided_at IS NOT NULL;

-- A removed document keeps its row without content, so that indexes elsewhere learn of the removal.
CREATE TABLE documents (
    gseq           INTEGER PRIMARY KEY, -- of its last change; the order in which living ones were added
    collection     TEXT    NOT NULL,
    document_id    TEXT    NOT NULL,
    content_length INTEGER, -- in characters
    preview        TEXT,
    metadata       TEXT,
    content        TEXT,
    UNIQUE (collection, document_id)
) STRICT;

CREATE INDEX documents_living ON documents (collection, gseq) WHERE content IS NOT NULL;
