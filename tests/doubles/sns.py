"""SNS on 127.0.0.1: signs messages, and serves its certificates as a proxy for Amazon's hosts.

    with serve(Sns(tmp_path)) as sns:
        harness.variables |= sns.environ()
        body = sns.notification(json.dumps(event))

A process with these variables asks the proxy for https://sns.eu-west-1.amazonaws.com, and trusts
the authority of this double. So its own checks of hosts and certificates are at work. `upstream` is
another server, such as moto's, that has the certificates instead.
"""

from __future__ import annotations

import base64
import json
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

REGION = "eu-west-1"
TOPIC = f"arn:aws:sns:{REGION}:123456789012:mail"
HOST = f"sns.{REGION}.amazonaws.com"
PEM = "/SimpleNotificationService-0123456789abcdef.pem"
DAY = timedelta(days=1)


class Sns:
    """The double: a key with its certificate, and a record of what was asked."""

    def __init__(self, directory: Path, upstream: str | None = None) -> None:
        self.upstream = upstream
        self.asked: list[str] = []
        self.broken = False
        self.key = new_key()
        self.certificate = certificate_of(self.key)
        self._directory = directory
        self.port = 0
        authority = new_key()
        root = certificate_of(authority, "Test authority", ca=True)
        leaf = new_key()
        host = certificate_of(leaf, HOST, issuer=(authority, root), names=[HOST])
        (directory / "ca.pem").write_bytes(pem(root))
        (directory / "host.pem").write_bytes(pem(host) + private(leaf))
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(directory / "host.pem")

    def environ(self) -> dict[str, str]:
        """Variables of processes that shall find this double."""
        proxy = f"http://127.0.0.1:{self.port}"
        return {"HTTPS_PROXY": proxy, "REQUESTS_CA_BUNDLE": str(self._directory / "ca.pem")}

    def answer(self, path: str) -> tuple[int, bytes]:
        self.asked.append(path)
        if self.broken:
            return 503, b"later"
        if self.upstream:
            # moto knows by this header which of its services is meant.
            who = f"AWS4-HMAC-SHA256 Credential=x/20260101/{REGION}/sns/aws4_request"
            found = requests.get(
                self.upstream + path, headers={"Host": HOST, "Authorization": who}, timeout=30
            )
            return found.status_code, found.content
        if path == PEM:
            return 200, pem(self.certificate)
        return (200, b"<ok/>") if "Action=ConfirmSubscription" in path else (404, b"")

    def notification(self, text: str, version: str = "2", **fields: Any) -> bytes:
        """A signed message, as it is posted."""
        return self.signed({"Type": "Notification", "Message": text, **fields}, version)

    def confirmation(self, **fields: Any) -> bytes:
        message = "You have chosen to subscribe to the topic."
        url = f"https://{HOST}/?Action=ConfirmSubscription&Token=2336412f37&TopicArn={TOPIC}"
        told = {"Message": message, "Token": "2336412f37", "SubscribeURL": url}
        return self.signed({"Type": "SubscriptionConfirmation", **told, **fields})

    def signed(self, fields: dict[str, Any], version: str = "2") -> bytes:
        message = {
            "MessageId": str(uuid4()),
            "TopicArn": TOPIC,
            "Timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            "SignatureVersion": version,
            "SigningCertURL": f"https://{HOST}{PEM}",
            **fields,
        }
        text = canonical(message)
        algorithm = hashes.SHA1() if version == "1" else hashes.SHA256()  # noqa: S303
        signature = self.key.sign(text, padding.PKCS1v15(), algorithm)
        return json.dumps({"Signature": base64.b64encode(signature).decode(), **message}).encode()


def canonical(message: dict[str, Any]) -> bytes:
    """Return what SNS signs, by its documentation: these fields, in the order of their names."""
    names = {"Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"}
    if message["Type"] != "Notification":
        names = (names - {"Subject"}) | {"SubscribeURL", "Token"}
    return "".join(f"{name}\n{message[name]}\n" for name in sorted(names & set(message))).encode()


@contextmanager
def serve(double: Sns) -> Iterator[Sns]:
    """Run the proxy for a while."""

    class Tunnel(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            target = self._head()[0].split()[1]
            if not target.startswith(HOST):
                double.asked.append(target)
                self.wfile.write(b"HTTP/1.1 502 no\r\ncontent-length: 0\r\n\r\n")
                return
            self.wfile.write(b"HTTP/1.1 200 go on\r\n\r\n")
            try:
                with double.tls.wrap_socket(self.request, server_side=True) as inside:
                    self.rfile = inside.makefile("rb")
                    status, body = double.answer(self._head()[0].split()[1])
                    head = f"HTTP/1.1 {status} x\r\ncontent-length: {len(body)}\r\n"
                    inside.sendall(f"{head}connection: close\r\n\r\n".encode() + body)
            except OSError:  # a client that does not trust this double
                return

        def _head(self) -> list[str]:
            lines = []
            while (line := self.rfile.readline(65536)) not in {b"\r\n", b""}:
                lines.append(line.decode("latin-1"))
            return lines

    class Proxy(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Proxy(("127.0.0.1", 0), Tunnel) as server:
        double.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield double
        finally:
            server.shutdown()
            thread.join()


def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def certificate_of(
    key: rsa.RSAPrivateKey,
    name: str = "sns.amazonaws.com",
    *,
    issuer: tuple[rsa.RSAPrivateKey, x509.Certificate] | None = None,
    names: list[str] | None = None,
    ca: bool = False,
    since: timedelta = -DAY,
    until: timedelta = DAY,
) -> x509.Certificate:
    now = datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer, root = issuer or (key, None)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(root.subject if root else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + since)
        .not_valid_after(now + until)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if names:
        others = x509.SubjectAlternativeName([x509.DNSName(each) for each in names])
        builder = builder.add_extension(others, critical=False)
    return builder.sign(signer, hashes.SHA256())


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def private(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
