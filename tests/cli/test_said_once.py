"""What a run tells is on standard error once, whether or not somebody has set up logging."""

from __future__ import annotations

import logging

from watersmeet.cli.output import log_to_stderr
from watersmeet.observe.log import LOG


def test_notice_is_printed_once(capsys):
    with log_to_stderr(None) as said:
        said.notice("moved")
        LOG.warning("moved")
    assert capsys.readouterr().err == "notice: moved\n"


def test_it_is_so_where_the_root_has_a_handler(capsys):
    handler = logging.StreamHandler()
    logging.getLogger().addHandler(handler)
    try:
        with log_to_stderr(None):
            LOG.error("gone")
        assert capsys.readouterr().err == ""
    finally:
        logging.getLogger().removeHandler(handler)


def test_afterwards_records_go_where_they_went(caplog):
    with log_to_stderr(None):
        LOG.warning("within")
    LOG.warning("after")
    assert [record.getMessage() for record in caplog.records] == ["after"]
