"""Another user's process that tries the sockets of a run without asking anything.

usage: neighbour.py [@]SOCKET...

Connects to each, @ for the abstract name, and says what it hears before it has sent a byte: the name of an error, the
text of a control socket, or the number that the agents' socket answers with. Then it waits, and says whether the other
end hangs up without having heard anything.
"""

import socket
import sys


def hear(name, kind):
    address = "\0" + name[1:] if name.startswith("@") else name
    with socket.socket(socket.AF_UNIX, kind) as connection:
        connection.settimeout(10)
        connection.connect(address)
        heard = connection.recv(1 << 16)
        text = heard.decode().strip() if kind == socket.SOCK_STREAM else str(int.from_bytes(heard, "little"))
        after = "more" if connection.recv(1) else "closed"
        return f"{text or 'nothing'} {after}"


for name in sys.argv[1:]:
    kind = socket.SOCK_STREAM if name.endswith("control.sock") else socket.SOCK_SEQPACKET
    try:
        print(hear(name, kind))
    except OSError as error:
        print(type(error).__name__)
