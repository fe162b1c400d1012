-- The index is made anew, with terms that begin with the block of the log that they are from. A search takes
-- the blocks from the newest on, and a word that is everywhere ends it early.
DROP TABLE search;

-- Which message has which term: an event's row has its `gseq`, a title's the session's key below zero. It
-- keeps neither text nor places in it, only the terms that the program made, separated by spaces. The lengths
-- in `prefix` are those of a block and of two or three characters of a word.
CREATE VIRTUAL TABLE search USING fts5 (
    terms, content = '', detail = 'none', columnsize = 0, tokenize = 'ascii', prefix = '6 7'
);

-- A term that is removed is gone from the file, not only marked.
INSERT INTO search (search, rank) VALUES ('secure-delete', 1);

-- Events between these two places are in `search`. Those before are added by and by, the newest first; 0: all are.
-- Those behind follow when nothing is written for a while.
UPDATE meta SET value = (SELECT coalesce(max(gseq) + 1, 0) FROM events) WHERE key = 'search_from';
INSERT INTO meta (key, value) SELECT 'search_to', coalesce(max(gseq), 0) FROM events;
