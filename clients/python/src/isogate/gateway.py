"""Which gateway, and which key: the rules of the `isogate` command."""

from __future__ import annotations

import os
import socket
import ssl
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:9090"


@dataclass(frozen=True)
class Gateway:
    """Where a gateway is, and which credentials it gets."""

    base_url: str  #: http(s)://HOST:PORT
    unix_path: str | None  #: connections go to this Unix socket
    key: str | None = field(repr=False)
    ca_file: str | None  #: PEM; None: the system's authorities

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca_file)


def find(
    url: str | None = None, key: str | None = None, ca_file: str | None = None, state_dir: str | None = None
) -> Gateway:
    """The gateway that these, or the environment, name.

    `url` or ISOGATE_URL is http(s)://HOST[:PORT] or unix:/PATH. Without it: the socket of the state directory if that was
    named or a gateway listens there, else http://127.0.0.1:9090. `key` or ISOGATE_KEY. Without it, if a URL on this machine
    was named: `local.key` of the state directory, if it can be read; a Unix socket needs none. `ca_file` or ISOGATE_CA_FILE
    holds the authorities for https. `state_dir` or ISOGATE_STATE_DIR. ValueError says what is wrong with one of these.
    """
    url = url or os.environ.get("ISOGATE_URL")
    key = key or os.environ.get("ISOGATE_KEY") or None
    ca_file = ca_file or os.environ.get("ISOGATE_CA_FILE")
    named_directory = state_dir or os.environ.get("ISOGATE_STATE_DIR")
    directory = named_directory or _default_state_dir()
    if not url:
        path = os.path.abspath(os.path.join(directory, "isogate.sock"))
        url, named = (f"unix:{path}" if named_directory or _listens(path) else DEFAULT_URL), False
    else:
        named = True
    base_url, unix_path, local = _parse(url)
    # Anything may listen on a port that was not named: it does not get the key of this machine.
    if key is None and named and local and unix_path is None:
        key = _read_key(os.path.join(directory, "local.key"))
    if key is not None and not all(0x20 < ord(each) < 0x7F for each in key):
        raise ValueError("the key holds characters that no key has")
    return Gateway(base_url, unix_path, key, ca_file)


def _default_state_dir() -> str:
    if os.geteuid() == 0:
        return "/var/lib/isogate"
    state = os.environ.get("XDG_STATE_HOME", "")
    return os.path.join(state if os.path.isabs(state) else os.path.expanduser("~/.local/state"), "isogate")


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def _read_key(path: str) -> str | None:
    try:
        with open(path) as file:
            return file.read().rstrip("\r\n") or None
    except OSError:
        return None


def _parse(url: str) -> tuple[str, str | None, bool]:
    """The base of URLs, the Unix socket, and whether it is on this machine."""
    if url.startswith("unix:"):
        path = url.removeprefix("unix:").removeprefix("//")
        if not path.startswith("/"):
            raise ValueError("cannot use the url of the gateway: the path of the socket is not absolute")
        return "http://localhost", path, True
    # No message quotes the url: it may contain a password.
    try:
        parts = urlsplit(url)
        port = parts.port or 9090
    except ValueError:
        raise ValueError("cannot use the url of the gateway: it is none, or its port is no number") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError("cannot use the url of the gateway: give http://HOST:PORT, https://HOST:PORT or unix:/PATH")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("cannot use the url of the gateway: only a host and a port may be there")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}", None, _is_local(parts.hostname)


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
