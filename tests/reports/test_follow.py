"""The report of a run that goes on, served to this machine."""

import http.client
import socket
import threading
from contextlib import contextmanager

import pytest
from test_report import Page, make_run, step_line

from rollwise.cli import main
from rollwise.errors import RunError
from rollwise.records import RunFolder
from rollwise.reports import follow
from rollwise.reports.follow import serve_report


@contextmanager
def served(path, **options):
    """A server of the report; it ends when the block has written the run's summary."""
    addresses, ready = [], threading.Event()

    def started(address):
        addresses.append(address)
        ready.set()

    thread = threading.Thread(
        target=serve_report, args=(path,), kwargs=options | {"started": started}
    )
    thread.start()
    assert ready.wait(60)
    try:
        yield int(addresses[0].rstrip("/").rpartition(":")[2])
    finally:
        RunFolder(path).write_summary({"steps": 1})
        thread.join(60)
        assert not thread.is_alive()


def ask(port, path="/", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer, body


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(follow, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(follow, "LAST_LOOK", 0.05)


def test_it_serves_the_page_and_news_of_it_until_the_run_ends(tmp_path):
    path = make_run(tmp_path / "run")
    with served(path, port=0) as port:
        answer, body = ask(port)
        assert answer.status == 200
        assert Page(body).charts["reward"]["lines"][0]["values"] == [0.25] * 3
        assert "connect-src &#39;self&#39;" in body
        tag = answer.headers["ETag"]
        assert ask(port, **{"If-None-Match": tag})[0].status == 304
        RunFolder(path).log(step_line(4) | {"reward": 0.75})
        answer, body = ask(port, **{"If-None-Match": tag})
        assert answer.status == 200
        assert Page(body).charts["reward"]["lines"][0]["values"][-1] == 0.75
    with pytest.raises(ConnectionRefusedError):
        ask(port)


def test_it_serves_nothing_else(tmp_path):
    path = make_run(tmp_path / "run")
    (tmp_path / "secret").write_text("mine")
    with served(path, port=0) as port:
        for other in ("/../secret", "/%2e%2e/secret", "/config.json", "//etc/passwd", "/?x", "*"):
            answer, body = ask(port, other)
            assert (answer.status, "mine" in body) == (404, False), other
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/", body=b"x")
        assert connection.getresponse().status == 501
        connection.close()


@pytest.mark.parametrize(
    ("host", "code"),
    [("localhost", 200), ("127.0.0.1:80", 200), ("[::1]:80", 200), ("evil.example:80", 421)],
)
def test_a_page_of_another_site_cannot_read_it_under_its_own_name(tmp_path, host, code):
    with served(make_run(tmp_path / "run"), port=0) as port:
        assert ask(port, Host=host)[0].status == code


def test_it_listens_at_an_address_of_ipv6(tmp_path):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with served(make_run(tmp_path / "run"), host="::1", port=0) as port:
        connection = http.client.HTTPConnection("::1", port, timeout=60)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()


def test_a_run_that_has_not_begun_has_a_page_that_asks_again(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create({"seed": 0})
    with served(folder.path, port=0) as port:
        answer, body = ask(port)
        assert (answer.status, "the run has not begun" in body) == (503, True)


def test_a_run_that_has_ended_gets_its_report_at_once(tmp_path, capsys):
    path = make_run(tmp_path / "run")
    RunFolder(path).write_summary({"steps": 3})
    assert main(["report", "--follow", str(path), "--port", "0"]) == 0
    assert (path / "report.html").exists()
    assert "following" in capsys.readouterr().out


def test_a_folder_without_a_run_and_a_port_that_is_taken_are_named(tmp_path):
    with pytest.raises(RunError, match="there is no run in"):
        serve_report(tmp_path)
    path = make_run(tmp_path / "run")
    with (
        served(path, port=0) as port,
        pytest.raises(RunError, match=f"cannot listen at 127.0.0.1, port {port}"),
    ):
        serve_report(path, port=port)
