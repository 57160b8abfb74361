"""Make functions of installed packages known to Spark, for what it evaluates itself."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from watersmeet.errors import SpecError
from watersmeet.expressions.package_functions import PackageFunction
from watersmeet.runtime.spark.errors import innermost_message
from watersmeet.spec.entry_points import FUNCTIONS, extension_error
from watersmeet.spec.functions import Function, functions_in_use

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_package_functions(session: SparkSession) -> None:
    """Register the functions that this process has used in a session, under their names.

    Raises:
        SpecError: Spark cannot read the Spark SQL form of a function, or a function has none and this
            version of Spark has no UDFs over Arrow.
    """
    for function in functions_in_use():
        if function.spark_sql is None:
            session.udf.register(function.name, _create_udf(function))
        else:
            _register_sql(session, function, function.spark_sql)


def _register_sql(session: SparkSession, function: Function, form: str) -> None:
    from pyspark.errors import PySparkException

    names = [f"a{place}" for place in range(len(function.arguments))]
    declared = ", ".join(map(" ".join, zip(names, function.arguments, strict=True)))
    try:
        session.sql(
            f"CREATE OR REPLACE TEMPORARY FUNCTION {function.name}({declared}) RETURNS {function.result}"
            f" RETURN {form.format(*names)}"
        )
    except (PySparkException, LookupError, ValueError) as error:
        what = f"its form in Spark SQL, {form!r}: {innermost_message(error)}"
        raise extension_error(FUNCTIONS, function.name, what) from error


def _create_udf(function: Function) -> Any:
    try:
        from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf
    except ImportError:
        raise SpecError(
            f"{function.name}() has no Spark SQL form, which this version of Spark needs",
            code="extension-failed",
            hint="use Spark 4.1 or newer, or declare spark_sql in the package",
        ) from None
    own = PackageFunction(function.name)

    def compute(*columns: Any) -> Any:
        return own.compute(*columns)

    with warnings.catch_warnings():  # it prefers type hints, which cannot say the number of arguments
        warnings.simplefilter("ignore", UserWarning)
        return arrow_udf(compute, function.result, ArrowUDFType.SCALAR)
