"""A mail server on loopback that keeps what it is sent."""

import socketserver
import threading
from email import message_from_string
from email.message import Message

__all__ = ["MailServer"]


class MailServer:
    """Takes every mail; `refuses` makes it answer that it cannot now."""

    def __init__(self) -> None:
        self.mails: list[Message] = []
        self.refuses = False
        outer = self

        class Talk(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self._say("220 here")
                while line := self.rfile.readline().decode().strip():
                    word = line.split(":")[0].split()[0].upper()
                    if word == "DATA":
                        self._say("354 go on")
                        outer.mails.append(message_from_string(self._text()))
                        self._say("250 kept")
                    elif word == "QUIT":
                        return self._say("221 bye")
                    elif word == "MAIL" and outer.refuses:
                        self._say("451 not now")
                    else:
                        self._say("250 ok")
                return None

            def _say(self, text: str) -> None:
                self.wfile.write(f"{text}\r\n".encode())

            def _text(self) -> str:
                lines = []
                while (line := self.rfile.readline().decode()) != ".\r\n":
                    lines.append(line)
                return "".join(lines)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Talk)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        port = self._server.server_address[1]
        return f"smtp://127.0.0.1:{port}?from=kfm%40example.org&to=desk%40example.org"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
