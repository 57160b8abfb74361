"""Write with Spark's own writers: to any of its data sources, and to tables of its catalogs.

Delivery is at least once: rows are published when a tick is written, and a repeated tick publishes its
rows again.

Rows are inserted into a table by column name. The names and types have to be those of the result, because
Spark would insert by position and convert values (3.7 becomes 3 in an integer column).
"""

from __future__ import annotations

from typing import Any

from watersmeet.errors import EngineError, near_names, raise_all
from watersmeet.sinks.base import (
    Frame,
    RowPrinter,
    Schema,
    Session,
    Sink,
    check_unique_names,
    columns_of,
)
from watersmeet.sinks.part_mark import Identity
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.options.spark import format_of, own_options, sink_problems, table_of


class SparkSink(Sink):
    """See the module. Options: ``format``, and those of that data source; or ``table``."""

    idempotent = False
    tells_rows = False

    def __init__(self, spec: SinkSpec, console: RowPrinter | None = None) -> None:
        raise_all(list(sink_problems(spec)))
        self._spec = spec
        self._format, self._table = format_of(spec.options), table_of(spec.options)
        self._options = own_options(spec.options)
        self._session: Session = None

    def use(self, session: Session) -> None:
        """See `NeedsSession`."""
        self._session = session

    def prepare(self, schema: Schema, owner: str | None = None) -> None:
        check_unique_names(columns_of(schema), self._spec)
        if self._table:
            self._in_order(schema)
        else:
            self._check_format()

    def write(self, frame: Frame, insert: str, tick: int, attempt: str) -> None:
        if self._table:
            rows = frame.select(*(f"`{name.replace('`', '``')}`" for name in self._in_order(frame.schema)))
            rows.write.options(**self._options).insertInto(self._table)
        else:
            frame.write.format(self._format).options(**self._options).mode("append").save()

    def staged_rows(self, insert: str, tick: int, attempt: str) -> int:
        return 0  # Spark does not tell

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        return False

    def discard(self, attempt: str) -> None:
        """Do nothing: published rows cannot be withdrawn."""

    def _check_format(self) -> None:
        """Check that the session has the data source.

        Raises:
            EngineError: the session has no such data source.
        """
        java: Any = self._session._jvm.org.apache.spark.sql.execution.datasources.DataSource
        state: Any = self._session._jsparkSession.sessionState()
        try:
            if not state.dataSourceManager().dataSourceExists(self._format):  # of the user's, in Python
                java.lookupDataSource(self._format, state.conf())
        except Exception as error:  # of Java's, which has no class here
            raise EngineError(
                f'sink "{self._spec.name}": Spark has no data source "{self._format}"'
                f" ({' '.join(str(error).split())[:300]})",
                code="not-written",
                hint="check the name, and add its jar: --jars DIR",
            ) from None

    def _in_order(self, schema: Schema) -> list[str]:
        """Return the result's columns in the table's order.

        Raises:
            EngineError: The table does not exist, is a view, or has other columns.
        """
        what = f'sink "{self._spec.name}": the table {self._table}'
        given = {field.name.lower(): field for field in schema.fields}
        catalog = self._session.catalog
        if not catalog.tableExists(self._table):
            columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in schema.fields)
            raise EngineError(
                f"{what} does not exist",
                code="no-table",
                hint=f"create it first: CREATE TABLE {self._table} ({columns})",
            )
        if "VIEW" in str(catalog.getTable(self._table).tableType).upper():
            raise EngineError(f"{what} is a view", code="no-table", hint="use the table that the view reads")
        there = self._session.table(self._table).schema.fields
        lacking = [field.name for field in there if field.name.lower() not in given]
        more = set(given) - {field.name.lower() for field in there}
        if lacking or more:
            odd = lacking[0] if lacking else given[min(more)].name
            raise EngineError(
                f'{what} has the column "{odd}", but the result does not'
                if lacking
                else f'{what} has no column "{odd}", but the result does',
                code="wrong-columns",
                hint=near_names(odd, [f.name for f in (schema.fields if lacking else there)])
                or "select the table's columns: NULL AS name for what there is no value of",
            )
        for field in there:
            wanted, type_ = field.dataType.simpleString(), given[field.name.lower()].dataType.simpleString()
            if wanted != type_:
                raise EngineError(
                    f'{what}: the column "{field.name}" is {wanted} in the table, but {type_} in the result',
                    code="wrong-columns",
                    hint=f"CAST({given[field.name.lower()].name} AS {wanted})",
                )
        return [given[field.name.lower()].name for field in there]
