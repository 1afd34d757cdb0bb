"""Checks of SQL statements: that a text is a single SELECT, and which tables and functions it uses.

`check_select` is for the query of a `DatabaseConnector`, which its developer wrote and which runs as written.
`SelectChecker` is for what an agent wrote: what it may use is listed, and the statement that runs is generated from the
checked syntax tree.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from langchain_agentrag.errors import InvalidQueryError, MissingExtraError, UsageError

if TYPE_CHECKING:
    from sqlglot.dialects.dialect import Dialect

Node: TypeAlias = Any  # of a sqlglot syntax tree; their base class has another name in each version
MAX_SQL_CHARACTERS: Final = 50_000
"""Longest statement of an agent, in characters."""

_SPECIAL_SYNTAX: Final = frozenset((
    "CAST", "TRY_CAST", "CONVERT", "EXTRACT", "TRIM", "SUBSTRING", "POSITION", "OVERLAY", "GROUP_CONCAT", "MATCH",
    "JSON_OBJECT", "JSON_OBJECTAGG", "JSON_TABLE", "NORMALIZE",
))  # fmt: skip
"""Functions whose arguments have keywords between them; all other calls are parsed without being interpreted."""

_CATALOG_VIEWS: Final = frozenset(("tables", "columns", "schemata", "key_column_usage", "table_constraints"))
"""Views of `information_schema` that describe tables."""

_SYSTEM_SCHEMAS: Final = frozenset((
    "information_schema", "pg_catalog", "pg_toast", "mysql", "performance_schema", "sys",
))  # fmt: skip
_CASE_SENSITIVE: Final = frozenset(("postgresql", "mysql", "mariadb"))

_CTE_NAME: Final = "agentrag_cte_{}"


@dataclass(frozen=True, slots=True)
class CheckedSelect:
    """A checked SELECT.

    Attributes:
        sql: The statement that runs.
        qualified: Names written behind a table or another expression, `t.name` and `(x).name`. PostgreSQL calls
            a function of that name where there is no such column or field.
    """

    sql: str
    qualified: frozenset[str] = frozenset()


class SelectChecker:
    """Checks SELECT statements against the tables and functions that are allowed, and generates what may run.

    A name in FROM means a common table expression only where that is in scope, and is then renamed, so that nothing
    depends on how a database resolves two equal names. Every other name is a table and must be allowed. Functions must
    be listed in `allowed_sql.toml`, or by the caller.

    Args:
        dialect: SQLAlchemy's name of the dialect: "sqlite", "postgresql", "mysql", "mariadb", "duckdb".
        tables: Tables that may be read: "name" in the default schema, or "schema.name"; None for all but the system
            tables of the database.
        functions: Functions allowed besides the listed ones.
        file_functions: Whether functions that read files are allowed (DuckDB).
    """

    def __init__(
        self,
        dialect: str,
        *,
        tables: Collection[str] | None = None,
        functions: Iterable[str] = (),
        file_functions: bool = False,
    ) -> None:
        self._dialect_name = dialect
        self.functions = _listed_functions(dialect) | {name.casefold() for name in functions}
        if file_functions:
            self.functions |= _allowed_sql()["duckdb_files"]
        self.tables = None if tables is None else frozenset(self._fold(name) for name in tables)

    def is_allowed(self, name: str, schema: str | None = None, default_schema: str | None = None) -> bool:
        """Whether a table may be read.

        Args:
            name: Its name.
            schema: Its schema as written, None without one.
            default_schema: Schema of names that are written without one.
        """
        name, schema = self._fold(name), None if schema is None else self._fold(schema)
        is_default = schema is None or (default_schema is not None and schema == self._fold(default_schema))
        if self.tables is not None:
            qualified = f"{self._fold(default_schema or '')}.{name}" if schema is None else f"{schema}.{name}"
            return (is_default and name in self.tables) or qualified in self.tables
        if schema is None:
            return not (self._dialect_name == "postgresql" and name.startswith("pg_"))
        if schema == "information_schema":
            return name.casefold() in _CATALOG_VIEWS
        return schema.casefold() not in _SYSTEM_SCHEMAS and not schema.startswith("pg_")

    def check(
        self, sql: str, *, max_rows: int, default_schema: str | None = None, catalog: str | None = None
    ) -> CheckedSelect:
        """Check a statement, and generate what runs from its syntax tree, without comments.

        Args:
            sql: What an agent wrote.
            max_rows: Largest LIMIT.
            default_schema: Schema of names that are written without one.
            catalog: Name of the database itself, which may be written in front of a schema or of a table.

        Raises:
            InvalidQueryError: it is not a single SELECT, or uses a table, a function or syntax that is not allowed.
            MissingExtraError: sqlglot is not installed.
        """
        _check_text(sql)
        try:
            tree = self._parse(sql)
            self._check_nodes(tree)
            self._check_tables(tree, default_schema, catalog)
            _limit_rows(tree, max_rows)
            return CheckedSelect(_generate(tree, sqlglot_dialect(self._dialect_name)), self._qualified_names(tree))
        except RecursionError:
            raise InvalidQueryError("The statement is nested too deeply: simplify it. Nothing was run.") from None

    def _parse(self, sql: str) -> Node:
        try:
            import sqlglot
            from sqlglot import exp
        except ImportError as error:
            raise MissingExtraError("SQL questions", "sql") from error

        dialect = sqlglot.Dialect.get_or_raise(sqlglot_dialect(self._dialect_name))
        try:
            parsed = _plain_parser(type(dialect))(dialect=dialect).parse(dialect.tokenize(sql), sql)
        except (sqlglot.errors.SqlglotError, ValueError, AttributeError, IndexError, TypeError) as error:
            # the parser itself fails for some texts that are no SQL
            message = str(error).splitlines()[0] if isinstance(error, sqlglot.errors.SqlglotError) else "wrong syntax"
            raise InvalidQueryError(f"This is no SQL that can be parsed: {message[:300]}") from error
        statements = [tree for tree in parsed if tree is not None]
        if len(statements) != 1 or not isinstance(statements[0], exp.Query):
            raise InvalidQueryError("Only a single SELECT can be asked here: nothing was run.")
        return statements[0]

    def _check_nodes(self, tree: Node) -> None:
        from sqlglot import exp

        syntax = _allowed_sql()["syntax"]
        for node in list(tree.walk()):
            kind = type(node).__name__
            if isinstance(node, exp.Hint):
                node.pop()  # hints can lift limits
            elif isinstance(node, exp.Anonymous):
                self._check_function(node)
            elif isinstance(node, exp.Func) or kind == "Operator":
                if kind not in syntax and not isinstance(node, exp.Connector):
                    self._refuse_function(node.sql_name() if isinstance(node, exp.Func) else "OPERATOR")
            elif not (kind in syntax or isinstance(node, _operators()) or _is_inside_hint(node)):
                raise InvalidQueryError(
                    f"{kind} is not allowed here: a SELECT can read tables and compute values. Nothing was run."
                )
            if isinstance(node, exp.DataType):
                self._check_type(node)
            if isinstance(node, exp.In) and node.args.get("field") is not None and self._dialect_name == "sqlite":
                raise InvalidQueryError("x IN table is not allowed here: write x IN (SELECT column FROM table).")

    def _check_type(self, node: Node) -> None:
        """Refuse types of PostgreSQL that are not built in: row types and regclass tell about closed tables."""
        kind = node.args.get("kind")
        if self._dialect_name != "postgresql" or kind is None or isinstance(kind, str):
            return
        name = kind.expression.name if hasattr(kind, "expression") and kind.expression else kind.name
        if name.lower() not in _allowed_sql()["postgresql_types"] | self.functions:
            raise InvalidQueryError(
                f"The type {name} is not on the list of allowed types: compare with a text, or allow it with "
                "ReadOnlyDatabase(functions=[…]). Nothing was run."
            )

    def _qualified_names(self, tree: Node) -> frozenset[str]:
        from sqlglot import exp

        columns = (node.this for node in tree.find_all(exp.Column) if node.args.get("table"))
        fields = (node.expression for node in tree.find_all(exp.Dot))
        names = itertools.chain(columns, fields)
        return frozenset(self._stored_name(name) for name in names if isinstance(name, exp.Identifier))

    def _check_function(self, node: Node) -> None:
        from sqlglot import exp

        if _is_inside_hint(node):
            return
        written = node.this if isinstance(node.this, str) else node.this.name
        is_quoted = isinstance(node.this, exp.Identifier) and node.this.args.get("quoted")
        name = written if is_quoted and self._dialect_name == "postgresql" else written.casefold()
        parent = node.parent
        if isinstance(parent, exp.Dot) and parent.expression is node and self._dialect_name != "duckdb":
            schema = parent.this.sql(dialect=sqlglot_dialect(self._dialect_name)).casefold()
            if not (schema == "pg_catalog" and self._dialect_name == "postgresql"):
                name = f"{schema}.{name}"
        if name not in self.functions:
            self._refuse_function(name)

    def _refuse_function(self, name: str) -> None:
        raise InvalidQueryError(
            f"The function {name}() is not on the list of allowed functions: compute the value with another one, or "
            "allow it with ReadOnlyDatabase(functions=[…]). Nothing was run."
        )

    def _check_tables(self, tree: Node, default_schema: str | None, catalog: str | None) -> None:
        from sqlglot import exp

        ctes = _CommonTables(self._fold)
        references = []
        for table in tree.find_all(exp.Table):
            if table.arg_key == "indexed" or not isinstance(table.this, exp.Identifier):
                continue  # the name of an index; a call, which is checked as a function
            cte = None if table.args.get("db") else ctes.resolve(table)
            if cte is not None:
                references.append((table, cte))
                continue
            *parts, name = [self._stored_name(part) for part in table.parts]
            names_catalog = len(parts) == 2 or (len(parts) == 1 and self._dialect_name == "duckdb")  # noqa: PLR2004
            if catalog is not None and names_catalog and self._fold(parts[0]) == self._fold(catalog):
                parts.pop(0)
            if len(parts) > 1 or not self.is_allowed(name, parts[0] if parts else None, default_schema):
                written = ".".join([*parts, name])
                raise InvalidQueryError(
                    f"The table {written!r} is not open to questions{self._allowed_tables()}. Nothing was run."
                )
        ctes.rename(references)

    def _allowed_tables(self) -> str:
        return f": read {', '.join(sorted(self.tables)[:20]) or 'none'}" if self.tables is not None else ""

    def _stored_name(self, identifier: Node) -> str:
        """Return the name a database stores for an identifier: PostgreSQL folds what is not quoted to lower case."""
        if self._dialect_name == "postgresql" and not identifier.args.get("quoted"):
            return str(identifier.name).lower()
        return str(identifier.name)

    def _fold(self, name: str) -> str:
        return name if self._dialect_name in _CASE_SENSITIVE else name.casefold()


class _CommonTables:
    """Common table expressions of a statement, and which one a name in FROM means.

    In scope are those of the enclosing queries, and of those in the same WITH only the ones before it, and itself with
    RECURSIVE. Databases differ beyond that.
    """

    def __init__(self, fold: Any) -> None:  # noqa: ANN401  a function of a name
        self._fold = fold
        self._positions: dict[int, dict[str, int]] = {}

    def resolve(self, table: Node) -> Node | None:
        """Return the common table expression that a table without a schema refers to, or None."""
        from sqlglot import exp

        name = self._name(table.this)
        node: Any = table
        limit = 0  # number of expressions in scope of the WITH that this table is inside
        inside: Node = None
        while (parent := node.parent) is not None:
            if isinstance(parent, exp.With) and isinstance(node, exp.CTE):
                inside = parent
                limit = (node.index or 0) + (1 if parent.args.get("recursive") else 0)
            clause = parent.args.get("with_") or parent.args.get("with")
            if isinstance(clause, exp.With):
                position = self._position(clause, name)
                in_scope = limit if clause is inside else len(clause.expressions)
                if position is not None and position < in_scope:
                    return clause.expressions[position]
            node = parent
        return None

    def rename(self, references: Sequence[tuple[Node, Node]]) -> None:
        """Give each common table expression a name of its own, and its references their old name as alias."""
        from sqlglot import exp

        names: dict[int, str] = {}
        for table, cte in references:
            name = names.setdefault(id(cte), _CTE_NAME.format(len(names) + 1))
            if not table.alias:
                table.set("alias", exp.TableAlias(this=table.this.copy(), columns=_columns(table)))
            table.set("this", exp.to_identifier(name))
        for cte in {id(cte): cte for _, cte in references}.values():
            cte.args["alias"].set("this", exp.to_identifier(names[id(cte)]))

    def _position(self, clause: Node, name: str) -> int | None:
        positions = self._positions.get(id(clause))
        if positions is None:
            positions = {}
            for position, cte in enumerate(clause.expressions):
                positions.setdefault(self._name(cte.args["alias"].this), position)
            self._positions[id(clause)] = positions
        return positions.get(name)

    def _name(self, identifier: Node) -> str:
        return str(self._fold(identifier.name if identifier.args.get("quoted") else identifier.name.lower()))


def _limit_rows(tree: Node, max_rows: int) -> None:
    """Set the LIMIT of a query, unless it has a smaller one."""
    from sqlglot import exp

    limit = tree.args.get("limit")
    value = limit.expression if isinstance(limit, exp.Limit) else None
    is_larger = isinstance(value, exp.Literal) and value.name.isdecimal() and int(value.name[:18]) > max_rows
    if limit is None or is_larger:
        tree.set("limit", exp.Limit(expression=exp.Literal.number(max_rows)))


def _columns(table: Node) -> Node | None:
    alias = table.args.get("alias")
    return alias.args.get("columns") if alias is not None else None


def _generate(tree: Node, dialect_name: str) -> str:
    import sqlglot

    dialect = sqlglot.Dialect.get_or_raise(dialect_name)
    generator = _plain_generator(type(dialect))(dialect=dialect, comments=False, normalize_functions=False)
    return str(generator.generate(tree, copy=False))


@cache
def _plain_generator(dialect: type[Dialect]) -> Any:  # noqa: ANN401  a class of generators
    """Return a generator that writes REGEXP as it was written: MariaDB has no function REGEXP_LIKE."""
    from sqlglot import exp

    base: Any = dialect.generator_class
    if dialect.__name__ != "MySQL":
        return base
    regexp = {exp.RegexpLike: lambda self, node: self.binary(node, "REGEXP")}
    return type(base)("PlainMySQLGenerator", (base,), {"TRANSFORMS": base.TRANSFORMS | regexp})


@cache
def _operators() -> tuple[Any, ...]:
    from sqlglot import exp

    return (exp.Binary, exp.Unary, exp.Predicate, exp.JSONPathPart)


def _is_inside_hint(node: Node) -> bool:
    from sqlglot import exp

    return node.find_ancestor(exp.Hint) is not None


def _check_text(sql: str) -> None:
    if not isinstance(sql, str):
        raise InvalidQueryError(f"A statement is text, got {type(sql).__name__}: nothing was run.")
    if len(sql) > MAX_SQL_CHARACTERS:
        raise InvalidQueryError(
            f"The statement has {len(sql):,} characters; at most {MAX_SQL_CHARACTERS:,} are allowed. Nothing was run."
        )
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise InvalidQueryError(
            f"The statement has half a character (a surrogate) at position {error.start}: write valid Unicode. "
            "Nothing was run."
        ) from None
    if "\0" in sql:
        raise InvalidQueryError("The statement has a NUL character: remove it. Nothing was run.")


@cache
def _allowed_sql() -> dict[str, frozenset[str]]:
    text = (files("langchain_agentrag") / "connectors" / "sql" / "allowed_sql.toml").read_text("utf-8")
    return {name: frozenset(words.split()) for name, words in tomllib.loads(text).items()}


def _listed_functions(dialect: str) -> frozenset[str]:
    lists = _allowed_sql()
    return lists["common"] | lists.get("mysql" if dialect == "mariadb" else dialect, frozenset())


@cache
def _plain_parser(dialect: type[Dialect]) -> Any:  # noqa: ANN401  a class of parsers
    """Return a parser that keeps the name of every called function as it is written.

    sqlglot's own parsers turn known functions into nodes of their own, under other names.
    """
    base: Any = dialect.parser_class
    special = {name: parse for name, parse in base.FUNCTION_PARSERS.items() if name in _SPECIAL_SYNTAX}
    return type(base)(f"Plain{base.__name__}", (base,), {"FUNCTIONS": {}, "FUNCTION_PARSERS": special})


def check_select(sql: str, dialect: str) -> str:
    """Check that a statement is a single SELECT, before any database receives it.

    The read-only transaction alone is not enough: MariaDB ends it for a DROP TABLE, DuckDB copies to files within it,
    and a second statement behind a semicolon may run outside it. Only the tokens are checked, so that a query may use
    all of its database's syntax.

    Returns:
        The first table it reads, "query" when there is none.

    Raises:
        UsageError: it is not a single SELECT.
        MissingExtraError: sqlglot is not installed.
    """
    try:
        import sqlglot
    except ImportError as error:
        raise MissingExtraError("SQL queries", "sql") from error

    kinds = sqlglot.TokenType
    try:
        tokens = sqlglot.tokenize(sql, read=sqlglot_dialect(dialect))
    except sqlglot.errors.SqlglotError as error:
        message = str(error).splitlines()[0]
        raise UsageError(f"The query cannot be parsed: {message}. Correct the query; nothing was read.") from error
    while tokens and tokens[-1].token_type is kinds.SEMICOLON:
        tokens.pop()
    types = [token.token_type for token in tokens]
    first_types = {kinds.SELECT, kinds.WITH, kinds.VALUES, kinds.FROM, kinds.TABLE, kinds.L_PAREN}
    if not types or types[0] not in first_types or kinds.SEMICOLON in types or kinds.INTO in types:
        raise UsageError(
            f"A source is read with a single SELECT, which {' '.join(sql.split())[:80]!r} is not: pass one "
            "without INTO and without a second statement. Nothing was read."
        )
    return _first_table([(token.token_type.name, token.text) for token in tokens])


def _first_table(tokens: Sequence[tuple[str, str]]) -> str:
    """Return the first name behind the FROM of a SELECT, not of EXTRACT(year FROM day) or IS DISTINCT FROM."""
    in_query = [True]  # for each open parenthesis whether it contains a query
    for position, (kind, _) in enumerate(tokens):
        following = tokens[position + 1 : position + 8]  # four names with dots between them
        if kind == "L_PAREN":
            in_query.append(bool(following) and following[0][0] in {"SELECT", "WITH", "FROM", "L_PAREN"})
        elif kind == "R_PAREN" and len(in_query) > 1:
            in_query.pop()
        elif kind == "FROM" and in_query[-1] and tokens[max(position - 1, 0)][0] != "DISTINCT":
            dots = list(itertools.takewhile(lambda token: token[0] == "DOT", following[1::2]))
            parts = [text for _, text in following[: 2 * len(dots) + 1 : 2]]
            if parts and following[0][0] != "L_PAREN":
                return ".".join(parts)
    return "query"


def sqlglot_dialect(name: str) -> str:
    """Return sqlglot's name of a SQLAlchemy dialect."""
    return {"postgresql": "postgres", "mssql": "tsql", "mariadb": "mysql"}.get(name, name)
