"""Certificates for servers of tests: of an authority of their own, for this machine's loopback address."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files."""

    authority: Path
    certificate: Path
    key: Path


def create_certificates(folder: Path, name: str = "server") -> Certificates:
    """Make an authority and a certificate by it."""
    folder.mkdir(parents=True, exist_ok=True)
    authority, authority_key = folder / f"{name}-ca.pem", folder / f"{name}-ca.key"
    certificate, key, request = (folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
    names = folder / f"{name}.ext"
    names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
    new = ["req", "-newkey", "rsa:2048", "-nodes", "-subj"]
    for command in (
        [*new, "/CN=tests", "-x509", "-days", "2", "-keyout", authority_key, "-out", authority],
        [*new, "/CN=localhost", "-keyout", key, "-out", request],
        ["x509", "-req", "-in", request, "-CA", authority, "-CAkey", authority_key, "-CAcreateserial",
         "-days", "2", "-extfile", names, "-out", certificate],
    ):  # fmt: skip
        subprocess.run(["openssl", *map(str, command)], check=True, capture_output=True)
    return Certificates(authority, certificate, key)
