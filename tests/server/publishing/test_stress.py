"""Versions in a row under sessions that never stop asking; the long form is `python -m tests.peers publish`."""

import threading
from dataclasses import dataclass, field
from pathlib import Path

from policybridge_client.connection import connect
from policybridge_core.errors import PolicyBridgeError
from tests.conftest import ServerFactory
from tests.peers.clients import POLICY, ReopeningClient
from tests.peers.publishing import Publisher, check_answers, write_first
from tests.server.publishing.policies import client


@dataclass
class Thread:
    """A client in a thread, which asks until it is told to stop."""

    client: ReopeningClient
    stop: threading.Event
    errors: list[str] = field(default_factory=list)

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            try:
                self.client(number)
            except PolicyBridgeError as error:
                self.errors.append(repr(error))
                self.client.close()
            number += 1
        self.client.close()


def test_no_session_sees_two_versions_an_error_or_another_artifacts_answer(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    policies = tmp_path / "policies"
    write_first(policies)
    running = server_factory(policies, "--allow-publish", "--keep-versions", "3")
    publisher, stop = Publisher(running.grpc, tmp_path / "scratch"), threading.Event()
    (tmp_path / "scratch").mkdir()
    addresses = [*[running.socket] * 6, *[running.grpc] * 2]
    clients = [
        Thread(ReopeningClient(connect(address, timeout=60), seed), stop) for seed, address in enumerate(addresses)
    ]
    threads = [threading.Thread(target=each.run) for each in clients]
    for thread in threads:
        thread.start()
    try:
        for number in range(2, 32):
            publisher.publish(number, corrupt=number % 10 == 0)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        publisher.close()
    assert [error for each in clients for error in each.errors] == []
    for each in clients:
        check_answers(each.client.seen, publisher)
    assert publisher.refused == 3
    assert len({version for each in clients for version in each.client.seen}) > 5
    with client(running) as server:
        shown = server.repository.show(POLICY)
        assert [each.version for each in shown.versions] == [28, 27, 26]
        assert [each.version for each in shown.versions if each.loaded] == [28]
    for client_thread in clients:
        client_thread.client.connection.close()
