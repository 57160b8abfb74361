"""The files of `deploy/` without running them: they parse, their commands are those of the command line, and
what they run has no more rights than it needs."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from configparser import ConfigParser

import pytest
import typer
import yaml

from tests.support.package_paths import REPOSITORY
from watersmeet.cli.main import app
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.spec.secrets import Secret

DEPLOY = REPOSITORY / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
OBJECTS = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
IMAGE = (DEPLOY / "Dockerfile").read_text()
USER = 10001
STOP_S = 120
"""Seconds that each of them gives a job for the tick in hand."""


class Unit(ConfigParser):
    """A unit of systemd, without keys that stand there twice."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def unit() -> dict[str, str]:
    parser = Unit(strict=False, interpolation=None)
    parser.read(DEPLOY / "watersmeet.service")
    return dict(parser["Service"])


def pod() -> dict:
    (deployment,) = (each for each in OBJECTS if each["kind"] == "Deployment")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    return deployment["spec"]["template"]["spec"]


def own_services() -> dict[str, dict]:
    return {name: of for name, of in COMPOSE["services"].items() if of.get("image") == "watersmeet"}


def commands() -> Iterator[tuple[str, list[str]]]:
    """Where, and the words behind ``watersmeet``, of every command."""
    for name, service in own_services().items():
        yield f"compose.yaml, {name}", service["command"]
    for container in pod()["containers"]:
        yield f"kubernetes.yaml, {container['name']}", container["args"]
    program, *words = shlex.split(unit()["ExecStart"])
    assert program.endswith("/watersmeet")
    yield "watersmeet.service", words
    (default,) = re.findall(r"^CMD (\[.*\])$", IMAGE, re.MULTILINE)
    yield "Dockerfile", yaml.safe_load(default)


@pytest.mark.parametrize(("where", "words"), [pytest.param(*each, id=each[0]) for each in commands()])
def test_the_command_line_takes_their_commands(where, words):
    command = typer.main.get_command(app)
    name, *arguments = words
    command.commands[name].make_context(name, list(arguments))
    assert "--no-token" not in words


def test_there_is_a_job_and_a_page_in_each():
    kinds = [(where.split(",")[0], words[0]) for where, words in commands()]
    for file in ("compose.yaml", "kubernetes.yaml"):
        assert (file, "run") in kinds
        assert (file, "ui") in kinds
    assert "--ui" in unit()["ExecStart"]


def test_the_job_is_planned_and_its_password_is_that_of_the_file(tmp_path, monkeypatch):
    (tmp_path / "db_password").write_text("a-long-password\n")
    for name, value in (("KAFKA", "k:9092"), ("DATABASE", "w@p:5432/shop"), ("SECRETS", str(tmp_path))):
        monkeypatch.setenv(name, value)
    job = parse_job((DEPLOY / "job.sql").read_text())
    assert len(plan_job(job).queries) == 1
    (sink,) = (each for each in job.sinks if each.name == "delivered")
    assert sink.options["password"] == "a-long-password"
    assert isinstance(sink.options["password"], Secret)


def test_variables_of_the_job_are_set_wherever_it_runs():
    wanted = set(re.findall(r"\$\{(\w+)\}", (DEPLOY / "job.sql").read_text()))
    text = (DEPLOY / "watersmeet.service").read_text()
    assert wanted <= {line.split("=")[1] for line in text.splitlines() if line.startswith("Environment=")}
    for service in own_services().values():
        assert wanted <= set(service["environment"])
    for container in pod()["containers"]:
        assert wanted <= {each["name"] for each in container["env"]}


def test_the_image_runs_as_a_user_with_its_version_of_java():
    assert re.findall(r"^USER (.*)$", IMAGE, re.MULTILINE) == [f"{USER}:{USER}"]
    assert f"useradd --uid {USER}" in IMAGE
    assert "openjdk-17-jre-headless" in IMAGE
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    for copied in [*re.findall(r"^COPY ([^-].*) \S+$", IMAGE, re.MULTILINE), "requirements.lock"]:
        for path in copied.split():
            assert (REPOSITORY / path).exists()
            assert f"!{path}" in ignored


def test_services_have_no_rights_and_listen_for_this_machine_alone():
    for name, service in own_services().items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "privileged" not in service
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:8765:8765"]
    assert own_services()["job"]["stop_grace_period"] == f"{STOP_S // 60}m"


def test_every_volume_config_and_secret_of_a_service_is_declared():
    for service in COMPOSE["services"].values():
        assert {volume.split(":")[0] for volume in service.get("volumes", [])} <= set(COMPOSE["volumes"])
        assert set(service.get("secrets", [])) <= set(COMPOSE["secrets"])
        assert {config["source"] for config in service.get("configs", [])} <= set(COMPOSE["configs"])
        assert set(service.get("depends_on", [])) <= set(COMPOSE["services"])
    assert (DEPLOY / COMPOSE["configs"]["job"]["file"]).exists()
    assert all("file" in secret for secret in COMPOSE["secrets"].values()), "others need a writable container"
    password = COMPOSE["services"]["postgres"]["environment"]
    assert "POSTGRES_PASSWORD" not in password


def test_the_pod_is_restricted():
    """As the restricted profile of Kubernetes' pod security standards asks."""
    of_pod = pod()["securityContext"]
    assert (of_pod["runAsNonRoot"], of_pod["runAsUser"], of_pod["fsGroup"]) == (True, USER, USER)
    assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod()["automountServiceAccountToken"] is False
    assert pod()["terminationGracePeriodSeconds"] == STOP_S
    volumes = {volume["name"] for volume in pod()["volumes"]}
    for container in pod()["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        assert "memory" in container["resources"]["limits"]


def test_the_pod_finds_its_volume_and_its_page():
    by_kind = {each["kind"]: each for each in OBJECTS}
    claims = [
        v["persistentVolumeClaim"]["claimName"] for v in pod()["volumes"] if "persistentVolumeClaim" in v
    ]
    assert claims == [by_kind["PersistentVolumeClaim"]["metadata"]["name"]]
    template = by_kind["Deployment"]["spec"]["template"]
    assert by_kind["Service"]["spec"]["selector"] == template["metadata"]["labels"]
    assert by_kind["Deployment"]["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]


def test_the_unit_runs_as_a_user_and_stops_in_time():
    service = unit()
    assert service["User"] == "watersmeet"
    assert service["TimeoutStopSec"] == str(STOP_S)
    assert (service["ProtectSystem"], service["NoNewPrivileges"]) == ("strict", "yes")
    assert service["Restart"] == "on-failure"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_takes_the_unit(tmp_path):
    program = shutil.which("true")
    text = (DEPLOY / "watersmeet.service").read_text()
    (tmp_path / "watersmeet.service").write_text(text.replace("/opt/watersmeet/bin/watersmeet", str(program)))
    words = ["systemd-analyze", "verify", str(tmp_path / "watersmeet.service")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
