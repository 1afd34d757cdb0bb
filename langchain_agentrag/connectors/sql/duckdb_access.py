"""What a query may do in DuckDB: no files outside named folders, no network, no extensions, no settings."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from langchain_agentrag.connectors.sql.results import QueryLimits, QueryRefusedError, QueryResult, read_result

_SETTINGS: Final = {
    "python_enable_replacements": "false",  # a name in FROM could mean a variable of this program
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "enable_external_access": "false",
    "lock_configuration": "true",
}


def select_from_duckdb(connection: Any, sql: str, folders: Sequence[str], limits: QueryLimits) -> QueryResult:  # noqa: ANN401
    """Run a checked SELECT in a read-only transaction, after closing the database to everything outside.

    The settings hold for the whole database instance of this process and cannot be undone.

    Args:
        connection: A connection of the module `duckdb`.
        sql: The statement.
        folders: Folders whose files may be read.
        limits: Limits of rows and size; the caller interrupts the connection when the time is over.

    Raises:
        TimeoutError: the connection was interrupted.
        MemoryError: the query needs more memory than DuckDB may use.
        QueryRefusedError: DuckDB refuses the statement.
    """
    import duckdb

    close_duckdb(connection, folders)
    connection.execute("BEGIN TRANSACTION READ ONLY")
    try:
        cursor = connection.execute(sql)
        return read_result(cursor.fetchmany, [column[0] for column in cursor.description or ()], limits)
    except duckdb.InterruptException as error:
        raise TimeoutError from error
    except duckdb.OutOfMemoryException as error:
        raise MemoryError from error
    except duckdb.Error as error:
        raise QueryRefusedError(str(error)) from error
    finally:
        with suppress(Exception):  # an interrupted statement has ended the transaction
            connection.execute("ROLLBACK")


def close_duckdb(connection: Any, folders: Sequence[str]) -> None:  # noqa: ANN401
    """Turn off external access and extensions, and lock the settings, unless this has been done."""
    names = ("lock_configuration", "enable_external_access")
    values = ", ".join(f"current_setting({name!r})" for name in names)
    locked, external = connection.execute(f"SELECT {values}").fetchone()
    if locked and not external:
        return
    if folders:
        quoted = ", ".join("'{}'".format(folder.replace("'", "''")) for folder in folders)
        connection.execute(f"SET allowed_directories = [{quoted}]")
    for name, value in _SETTINGS.items():
        connection.execute(f"SET {name} = {value}")
