"""Configurations that somebody might send you to harm you, and whether they do.

    python scripts/attacks.py                                  # on this code, each in a process of its own
    python scripts/attacks.py --code ../old --keep old.json    # on an older checkout
    python scripts/attacks.py --before old.json                # both as the table of results/notes/attacks.md

An attack is a command line with the files that came with it. It has succeeded if it left a file called OWNED, wrote
outside its output folder, left a secret or an absolute path in what a run keeps, or ended in an internal error.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SECRET = "hunter2-of-the-environment"
RUN = ["task=generate", "dataset=digits", "profile=smoke", "loss=dp_merf", "loss.features=20", "loss.batch=50"]
RUN += ["classifier.kinds=[]", "task.fid=false", "device=cpu"]
SENT = ["--config-dir", "{place}/sent", "+group=nice"]
GLOBAL = "# @package _global_\n"
PICKLE = "cos\nsystem\n(S'touch {place}/OWNED'\ntR."


@dataclass(frozen=True)
class Attack:
    """A command with the files that came with it; {place} is the folder it is tried in."""

    name: str
    arguments: Sequence[str]
    files: Mapping[str, str] = field(default_factory=dict)


def sent(name: str, body: str, *more: str, **files: str) -> Attack:
    """A file of settings that a user is asked to add to a command."""
    return Attack(name, [*SENT, *RUN, *more], {"sent/group/nice.yaml": GLOBAL + body, **files})


def typed(name: str, *arguments: str, **files: str) -> Attack:
    """Words that a user is asked to add to a command."""
    return Attack(name, [*RUN, *arguments], files)


GIT = "GIT_CONFIG_COUNT: '1', GIT_CONFIG_KEY_0: core.fsmonitor, GIT_CONFIG_VALUE_0: 'touch {place}/OWNED;'"
FAKE_GIT = {"bin/git": "#!/bin/sh\n/usr/bin/touch {place}/OWNED\n"}
TOUCH = "_target_: os.system\n      command: touch {place}/OWNED\n"
FACTORY = "handlers: {{evil: {{'()': logging.os.system, command: touch {place}/OWNED}}}}, root: {{handlers: [evil]}}"
FILE = "handlers: {{evil: {{class: logging.FileHandler, filename: '%s'}}}}, root: {{handlers: [evil]}}"
SOCKET = "handlers.SocketHandler, host: localhost, port: 1"
CALLBACK = "hydra: {{callbacks: {{evil: {{_target_: %s, command: touch {place}/OWNED}}}}}}\n"
WRITE = "_target_: dpot.data.files.write_text\n  path: {place}/OWNED\n  text: written\n"
ENV = "hydra: {{job: {{env_set: {{%s}}}}}}\n"
LAUNCHER = GLOBAL + "defaults: [{{override /hydra/launcher: %s}}]\n"

ATTACKS = (
    sent("environment: a command for git", ENV % GIT),
    sent("environment: another PATH", ENV % "PATH: '{place}/bin'", **FAKE_GIT),
    sent("environment: a variable copied", "hydra: {{job: {{env_copy: [SECRET]}}}}\n"),
    typed("environment: on the command line", "+hydra.job.env_set.PATH={place}/bin", **FAKE_GIT),
    Attack(
        "environment: in local/default.yaml, which is read unasked",
        ["--config-dir", "{place}/sent", *RUN],
        {"sent/local/default.yaml": GLOBAL + ENV % "PATH: '{place}/bin'", **FAKE_GIT},
    ),
    Attack(
        "environment: in one choice of a sweep",
        ["-m", "--config-dir", "{place}/sent", "+group=good,nice", *RUN],
        {"sent/group/nice.yaml": GLOBAL + ENV % GIT, "sent/group/good.yaml": GLOBAL + "seed: 1\n"},
    ),
    sent("logging: a factory", "hydra: {{job_logging: {{" + FACTORY + "}}}}\n"),
    sent("logging: a factory of Hydra's own log", "hydra: {{hydra_logging: {{" + FACTORY + "}}}}\n"),
    sent("logging: a file anywhere", "hydra: {{job_logging: {{" + FILE % "{place}/OWNED" + "}}}}\n"),
    sent("logging: a file outside the run", "hydra: {{job_logging: {{" + FILE % "../OWNED" + "}}}}\n"),
    sent(
        "logging: to another machine",
        "hydra: {{job_logging: {{" + FILE.replace("FileHandler, filename: '%s'", SOCKET) + "}}}}\n",
    ),
    typed("logging: Hydra's own, with a file", "hydra/job_logging=default", "hydra.job.name=../../OWNED"),
    sent("callback: os.system", CALLBACK % "os.system"),
    sent("callback: os.system by way of Hydra", CALLBACK % "hydra.core.utils.os.system"),
    sent(
        "callback: Hydra's pickles",
        CALLBACK.replace(", command: touch {place}/OWNED", "") % "hydra.experimental.callbacks.PickleJobInfoCallback",
    ),
    sent("launcher: os.system", "hydra: {{launcher: {{_target_: hydra.core.utils.os.system}}}}\n"),
    Attack(
        "launcher: one that was sent",
        ["-m", *SENT, *RUN, "seed=0,1"],
        {
            "sent/group/nice.yaml": LAUNCHER % "evil",
            "sent/hydra/launcher/evil.yaml": "_target_: os.system\ncommand: touch {place}/OWNED\n",
        },
    ),
    Attack(
        "launcher: one that was sent under a known name",
        ["-m", *SENT, *RUN, "seed=0,1"],
        {
            "sent/group/nice.yaml": LAUNCHER % "joblib",
            "sent/hydra/launcher/joblib.yaml": "_target_: os.system\ncommand: touch {place}/OWNED\n",
        },
    ),
    Attack(
        "launcher: a command to set up a job",
        ["-m", *SENT, *RUN, "seed=0,1"],
        {
            "sent/group/nice.yaml": LAUNCHER % "submitit_slurm"
            + "hydra: {{launcher: {{setup: [touch {place}/OWNED]}}}}\n"
        },
    ),
    sent("launcher: a job's name that is a line of a script", 'hydra: {{job: {{name: "a\\ntouch {place}/OWNED"}}}}\n'),
    sent("launcher: settings as if typed", "hydra: {{overrides: {{hydra: ['hydra.launcher.setup=[touch OWNED]']}}}}\n"),
    sent("sweeper: os.system", "hydra: {{sweeper: {{_target_: hydra.core.utils.os.system}}}}\n"),
    sent("folder: Hydra's files outside the run", "hydra: {{output_subdir: ../OWNED}}\n"),
    sent("folder: another one for the run", "hydra: {{run: {{dir: '{place}/OWNED'}}}}\n"),
    Attack("folder: another one for a sweep", ["-m", *RUN, "seed=0,1", "hydra.sweep.dir={place}/OWNED"]),
    Attack("folder: jobs outside the sweep", ["-m", *RUN, "seed=0,1", "hydra.sweep.subdir=../../../OWNED"]),
    sent("folder: another working directory", "hydra: {{job: {{chdir: true}}}}\n"),
    sent(
        "folder: a tracker's file anywhere",
        "tracker: {{_target_: dpot.trackers.CsvTracker, filename: '{place}/OWNED'}}\n",
    ),
    typed("folder: a tracker's file outside the run", "tracker=csv", "tracker.filename=../../../OWNED"),
    typed("folder: a tracker's file in place of the record", "tracker=csv", "tracker.filename=record.json"),
    typed("search path: a package to import", "hydra.searchpath=[pkg://antigravity]"),
    Attack(
        "search path: in a main configuration that was sent",
        ["--config-dir", "{place}/sent", "--config-name", "main", *RUN],
        {"sent/main.yaml": "defaults: [config, _self_]\nhydra: {{searchpath: ['pkg://antigravity']}}\n"},
    ),
    Attack(
        "main configuration: another folder of them",
        ["--config-path", "{place}/sent"],
        {"sent/config.yaml": "hydra: {{job_logging: {{" + FACTORY + "}}}}\n"},
    ),
    Attack(
        "main configuration: a pickled run",
        ["--experimental-rerun", "{place}/sent/config.pickle"],
        {"sent/config.pickle": PICKLE},
    ),
    sent("component: os.system", "loss:\n  " + TOUCH.replace("      ", "  ")),
    sent("component: one that only the standard library has", "loss:\n  _target_: dpot.tasks.base.abc.ABC\n"),
    sent("component: a function of dpot that writes files", "tracker:\n  " + WRITE),
    sent("component: nested in a list", "task:\n  nested:\n    - " + TOUCH),
    sent("component: put together by interpolation", "x: os.system\nloss:\n  _target_: ${{x}}\n"),
    sent(
        "component: made by a resolver",
        "tracker: '${{oc.create:{{_target_:dpot.data.files.write_text,path:{place}/OWNED,text:x}}}}'\n",
    ),
    sent("component: a Python object of YAML", "loss: !!python/object/apply:os.system ['touch {place}/OWNED']\n"),
    sent("secret: of the environment", "paper: ${{oc.env:SECRET}}\n"),
    sent("secret: with the resolver's name put together", "table: env\npaper: ${{oc.${{table}}:SECRET}}\n"),
    sent("secret: through a root", "output_root: '{place}/outputs/${{oc.env:SECRET}}'\npaper: ${{output_root}}\n"),
    sent("secret: with a default", "paper: ${{oc.env:SECRET,none}}\n"),
    typed("arguments: by position", "+task._args_=[a]"),
    typed("arguments: not all of them", "+task._partial_=true"),
)


def lay_out(attack: Attack, place: Path) -> list[str]:
    """Write the files of an attack and give its command line."""
    for name, content in attack.files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.format(place=place))
        path.chmod(0o755)
    return [word.format(place=place) for word in attack.arguments]


def harm(attack: Attack, code: Path, place: Path) -> str:
    """Run an attack on the code of a checkout, and say what came of it; nothing if it failed."""
    words = lay_out(attack, place)
    before = set(place.rglob("*"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DPOT_")}
    environment |= {"DPOT_OUTPUT": str(place / "outputs"), "PYTHONPATH": str(code), "OMP_NUM_THREADS": "1"}
    environment |= {"SECRET": SECRET, "DPOT_CACHE": str(place / "cache")}
    work = place / "work"
    work.mkdir()
    command = [sys.executable, "-m", "dpot", *words]
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=120, check=False)
    found = []
    new = [path for path in place.rglob("*") if path not in before and path != work]
    if any(path.name.startswith("OWNED") for path in new):
        found.append("a command ran, or a file was written outside")
    elif [
        path for path in new if not path.is_relative_to(place / "outputs") and not path.is_relative_to(place / "cache")
    ]:
        found.append("files were written outside the output folder")
    kept = [path for path in (place / "outputs").rglob("*") if path.is_file()]
    if any(SECRET in str(path) or SECRET.encode() in path.read_bytes() for path in kept):
        found.append("a secret was kept")
    if "internal error" in done.stderr or "Traceback" in done.stderr:
        found.append("an internal error")
    if not found and done.returncode == 0:
        found.append("it was obeyed")
    return "; ".join(found)


def try_all(code: Path) -> dict[str, str]:
    """What came of each attack."""
    found = {}
    for attack in ATTACKS:
        with tempfile.TemporaryDirectory() as place:
            found[attack.name] = harm(attack, code, Path(place).resolve())
        print(f"{attack.name}: {found[attack.name] or 'refused'}", flush=True)
    return found


def table(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """results/notes/attacks.md."""
    succeeded = [sum(map(bool, found.values())) for found in (before, after)]
    lines = [
        "# Hostile configurations, before and after",
        "",
        "Each row is a configuration or a command line that somebody might send you. `python scripts/attacks.py` tries",
        "them, each in a process and a folder of its own; `tests/test_guard.py` tries them without starting anything.",
        f"Of {len(after)} attacks, {succeeded[0]} succeeded before and {succeeded[1]} succeed now.",
        "",
        "| attack | before | now |",
        "|---|---|---|",
    ]
    lines += [f"| {name} | {before.get(name) or 'refused'} | {now or 'refused'} |" for name, now in after.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Try the attacks, and write the table if there is something to compare with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--code", type=Path, default=REPOSITORY, help="the checkout to attack")
    parser.add_argument("--keep", type=Path, help="keep what came of each attack in this file")
    parser.add_argument("--before", type=Path, help="what was kept of an older checkout, for the table")
    given = parser.parse_args()
    now = try_all(given.code.resolve())
    if given.keep:
        given.keep.write_text(json.dumps(now, indent=1) + "\n")
    if given.before:
        notes = REPOSITORY / "results" / "notes" / "attacks.md"
        notes.write_text(table(json.loads(given.before.read_text()), now))
    sys.exit(any(now.values()))


if __name__ == "__main__":
    main()
