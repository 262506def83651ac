"""The migrations of memories: after the first they belong to end users and are found by their words.

1. A memory has a `number`, which orders memories by age, and `words`, a JSON list. NULL: they are not indexed yet.
2. Triggers update the index `memory_words` and the counts, and delete an owner with its last memory.
3. After the second, triggers count the changes of memories. Memories that were read stay good while other rows of the
   store change, whichever process changes them.
"""

from collections.abc import Sequence

MEMORIES_OF_USERS: Sequence[str] = (
    # Memories belong to end users; of callers that named none, to their keys. Their words are read at the start.
    "ALTER TABLE memories RENAME TO memories_of_callers",
    """CREATE TABLE memory_owners (
        id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, owner TEXT NOT NULL, memories INTEGER NOT NULL DEFAULT 0,
        UNIQUE (tenant, owner))""",
    """CREATE TABLE memories (
        number INTEGER PRIMARY KEY, owner_id INTEGER NOT NULL, conversation TEXT NOT NULL, id TEXT NOT NULL,
        text TEXT NOT NULL, created_s REAL NOT NULL, words TEXT,
        UNIQUE (id, owner_id), UNIQUE (owner_id, conversation, text))""",
    "CREATE INDEX memories_by_owner ON memories (owner_id)",
    "CREATE INDEX memories_by_conversation ON memories (owner_id, conversation)",
    "CREATE INDEX memories_without_words ON memories (number) WHERE words IS NULL",
    """CREATE TABLE memory_words (
        owner_id INTEGER NOT NULL, conversation TEXT NOT NULL, word TEXT NOT NULL, number INTEGER NOT NULL,
        PRIMARY KEY (owner_id, conversation, word, number)) WITHOUT ROWID""",
    """CREATE TABLE memory_word_counts (
        owner_id INTEGER NOT NULL, conversation TEXT NOT NULL, word TEXT NOT NULL, memories INTEGER NOT NULL,
        PRIMARY KEY (owner_id, conversation, word)) WITHOUT ROWID""",
    """CREATE TRIGGER memories_are_added AFTER INSERT ON memories BEGIN
        UPDATE memory_owners SET memories = memories + 1 WHERE id = NEW.owner_id;
        INSERT INTO memory_words SELECT NEW.owner_id, NEW.conversation, value, NEW.number
            FROM json_each(coalesce(NEW.words, '[]')); END""",
    """CREATE TRIGGER memories_are_read AFTER UPDATE OF words ON memories BEGIN
        DELETE FROM memory_words WHERE owner_id = OLD.owner_id AND conversation = OLD.conversation
            AND number = OLD.number AND word IN (SELECT value FROM json_each(coalesce(OLD.words, '[]')));
        INSERT INTO memory_words SELECT NEW.owner_id, NEW.conversation, value, NEW.number
            FROM json_each(coalesce(NEW.words, '[]')); END""",
    """CREATE TRIGGER memories_are_deleted AFTER DELETE ON memories BEGIN
        DELETE FROM memory_words WHERE owner_id = OLD.owner_id AND conversation = OLD.conversation
            AND number = OLD.number AND word IN (SELECT value FROM json_each(coalesce(OLD.words, '[]')));
        UPDATE memory_owners SET memories = memories - 1 WHERE id = OLD.owner_id;
        DELETE FROM memory_owners WHERE id = OLD.owner_id AND memories = 0; END""",
    """CREATE TRIGGER memory_words_are_added AFTER INSERT ON memory_words BEGIN
        INSERT INTO memory_word_counts VALUES (NEW.owner_id, NEW.conversation, NEW.word, 1)
            ON CONFLICT DO UPDATE SET memories = memories + 1; END""",
    """CREATE TRIGGER memory_words_are_deleted AFTER DELETE ON memory_words BEGIN
        UPDATE memory_word_counts SET memories = memories - 1
            WHERE owner_id = OLD.owner_id AND conversation = OLD.conversation AND word = OLD.word;
        DELETE FROM memory_word_counts WHERE owner_id = OLD.owner_id AND conversation = OLD.conversation
            AND word = OLD.word AND memories = 0; END""",
    """INSERT INTO memory_owners (tenant, owner)
        SELECT DISTINCT tenant, 'key:' || caller FROM memories_of_callers""",
    """INSERT OR IGNORE INTO memories (owner_id, conversation, id, text, created_s)
        SELECT owners.id, coalesce(old.conversation, ''), old.id, old.text, old.created_s
        FROM memories_of_callers AS old JOIN memory_owners AS owners
        ON owners.tenant = old.tenant AND owners.owner = 'key:' || old.caller
        ORDER BY old.created_s, old.rowid""",
    "DROP TABLE memories_of_callers",
)

#: The triggers are per row: SQLite has no others.
COUNTED_CHANGES: Sequence[str] = (
    "CREATE TABLE memory_changes (number INTEGER NOT NULL)",  # one row
    "INSERT INTO memory_changes VALUES (0)",
    """CREATE TRIGGER memory_additions_are_counted AFTER INSERT ON memories BEGIN
        UPDATE memory_changes SET number = number + 1; END""",
    """CREATE TRIGGER memory_updates_are_counted AFTER UPDATE ON memories BEGIN
        UPDATE memory_changes SET number = number + 1; END""",
    """CREATE TRIGGER memory_deletions_are_counted AFTER DELETE ON memories BEGIN
        UPDATE memory_changes SET number = number + 1; END""",
)
