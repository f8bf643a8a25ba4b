"""The manifest for KubeRay is what docs/ray.md says, and its command is one of ours."""

import shlex
from itertools import pairwise
from typing import Any, cast

import pytest
import yaml

from policybridge_client.cli import COMMANDS, Command
from policybridge_client.command_line import Parser
from tests.needs import ROOT

MANIFEST = ROOT / "docker" / "kuberay.yaml"


@pytest.fixture(scope="module")
def job() -> Any:
    return yaml.safe_load(MANIFEST.read_text())


def test_the_manifest_is_a_job_with_the_version_of_ray_that_is_tested(job: Any) -> None:
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert f"ray=={job['spec']['rayClusterSpec']['rayVersion']}" in pins


def test_the_nodes_are_those_that_the_page_tells_and_have_room_for_its_compilers(job: Any) -> None:
    page = " ".join((ROOT / "docs" / "ray.md").read_text().split())
    cluster = job["spec"]["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    (head,), (worker,) = (group["template"]["spec"]["containers"] for group in (cluster["headGroupSpec"], workers))
    assert cluster["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    assert head["image"] == worker["image"]
    cores, memory = (int(worker["resources"]["limits"][name].removesuffix("Gi")) for name in ("cpu", "memory"))
    words = shlex.split(job["spec"]["entrypoint"])
    given = dict(pairwise(words))
    assert int(given["--reserve"]) * cores < memory * 1024
    assert int(given["--jobs"]) == cores * workers["maxReplicas"]
    limits = head["resources"]["limits"]
    assert f"({limits['cpu']} CPUs, {limits['memory'].removesuffix('Gi')} GiB)" in page
    told = f"{workers['minReplicas']} to {workers['maxReplicas']} workers of {cores} CPUs and {memory} GiB"
    assert f"{told} with {cores} compilers each, which is `--jobs {given['--jobs']}`" in page
    (volume,) = cluster["headGroupSpec"]["template"]["spec"]["volumes"]
    assert f"`{volume['persistentVolumeClaim']['claimName']}` holds" in page


def test_its_command_is_one_of_ours(job: Any) -> None:
    program, name, *words = shlex.split(job["spec"]["entrypoint"])
    parser = Parser(prog=name)
    cast("Command", COMMANDS.load(name)).add_arguments(parser)
    asked = parser.parse_args(words)
    assert (program, asked.ray, asked.task) == ("policybridge", "auto", "inline")
