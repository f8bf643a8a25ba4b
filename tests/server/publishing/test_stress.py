"""Versions in a row under sessions that never stop asking; the long form is policybridge_bench.publish."""

import threading
from pathlib import Path

from policybridge_bench.publishing import POLICY, Publisher, check, start, write_first
from tests.conftest import ServerFactory
from tests.server.publishing.policies import client


def test_no_session_sees_two_versions_an_error_or_another_artifacts_answer(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    policies = tmp_path / "policies"
    write_first(policies)
    running = server_factory(policies, "--allow-publish", "--keep-versions", "3")
    publisher, stop = Publisher(running.grpc, policies, tmp_path / "scratch"), threading.Event()
    (tmp_path / "scratch").mkdir()
    askers, threads = start(running.socket, 6, stop)
    others, more = start(running.grpc, 2, stop)
    try:
        for number in range(2, 32):
            publisher.publish(number, corrupt=number % 10 == 0)
    finally:
        stop.set()
        for thread in threads + more:
            thread.join()
        publisher.close()
    check(askers + others, publisher)
    assert publisher.refused == 3
    assert len({version for asker in askers + others for version in asker.seen}) > 5
    with client(running) as server:
        shown = server.repository.show(POLICY)
        assert [each.version for each in shown.versions] == [28, 27, 26]
        assert [each.version for each in shown.versions if each.loaded] == [28]
    for asker in askers + others:
        asker.connection.close()
