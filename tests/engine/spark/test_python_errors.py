"""What a user's Python function failed with, in words: its type, what it says, and where it was raised."""

from __future__ import annotations

import pytest

from watersmeet.runtime.spark.errors import readable_error

FRAMES = """Traceback (most recent call last):
  File "/env/lib/python3.11/site-packages/pyspark/worker.py", line 2000, in main
    process()
  File "/home/shop/job.py", line 12, in half
    return helper(x)
  File "/home/shop/job.py", line 7, in helper
    raise Oops("no half")
"""
JAVA = "\n\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:588)\n"


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        ("ZeroDivisionError: division by zero", "ZeroDivisionError: division by zero"),
        ("shop.errors.Oops: no half of zero", "shop.errors.Oops: no half of zero"),
        ("Oops: [DIVIDE_BY_ZERO] says a value", "Oops: [DIVIDE_BY_ZERO] says a value"),
        ("StopIteration", "StopIteration"),
        ("OSError: table does not exist", "OSError: table does not exist"),
    ],
)
@pytest.mark.parametrize(
    "written",
    [
        "org.apache.spark.api.python.PythonException: ",
        "org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the"
        " Python worker: ",
    ],
)
def test_an_exception_of_a_function_has_its_type_and_place(written: str, raised: str, words: str) -> None:
    error = readable_error(RuntimeError(f"{written}{FRAMES}{raised}\n{JAVA}"))
    assert error.code == "spark-failed"
    assert error.message == f"{words} (/home/shop/job.py, line 7, in helper)"
    assert (error.hint or "").startswith("correct the function")


def test_the_last_of_several_exceptions_counts() -> None:
    text = (
        f"PythonException: {FRAMES}KeyError: 1\n\nDuring handling of the above exception, another exception"
    )
    text += f" occurred:\n\n{FRAMES.replace('line 7', 'line 9')}ValueError: two\n{JAVA}"
    assert (
        readable_error(RuntimeError(text)).message == "ValueError: two (/home/shop/job.py, line 9, in helper)"
    )


def test_a_long_message_leaves_room_for_the_place() -> None:
    error = readable_error(RuntimeError(f"PythonException: {FRAMES}ValueError: {'x' * 5000}\n{JAVA}"))
    assert error.message.endswith(" (/home/shop/job.py, line 7, in helper)")
    assert len(error.message) < 600
