"""The judge at an endpoint, played by a local server."""

import logging
import socket

import pytest

from headatlas.errors import BadArgument
from headatlas.tasks.judge import Judge, Verdict
from headatlas.tasks.questions import Question

ASK = Question("main", (), "how many?", "12", "Math Calculation")


PIECES = ["There", " are", " twelve", " pens", " here", "."]


def test_a_verdict_and_its_cache(endpoint, tmp_path) -> None:
    endpoint.says = ['Sure!\n```json\n{"right": true, "pieces": [3, 2, 99, -1, "x"]}\n```']
    judge = Judge(endpoint.address, "m", tmp_path)
    assert judge.ask(ASK, "There are twelve pens here.", PIECES, 5) == Verdict(True, [2, 3])
    again = Judge(endpoint.address, "m", tmp_path)
    assert again.ask(ASK, "There are twelve pens here.", PIECES, 5) == Verdict(True, [2, 3])
    assert len(endpoint.requests) == 1
    assert "how many?" in endpoint.requests[0]["messages"][0]["content"]
    assert endpoint.requests[0]["model"] == "m"
    Judge(endpoint.address, "other", tmp_path).ask(ASK, "There are twelve pens here.", PIECES, 5)
    assert len(endpoint.requests) == 2
    assert len(list(tmp_path.iterdir())) == 2  # nothing half-written is left


def test_it_asks_again_before_it_gives_up(endpoint, caplog) -> None:
    endpoint.says = [None, '{"right": false, "pieces": []}']
    judge = Judge(endpoint.address, "m", pause=0)
    assert judge.ask(ASK, "x", PIECES, 5) == Verdict(False, [])
    assert len(endpoint.requests) == 2
    assert not caplog.records


def test_an_endpoint_that_is_down_is_given_up_and_told_once(endpoint, caplog) -> None:
    caplog.set_level(logging.WARNING)
    endpoint.says = [None]
    judge = Judge(endpoint.address, "m", pause=0)
    assert judge.ask(ASK, "x", PIECES, 5) is None
    assert judge.ask(ASK, "y", PIECES, 5) is None
    assert len(endpoint.requests) == 3
    (record,) = caplog.records
    assert "gave no answer in 3 tries" in record.getMessage()
    assert "answers are judged offline from now on" in record.getMessage()


@pytest.mark.parametrize("reply", ["no idea", "{", '{"right": "yes"}', '["right"]'])
def test_what_cannot_be_understood_is_no_verdict_and_not_kept(endpoint, reply) -> None:
    endpoint.says = [reply, '{"right": true, "pieces": [1]}']
    judge = Judge(endpoint.address, "m")
    assert judge.ask(ASK, "x", PIECES, 5) is None
    assert judge.ask(ASK, "x", PIECES, 5) == Verdict(True, [1])


def test_a_refused_question_is_skipped_and_the_next_one_asked(endpoint, caplog) -> None:
    endpoint.says = [400, '{"right": true, "pieces": [1]}']
    judge = Judge(endpoint.address, "m")
    assert judge.ask(ASK, "x", PIECES, 5) is None
    assert "judged offline" in caplog.text
    assert judge.ask(ASK, "y", PIECES, 5) == Verdict(True, [1])


def test_replies_that_cannot_be_kept_still_count(endpoint, tmp_path, caplog) -> None:
    (tmp_path / "file").write_text("")
    endpoint.says = ['{"right": true, "pieces": [1]}']
    judge = Judge(endpoint.address, "m", tmp_path / "file")
    assert judge.ask(ASK, "x", PIECES, 5) == Verdict(True, [1])
    assert judge.ask(ASK, "y", PIECES, 5) == Verdict(True, [1])
    assert "not cached" in caplog.text


def test_an_endpoint_that_never_replies_is_given_up(caplog) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        judge = Judge(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", "m", timeout=0.05, tries=2, pause=0)
        assert judge.ask(ASK, "x", PIECES, 5) is None
    assert "timed out; answers are judged offline from now on" in caplog.text


@pytest.mark.parametrize("address", ["localhost:1", "http://", "http://localhost:80a/v1", "http://a b/v1", "ftp://x"])
def test_an_address_is_checked(address) -> None:
    with pytest.raises(BadArgument, match="expected the address of an endpoint"):
        Judge(address, "m")
