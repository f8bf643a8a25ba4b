"""The steps of the GitHub Action actions/size, as its runner starts them."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from policybridge_client.decisions import read_store
from tests.native.conftest import Target
from tests.native.llvm.plugins import built_plugin, need
from tests.training.tuning.boxes import boxes

ACTION = Path(__file__).parents[3] / "actions" / "size"
_MAKEFILE = """
program: main.c one.c
\t$(CC) -Oz -nostdlib -shared -o $@ main.c one.c
"""


@dataclass
class Runner:
    """A repository on GitHub's runner.

    Attributes:
        environment: of the steps.
        base: the commit to compare with.

    """

    folder: Path
    environment: dict[str, str]
    base: str = ""
    outputs: dict[str, str] = field(default_factory=dict)

    def git(self, *words: str) -> str:
        """Run git in the repository."""
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(["git", *who, *words], cwd=self.folder, check=True, capture_output=True, text=True).stdout

    def commit(self, **files: str) -> str:
        """Commit these files; give the commit."""
        for name, text in files.items():
            (self.folder / name.replace("_", ".")).write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "change")
        return self.git("rev-parse", "HEAD").strip()

    def step(self, name: str, **inputs: str) -> "subprocess.CompletedProcess[str]":
        """Run a step's script; take its outputs."""
        environment = {**self.environment, "BASE": self.base, **inputs}
        words = [str(ACTION / name)]
        done = subprocess.run(
            words, cwd=self.folder, env=environment, capture_output=True, text=True, errors="replace", check=False
        )
        lines = (self.folder.parent / "output").read_text().splitlines()
        self.outputs = {name.upper(): value for name, _, value in (line.partition("=") for line in lines)}
        return done


@pytest.fixture
def runner(tmp_path: Path, native: Target, launcher: str) -> Runner:
    folder = tmp_path / "a project"
    folder.mkdir()
    (tmp_path / "output").touch()
    environment = {
        **os.environ,
        # The environment's own command, as in a shell where it is activated.
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "POLICYBRIDGE_LAUNCHER": launcher,
        "POLICYBRIDGE_PLUGINS": str(built_plugin(native, "inliner", "22").parent),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "WORK": str(tmp_path / "work folder"),
        "BUILD": "make",
        "COMPILER": need("clang-22").rpartition("/")[2],
        "MINUTES": "1",
        "STORE": "policybridge.decisions",
        "PROGRAMS": ".",
        "LIMIT": "",
    }
    made = Runner(folder, environment)
    made.git("init", "--quiet")
    made.base = made.commit(main_c="int main(void) { return 0; }\n", one_c=boxes("a"), Makefile=_MAKEFILE)
    return made


def test_a_pull_request_is_tuned_and_its_bytes_are_reported_beside_those_of_its_base(runner: Runner) -> None:
    runner.commit(main_c="int more(int x) { return x * 3; }\nint main(void) { return 0; }\n")
    done = runner.step("retune")
    assert done.returncode == 0, done.stderr
    (section,) = [each for each in read_store(Path(runner.outputs["STORE"])).sections if each.heading.path == "one.c"]
    assert section.decisions or section.passes
    done = runner.step("report")
    assert done.returncode == 0, done.stderr
    report = Path(runner.outputs["REPORT"]).read_text()
    assert report == (runner.folder.parent / "summary.md").read_text()
    assert "`program`" in report
    assert "`program: more`" in report
    assert "function that shrank most" in report
    assert runner.outputs["STATUS"] == "0"
    # The checkout is as it was.
    assert runner.git("status", "--porcelain") == ""


def test_growth_beyond_the_limit_is_the_status_of_the_last_step_and_the_report_is_there(runner: Runner) -> None:
    runner.commit(main_c=boxes("b") + "int main(void) { return 0; }\n")
    assert runner.step("retune", MINUTES="0.05").returncode == 0
    done = runner.step("report", LIMIT="1")
    assert done.returncode == 0, done.stderr
    assert runner.outputs["STATUS"] == "1"
    assert "text grew by" in done.stderr
    assert Path(runner.outputs["REPORT"]).stat().st_size


def test_the_decisions_of_the_base_are_applied_to_the_base(runner: Runner) -> None:
    assert runner.step("retune").returncode == 0
    shutil.copy(runner.outputs["STORE"], runner.folder)
    runner.base = runner.commit()
    assert runner.step("retune").returncode == 0
    assert runner.step("report").returncode == 0
    assert "+0 (+0.00 %)" in Path(runner.outputs["REPORT"]).read_text()


def test_a_shallow_checkout_without_the_base_is_told_the_cure(runner: Runner) -> None:
    done = runner.step("report", BASE="0" * 40)
    assert done.returncode == 2
    assert "::error::there is no commit" in done.stderr
    assert "fetch-depth: 0" in done.stderr


def test_a_build_that_fails_ends_the_step(runner: Runner) -> None:
    runner.commit(main_c="int main(void) { return }\n")
    assert runner.step("retune").returncode == 2


def test_the_steps_of_the_action_are_its_scripts_and_take_its_inputs() -> None:
    action = yaml.safe_load((ACTION / "action.yml").read_text())
    text = (ACTION / "action.yml").read_text()
    scripts = [step["run"] for step in action["runs"]["steps"] if "ACTION_PATH" in step.get("run", "")]
    assert scripts == [f'"$GITHUB_ACTION_PATH/{name}"' for name in ("retune", "report", "comment")]
    assert all(f"inputs.{name}" in text for name in action["inputs"])
    for step in action["runs"]["steps"]:
        if "ACTION_PATH" not in step.get("run", ""):
            continue
        script = (ACTION / step["run"].rpartition("/")[2].rstrip('"')).read_text()
        assert all(f"${name}" in script or f"${{{name}" in script or name == "GH_TOKEN" for name in step["env"]), step
