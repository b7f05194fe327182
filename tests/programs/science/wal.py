"""Two processes write one SQLite database with a write-ahead log; nothing is lost or torn."""

import multiprocessing
import sqlite3

ROWS = 300


def opened():
    return sqlite3.connect("wal.db", timeout=60, isolation_level=None)


def write(who):
    database = opened()
    for row in range(ROWS):
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO entries VALUES (?, ?)", (who, row))
        database.execute("UPDATE total SET rows = rows + 1")
        database.execute("COMMIT")


if __name__ == "__main__":
    first = opened()
    print(first.execute("PRAGMA journal_mode=WAL").fetchone())
    first.execute("CREATE TABLE entries (who, row)")
    first.execute("CREATE TABLE total (rows)")
    first.execute("INSERT INTO total VALUES (0)")
    writers = [multiprocessing.Process(target=write, args=(who,)) for who in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0, writer.exitcode
    print(first.execute("SELECT rows FROM total").fetchone())
    print(first.execute("SELECT who, count(*), sum(row) FROM entries GROUP BY who").fetchall())
    print(first.execute("PRAGMA integrity_check").fetchone())
