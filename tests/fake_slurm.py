"""SLURM's commands, for jobs that a test then runs itself, one after the other, as the scheduler would."""

import json
import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMMAND = """#!{python}
import json, pathlib, re, shutil, subprocess, sys
folder, (name, *words) = pathlib.Path("{folder}"), sys.argv
if name.endswith("sbatch"):
    subprocess.run(["bash", "-n", words[-1]], check=True)
    script = pathlib.Path(words[-1]).read_text()
    if "nobody" in script and ("nobody-later" not in script or "--dependency" in script):
        sys.exit("sbatch: error: invalid account nobody")
    job = len(list(folder.glob("*.sh"))) + 1
    shutil.copy(words[-1], folder / f"{{job}}.sh")
    array = re.search(r"--array=0-(\\d+)", script)
    tasks = [f"{{job}}_{{at}}" for at in range(int(array[1]) + 1)] if array else [str(job)]
    states = json.loads((folder / "states.json").read_text())
    (folder / "states.json").write_text(json.dumps(states | {{task: "PENDING" for task in tasks}}))
    print(f"Submitted batch job {{job}}")
elif name.endswith("squeue"):
    for job, state in json.loads((folder / "states.json").read_text()).items():
        if state in ("PENDING", "RUNNING"):
            print(job, state)
elif name.endswith("scontrol"):  # scontrol requeue JOB
    (folder / f"requeued-{{words[1]}}").touch()
"""

TASK = "import sys; sys.argv[0] = '_submit'; from submitit.core._submit import submitit_main; submitit_main()"


class Slurm:
    """A queue of jobs in a folder.

    Attributes:
        ran: What was run, in this order; a job that is queued again is run again.
        states: States by job, such as {"1_0": "COMPLETED"}.
    """

    def __init__(self, folder: Path, runner: Any) -> None:
        self.folder, self.runner, self.ran, self.states = folder, runner, list[str](), dict[str, str]()
        folder.mkdir()
        for name in ("sbatch", "squeue", "scontrol", "srun"):
            (folder / name).write_text(COMMAND.format(python=sys.executable, folder=folder))
            (folder / name).chmod(0o755)
        self._write()

    def options(self, job: int) -> dict[str, str]:
        """The #SBATCH options of a job."""
        lines = re.findall("^#SBATCH --(.*)$", (self.folder / f"{job}.sh").read_text(), re.MULTILINE)
        return {name: "".join(shlex.split(value)) for name, _, value in (line.partition("=") for line in lines)}

    def work(self, interrupt: Callable[[str, int], None] = lambda job, pid: None) -> None:
        """Run all jobs that were submitted and their repeats, each after those that it depends on.

        ``interrupt`` is called with each started job and its process.
        """
        for job in range(1, len(list(self.folder.glob("*.sh"))) + 1):
            self.states |= {task: "PENDING" for task in self._tasks(job) if task not in self.states}
        for task in [task for task, state in self.states.items() if state == "PENDING"]:
            after = self.options(int(task.partition("_")[0])).get("dependency", "")
            if after:
                kind, before = after.split(":")
                assert kind == "afterany"
                assert {self.states[each] for each in self._tasks(int(before))} <= {"COMPLETED", "FAILED"}
            self._run(task, interrupt)

    def _tasks(self, job: int) -> list[str]:
        array = re.fullmatch(r"0-(\d+)%\d+", self.options(job).get("array", ""))
        return [f"{job}_{at}" for at in range(int(array[1]) + 1)] if array else [str(job)]

    def _run(self, task: str, interrupt: Callable[[str, int], None]) -> None:
        """Run the command of a job's script, whose last line is srun … python … FOLDER."""
        job, _, at = task.partition("_")
        environment = {"SLURM_JOB_ID": task, "SUBMITIT_EXECUTOR": "slurm"}
        environment |= {"SLURM_ARRAY_JOB_ID": job, "SLURM_ARRAY_TASK_ID": at} if at else {}
        command = shlex.split((self.folder / f"{job}.sh").read_text().splitlines()[-1])
        assert command[0] == "srun"
        log = self.folder / f"log-{task}"
        while True:
            self.states[task] = "RUNNING"
            self._write()
            self.ran.append(task)
            path = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
            pid = self.runner.start(command[-1:], log, program=TASK, environment=environment | path)
            interrupt(task, pid)
            code = self.runner.wait(pid)
            if not (self.folder / f"requeued-{task}").exists():
                break
            (self.folder / f"requeued-{task}").unlink()
        self.states[task] = "FAILED" if code else "COMPLETED"
        self._write()

    def preempt(self, task: str, pid: int) -> None:
        """Kill a job and queue it again, as SLURM does where it may."""
        assert "requeue" in self.options(int(task.partition("_")[0]))
        (self.folder / f"requeued-{task}").touch()
        self.runner.kill(pid)

    def _write(self) -> None:
        (self.folder / "states.json").write_text(json.dumps(self.states))
