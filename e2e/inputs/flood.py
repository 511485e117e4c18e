"""Another user's process that connects to the sockets of a run as fast as it can, and says nothing.

usage: flood.py SECONDS [@]SOCKET...

Connects to each in turn, @ for the abstract name, and keeps the last 64 connections open. Says `flooding` once all have
been reached, and at the end how many connections there were. The end comes early when a socket is gone.
"""

import socket
import sys
import time
from collections import deque


def connect(name):
    address = "\0" + name[1:] if name.startswith("@") else name
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.setblocking(False)
    try:
        connection.connect(address)
    except BlockingIOError:
        # The queue of the socket is full.
        connection.close()
        return None
    return connection


end = time.monotonic() + float(sys.argv[1])
made, kept = 0, deque(maxlen=64)
while time.monotonic() < end:
    for name in sys.argv[2:]:
        try:
            connection = connect(name)
        except OSError:
            print(made, flush=True)
            sys.exit()
        if connection:
            made += 1
            if len(kept) == kept.maxlen:
                kept.popleft().close()
            kept.append(connection)
    if made and made <= len(sys.argv[2:]):
        print("flooding", flush=True)
print(made, flush=True)
