"""How people are told: a POST, a mail, or a program of the operator's."""

import smtplib
import ssl
import subprocess
from email.message import EmailMessage
from urllib.parse import parse_qs, urlsplit

import msgspec

from kfm.fetch.post import post
from kfm.model import KfmError, StepFailed, UpstreamUnavailable, UsageError, masked
from kfm.model.dataset import AlertChannel
from kfm.store.address import stated_address
from kfm.telemetry.incidents import Message

__all__ = ["tell_channel"]

_SECONDS = 10.0
_WORDS = {"opened": "is", "lasts": "is still", "over": "is no longer"}


def tell_channel(channel: AlertChannel, message: Message) -> None:
    """Raises `KfmError` when the channel does not have it."""
    if channel.webhook:
        _post(stated_address(channel.webhook), message)
    elif channel.mail:
        _mail(stated_address(channel.mail), message)
    else:
        _call(channel.command, message)


def sentence(message: Message) -> str:
    """What happened, in one line."""
    return f"{message.dataset_id} {_WORDS[message.word]} {message.kind}: {message.reason}"


def _post(url: str, message: Message) -> None:
    body = msgspec.json.encode({**msgspec.to_builtins(message), "text": sentence(message)})
    headers = {"Content-Type": "application/json", "X-KFM-Incident": message.id}
    post(url, body, headers=headers, seconds=_SECONDS)


def _mail(url: str, message: Message) -> None:
    """smtp://HOST:PORT?from=A&to=B (@ is %40; smtps: encrypted from the start; smtp: as soon as it offers)."""
    parts, asked = urlsplit(url), parse_qs(urlsplit(url).query)
    if parts.scheme not in ("smtp", "smtps") or not asked.get("from") or not asked.get("to"):
        raise UsageError(
            "The address for mail is not usable.",
            expected="smtp://HOST:PORT?from=a%40example.org&to=b%40example.org",
            remedy="Change `alerts` in kfm.yml.",
        )
    mail = EmailMessage()
    mail["Subject"] = sentence(message).splitlines()[0][:200]
    mail["From"], mail["To"] = asked["from"][0], ", ".join(asked["to"])
    mail["Message-ID"] = f"<{message.id.replace('/', '.').replace(':', '')}.{message.word}@kfm>"
    mail.set_content(f"{sentence(message)}\n\nsince {message.opened_at}\nnext  {message.next}\n")
    try:
        _deliver(
            parts.scheme, parts.hostname or "", parts.port, parts.username, parts.password, mail
        )
    except (OSError, smtplib.SMTPException) as error:
        raise UpstreamUnavailable(
            f"The mail server did not take it: {masked(str(error))[:200]}.",
            expected="an answer",
            remedy="It is tried again.",
        ) from error


def _deliver(
    scheme: str,
    host: str,
    port: int | None,
    user: str | None,
    password: str | None,
    mail: EmailMessage,
) -> None:
    context = ssl.create_default_context()
    link = (
        smtplib.SMTP_SSL(host, port or 465, timeout=_SECONDS, context=context)
        if scheme == "smtps"
        else smtplib.SMTP(host, port or 25, timeout=_SECONDS)
    )
    with link:
        if scheme == "smtp" and link.has_extn("starttls"):
            link.starttls(context=context)
        if user:
            link.login(user, password or "")
        link.send_message(mail)


def _call(command: tuple[str, ...], message: Message) -> None:
    body = msgspec.json.encode(message) + b"\n"
    why: str | KfmError
    try:
        done = subprocess.run(
            command, input=body, capture_output=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        why = str(error)
    else:
        if not done.returncode:
            return
        why = done.stderr.decode("utf-8", "replace").strip()[:200] or f"exit {done.returncode}"
    raise StepFailed(
        f"{command[0]} did not take the message: {why}.",
        expected="a program that reads one JSON object and exits 0",
        remedy="It is tried again.",
    )
