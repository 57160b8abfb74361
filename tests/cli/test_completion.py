"""What a shell offers: asked as bash and zsh ask, and by bash itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from watersmeet.cli import completion
from watersmeet.cli.init import kinds

SOURCES = Path(__file__).resolve().parents[2] / "src"
HOOK = "_WATERSMEET_COMPLETE"


@pytest.fixture
def folder(tmp_path):
    """Jobs here and below, and what is none."""
    for name in (
        "job.sql",
        "jobs/daily.sql",
        "jobs/old/gone.sql",
        ".venv/lib/hidden.sql",
        "cases/one.json",
        "clicked.toml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


def complete_in_shell(folder: Path, shell: str, *words: str) -> str:
    """What the command answers to a shell where the last word is being typed."""
    command = " ".join(("watersmeet", *words))
    environment = os.environ | {
        "PYTHONPATH": str(SOURCES),
        HOOK: f"complete_{shell}",
        "COMP_WORDS": command,
        "COMP_CWORD": str(len(words)),
        "_TYPER_COMPLETE_ARGS": command,
    }
    code = "import sys; from watersmeet.cli.start import main; sys.exit(main())"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.stderr == ""
    return found.stdout


def in_process(monkeypatch, capsys, *words: str) -> list[str]:
    """The same without a process of its own."""
    from watersmeet.cli.main import main

    monkeypatch.setenv(HOOK, "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(("watersmeet", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    main([])
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("ini",), {"init"}),
        (("demo", "--query", ""), {"weather", "connections"}),
        (("demo", "--query", "co"), {"connections"}),
        (("init", ""), set(kinds())),
        (("init", "ka"), {"kafka"}),
        (("run", ""), {"job.sql", "clicked.toml", "jobs/daily.sql", "jobs/old/gone.sql"}),
        (("validate", ""), {"clicked.toml"}),
        (("run", "jobs/"), {"jobs/daily.sql", "jobs/old/gone.sql"}),
        (("explain", "jo"), {"job.sql", "jobs/daily.sql", "jobs/old/gone.sql"}),
        (("state", "check", "jobs/d"), {"jobs/daily.sql"}),
        (("stop", "job."), {"job.sql"}),
        (("replay", ""), {"cases/one.json"}),
        (("run", "job.sql", "--at-limit", "shed"), {"shed_oldest", "shed_heaviest"}),
        (("run", "job.sql", "--watermark-rule", ""), {"tight", "limit"}),
        (("explain", "job.sql", "--lateness", ""), {"column", "join"}),
        (("explain", "job.sql", "--plan", "de"), {"delta"}),
        (("preview", "job.sql", "--output-mode", "ch"), {"changelog"}),
        (("preview", "job.sql", "--on-null-time", ""), {"count", "fail"}),
        (("run", "job.sql", "--until"), {"--until-caught-up"}),
        (("run", "none"), set()),
    ],
)
def test_words_are_offered(words, offered, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert set(in_process(monkeypatch, capsys, *words)) == offered


def test_completion_outside_cwd_offers_full_paths(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir("/")
    assert in_process(monkeypatch, capsys, "run", f"{folder}/jobs/d") == [f"{folder}/jobs/daily.sql"]


def test_hidden_files_are_offered_to_who_types_the_dot(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert completion.job_files(".v") == [".venv/lib/hidden.sql"]


def test_a_tree_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(completion.MAX_FOLDERS + 50):
        (tmp_path / f"{number:03d}").mkdir()
        (tmp_path / f"{number:03d}" / "job.sql").write_text("")
    assert len(completion.job_files("")) == completion.MAX_COMPLETIONS
    assert completion.job_files(f"{completion.MAX_FOLDERS + 20:03d}") == [
        f"{completion.MAX_FOLDERS + 20:03d}/job.sql"
    ]


def test_a_folder_in_a_circle_has_an_end(tmp_path, monkeypatch):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "again").symlink_to(tmp_path / "jobs")
    monkeypatch.chdir(tmp_path)
    assert completion.job_files("") == []


def test_zsh_gets_files_from_the_command_and_other_files_from_itself(folder):
    assert '"jobs/daily.sql"' in complete_in_shell(folder, "zsh", "run", "jobs/d")
    assert complete_in_shell(folder, "zsh", "run", "none").strip() == "_files"


def test_little_is_loaded_for_it(folder):
    code = (
        "import sys, atexit; atexit.register(lambda: print(*sorted("
        "{'pyspark', 'duckdb', 'pyarrow', 'numpy', 'sqlglot'} & sys.modules.keys()), file=sys.stderr));"
        "from watersmeet.cli.start import main; sys.exit(main())"
    )
    environment = os.environ | {
        "PYTHONPATH": str(SOURCES),
        HOOK: "complete_bash",
        "COMP_WORDS": "watersmeet run job",
        "COMP_CWORD": "2",
    }
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert found.stdout.split() == ["job.sql", "jobs/daily.sql", "jobs/old/gone.sql"]
    assert found.stderr.split() == []


def test_bash_completes(folder):
    """With the script that is printed for it."""
    bash = shutil.which("bash")
    commands = folder / "bin"
    commands.mkdir()
    command = commands / "watersmeet"
    code = "import sys; from watersmeet.cli.start import main; sys.exit(main())"
    command.write_text(f"#!{sys.executable}\n{code}\n")
    command.chmod(0o755)
    environment = os.environ | {
        "PYTHONPATH": str(SOURCES),
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }
    script = (
        'eval "$(watersmeet --show-completion bash)"\n'
        "COMP_WORDS=(watersmeet run jobs/d)\nCOMP_CWORD=2\n"
        'call=$(complete -p watersmeet | sed -E "s/.*-F ([^ ]+) .*/\\1/")\n'
        '$call watersmeet\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    found = subprocess.run(
        [bash, "--norc", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.stdout.split(), found.stderr) == (["jobs/daily.sql"], "")
